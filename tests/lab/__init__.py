"""The laboratory: what is measured and compared of Federator, from a checkout. None of it is in the wheel, and the product imports nothing of it.

`command` is `python -m tests.lab`, and its subcommands are: `table` (schedulers compared on published traces: `comparison`), `report` (some of the
`schedulers` on one trace, with plots: `series`, `study_page`, `plots`; and how honest forecasts are: `looks`) and `faults` (seeds of the fault simulation).
"""

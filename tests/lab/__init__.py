"""The laboratory: what is measured and compared of Federator, from a checkout. None of it is in the wheel, and the product imports nothing of it.

`command` is `python -m tests.lab`, and its subcommands are: `table` (schedulers compared on published traces: `comparison`), `report` (a study of
`federator simulate --json` with plots: `study_page`, `plots`) and `faults` (seeds of the fault simulation: the package of that name).
"""

"""The laboratory: what is measured and compared of Federator, from a checkout. None of it is in the wheel, and the product imports nothing of it.

`command` is `python -m tests.lab`, a subcommand in each of: `table` (schedulers compared on published traces: `comparison`) and
`report` (a study of `federator simulate --json` with plots: `study_page`, `plots`).
"""

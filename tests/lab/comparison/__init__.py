"""The published comparison of schedulers: which work on which sites, run in processes, judged, and written as a table.

`cases` says what is compared, `judging` what one simulation comes to, `running` keeps the processes busy and reuses what is there already, and
`pages` writes it down.
"""

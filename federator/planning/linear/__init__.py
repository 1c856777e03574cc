"""A decision as numbers that any linear or integer solver can read.

- `columns`: the columns and rows of a problem.
- `starts`: all starts that there could be, now and later. `hours`: rows of what they take of each place's hours. `cap_rows`: rows of caps.
- `terms`: columns and rows while they are made.
- `whole_line_rentals`: what a plan of the whole of a long line rents.
"""

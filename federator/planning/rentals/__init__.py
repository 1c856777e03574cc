"""When renting is allowed, and what it would bring.

- `burst`: the case for one job and one offer: modes, evidence, need.
- `candidate`: what is said of it, as values.
- `gains`: what a rental gains the job that it is made for.
- `economics`: what rented places come to and whether they pay, for many jobs at once.
- `interruptions`: what losing a spot machine costs in time.
- `warmth`: whether a rented machine that idles had better be kept.
"""

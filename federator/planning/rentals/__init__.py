"""When renting is allowed, and what it would bring.

- `burst`: the case for one job and one offer: modes, evidence, need.
- `candidate`: what is said of it, as values.
- `gains`: what a rental gains the job that it is made for.
- `optimal_stopping`: when to wait for home no longer.
- `interruptions`: what losing a spot machine costs in time.
- `warmth`: whether a rented machine that idles had better be kept.
"""

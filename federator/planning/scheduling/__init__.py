"""When everything would run, and what that is worth.

- `objective`: the one evaluator: carries a decision out and prices what follows. `opportunity_cost`: what it takes from work outside the window.
- `forecast`: when jobs will run at home, and for how long; `speeds`: how fast on each GPU model.
- `list_schedule`: the list schedule by the compiled kernels, for which `rental_arrays` puts the rentals into arrays; it puts what they say back into records: places and times.
- `blocks`: why a job did not start.
"""

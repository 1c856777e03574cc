"""The planner: pure functions from a problem to a plan with a reason for every job.

No clock, no chance, no input or output: the same problem, seed and stages give the same plan, byte for byte.

Where things are; each package imports only those above it, and says in its own docstring where each of its modules is:

- `wording`: reasons in words, when somebody looks.
- `kernels`: the list schedule and its prices, compiled; imports none of the others.
- `places`: where a job might run: pools and offers, their hosts over time, what bringing data there takes.
- `rules`: what policies say, and who may run where: filters, calendars, caps, guarantees.
- `world`: the world of one decision: its jobs, places and prices, the chance of being late; of a very long line, which part of it.
- `rentals`: when renting is allowed, and what it would bring.
- `scheduling`: when everything would run, and what that is worth.
- `linear`: the same decision as columns and rows, for solvers.
- `explanations`: why a job does not run, why it would at a place, and what would help.
- `plans`: from a decision to a plan; begin with `plans.greedy`.
- `checks`: whether a plan holds: written a second time, with nothing of the above.
"""

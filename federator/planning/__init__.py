"""The planner: pure functions from a problem to a plan with a reason for every job.

No clock, no chance, no input or output: the same problem, seed and stages give the same plan, byte for byte. Read in this
order: `feasibility` (who may run where), `problem` (the world of one decision), `yard` and `forecast` (what fits when),
`burst` (when renting is allowed and worth it), `objective` (what a decision costs), `greedy`, `interpret`, `explain`.
"""

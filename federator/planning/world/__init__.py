"""The world of one decision, made once for all that look at it.

- `problem`: the jobs in order, the places, who may run where, and what things are worth.
- `model_arrays`: the same as numbers: the ways in which jobs could run, which kernels, rentals and the linear program read.
- `plan_starts`: what a plan that was made starts in it.
- `prices`: what one job in one place at one time costs. `chances`: how likely it is late there.
- `buckets`, `free_hours`: the future in a few steps, and what is expected to be free in each. `room`: what an hour of that is worth to others.
- Of a very long `line` a part: `window` (which jobs a decision looks at, and how many), `outlook` (what is expected of the others).
"""

"""What users submit, once or again and again.

- `intake`: what users ask for becomes records. `acceptance`: row by row, or the reason why not.
- `verbs`: cancel, hold, release, requeue, one job or many. `reruns`: what has ended, once more.
- `intake_checks`: what a queue gives and forbids. `held_capacity`: what may not change while a job holds capacity.
- `credentials`: variables that look like secrets, which are refused.
- `series`: submitted, paused, ended. `series_runs`: their runs, when they are due; `series_owners`: whether whoever submitted one is still let in.
"""

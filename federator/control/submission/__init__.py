"""What users submit, once or again and again.

- `intake`: what users ask for becomes records. `acceptance`: row by row, or the reason why not. `group_commit`: what comes at the same moment, as one transaction.
- `verbs`: cancel, hold, release, requeue, one job or many. `reruns`: what has ended, once more.
- `expansion`: tasks of large arrays become jobs as others start.
- `past_work`: what a submission has to do with jobs in the archive. `sources`: what it may read of the outputs of other jobs.
- `intake_checks`: what a queue gives and forbids. `amended_specs`: what a job that waits needs, changed. `held_capacity`: what may not change while a job holds capacity.
- `local_jobs`: what a site has admitted by itself while it was cut off.
- `series`: submitted, paused, ended. `series_runs`: their runs, when they are due; `series_owners`: whether whoever submitted one is still let in.
- `services`: applied, shown, promoted, deleted. `replicas`: their jobs, as many as are wanted; `service_loads`: what gateways have told.
"""

"""A turn of the dispatcher: what it sees, when it is due, and how its plan is committed.

- `turn`: observe, decide, check, commit, act, on one screen. `triggers`: what it is due for. `closings`, `dependencies`, `idle_work`: what it ends before it plans.
- `observation`: the snapshot, made of `job_views`, `job_outputs` (what jobs read of the outputs of others) and `occupancy` (what placements hold), with caps for services whose replicas are spread over sites (`spreading`); of a very long line by `waiting_line`, with a plan of all of it kept by `lookouts`.
- `committer`: the one place where a plan becomes records; what cannot be committed or planned is `set_aside`. `trust`: whose work goes to a site that does not keep jobs apart. `first_forecasts`: what people were told first. `reuse`: warm machines for what it would rent.
"""

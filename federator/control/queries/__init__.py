"""What people are shown.

- `spending`: money under a cap over time. `drain_previews`: what draining a site would come to.
- `usage_report`: GPU time, money, waits and deadlines, added up.
- `views`: records, reports and the last plan as rows, which `rows`, `burst_rows`, `job_lists` and `job_sorting` make.
- `archive_pages`: what of the archive belongs to a page of jobs.
- `arrays`: an array as one line, and its tasks added up. `blockers`: why no plan sees a job that waits.
- `pipelines`: the jobs and arrays that are the steps of one.
- `expectations`: when a job should start and end. `explanations`: why a job waits, or is where it is; `ahead`: who is before it; `forecast_moves`: what moved its forecast; `timetables`: what runs where and when; `silent_sites`: of sites that no plan sees at the moment.
- `waits`: why jobs wait, added up by reason.
- `recorded_load`: the load that there was and the world that there is, as simulations take them; `policy_replays`: what another policy set would have done with them.
"""

"""Who is told of what without asking.

- `alerts`: what the platform team should hear of without looking; `platform_alerts`: what of it is about sites, GPUs and queues.
- `notifications`: what people asked to be told of their jobs.
- `job_traces`: spans of jobs, for a collector.
"""

"""What sites say of themselves and of work, and what becomes of jobs by it.

- `inventory`: what was last heard of sites and offers.
- `statuses`: what sites say of placements becomes the jobs' story; `outcomes` says what becomes of a job, by cause.
- `gangs`: what several members say of one placement, folded into one. `refusals`: where a job came to nothing before it began.
- `fencing`: when time alone proves that work is over.
- `measurements`: what running work really uses. `gpu_use`: how busy each GPU is, and over time.
- `history`: how long jobs have run. `interruption_counts`: how often spot machines were taken back.
"""

"""From a decision to a plan: actions with reasons, and a reason for every other job.

- `greedy`: the plan that is always there.
- `interpret`: a decision in words and actions. What it adds: `reclaim` (who must make room) and `room` (what is made so far), `resizing` (elastic jobs in another form), `preferring` (lists in order),
  `proposals` (rentals that wait for a person), `waking` (when to plan again).
- `preview`: what would happen to a job that is not submitted yet.
- `differences`: two plans, compared.
"""

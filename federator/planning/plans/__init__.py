"""From a decision to a plan: actions with reasons, and a reason for every other job. Reasons are values (`model.reasons`); `planning.wording` tells them.

- `greedy`: the plan that is always there.
- `actions`: what a decision does beside the starts: `reclaim` (who must make room) and `room` (what is made so far), `resizing` (elastic jobs in another form),
  `preferring` (lists in order), `proposals` (rentals that wait for a person).
- `why`: why each job starts or waits.
- `interpret`: the plan builder: puts the two together, with when to plan again.
- `preview`: what would happen to a job that is not submitted yet.
- `differences`: two plans, compared.
"""

"""From a decision to a plan: actions with reasons, and a reason for every other job. Reasons are values (`model.reasons`); `planning.wording` tells them.

- `greedy`: the plan that is always there.
- `actions`: what a decision does beside the starts: `reclaim` (who must make room) and `room_made` (what is made so far), `resizes` (elastic jobs in another form),
  `preference` (lists in order), `proposals` (rentals that wait for a person).
- `plan_reasons`: why each job starts or waits.
- `plan_builder`: the plan builder: puts the two together, with when to plan again.
- `preview`: what would happen to a job that is not submitted yet. `array_preview`: to all tasks of an array.
- `differences`: two plans, compared.
"""

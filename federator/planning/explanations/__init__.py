"""Why a job does not run, and what would help.

- `explain`: the whole answer, from the snapshot and the plan, without planning again.
- `reasons`: why a job does not run at a place, in the published orders.
- What would help: `smallest_change` (a job that waits), `rental_advice` (one that could rent), `remedies` (past filters), over the `context` that a plan leaves; `advice` puts it in order
  by how much it asks of people, `higher_priority` adds what others would pay for, and `changes` makes the world as it would be.
- What a place costs beyond its price: `congestion`, and `curve` (what each earlier finish costs). Between when a job may start and end: `ranges`. What runs where and when, all jobs together: `timetable`.
- `rule_words`: policies in words.
"""

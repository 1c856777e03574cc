"""What policies say of jobs and places, and who may run where.

- `rulebook`: looks rules up; the only place where scopes, selectors and windows are matched.
- `feasibility`: the filters in their published order, a reason for each rejected place. They are made of `filters` (what every filter is), `permits` (renting, policies, money)
  and `calendars`; `eligibility` asks them as seldom as can be.
- `openings`, `periods`: when a place takes work by a calendar, and over what a cap on money sums.
- `max_wait`: the longest wait of a queue, as a deadline.
- `caps`: limits as running totals. `shares`: guarantees, and how far a queue is from its own.
"""

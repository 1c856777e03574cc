"""The planner: pure functions from a problem to a plan with a reason for every job.

No clock, no chance, no input or output: the same problem, seed and stages give the same plan, byte for byte. Read in this
order: `feasibility` (who may run where), `problem` (the world of one decision), `yard` and `forecast` (what fits when),
`burst` (when renting is allowed and worth it), `objective` (what a decision costs), `greedy`, `interpret`, `explain`.

Where things are:

- The world of a decision: `problem`, `candidates`, `yard` (hosts), `rulebook`, `caps`, `shares`, `calendars`, `openings`, `periods`, `data`, `doubt`. Of a very long line a part: `window`, `budget`,
  `outlook`.
- Who may run where: `asking`, `feasibility`, `permits`, `gates`.
- What things are worth: `prices`, `objective`, `displacing`, `congestion`, `curve`.
- When: `forecast`, `patience`, `chances` (of being late), `ranges` (that are shown); the schedule in plain Python: `schedule`, `board`, `bookings`, `blocks`, `lanes`; by the compiled `kernels`: `listed`, `ways`, `cases`, `carried`.
- Renting: `burst`, `stopping` (when to wait for home no longer), `stocks` (what is left), `interruptions`, `warmth`, `proposals`.
- The model for solvers: `columns`, `starts`, `hours`, `free_hours`, `cap_rows`, `buckets`, `growing`.
- Plans: `greedy`, `leading` (of a very long line), `preview`, `interpret`, `preferring`, `reclaim`, `resizing`, `waking`, `differences`. Whether they hold: `checks`.
- Why, and what would help: `explain`, `reasons`, `form_reasons`, `remedies`, `advice`, `burdens`, `helping`, `renting_helps`, `scenes`, `changes`, `rule_words`, `wording`.
"""

"""The loops of the dispatcher, and what they are made of. Read `turn` first: it is the whole of it on one screen.

- Submissions: `intake`, `acceptance`, `intake_checks`, `held_capacity`, `dependencies`; again and again: `series`, `series_runs`, `series_keeping`.
- Who may: `admission`, `tokens`. What people change besides: `desk` (policies), `sites`.
- A turn: `turn`, `occasions`, `committer`, `reuse`, `proposals`, `closings`. What it sees: `observation`, `inventory`, `stocks`, `holdings`, `job_views`, `concrete_rules`,
  `history`, `usage`; of a very long line `waiting_line`, `lookouts`.
- What sites say of work: `progress`, `stories`, `gangs`, `refusals`, `fencing`.
- What is rented: `executor`, `pacing`, `purse`, `demand`, `lease_endings`, `sweeper`, `rented_sites`, `user_data`. What it costs: `billing`, `money`.
- What is written down: `records`, `decoding`, `job_index`, `scribe`, `leadership`, `reconciling`, `retention`; of decisions `decisions`, `decision_parts`, `recorded`.
- What people are shown: `views`, `rows`, `burst_rows`, `listing`, `explanations`, `expectations`, `unheard`, `alerts`.
"""

"""What is paid and used, as caps and shares count it.

- `billing`: what capacity costs, as it is written down.
- `money`: what counts against caps: paid, and committed at the worst.
- `usage`: what queues have had of late.
- `concrete_rules`: rules of one decision: caps on each user, or of what a queue keeps, with numbers in them.
- `selection`: work and rentals on record as the selectors of rules see them.
"""

"""Who may, and what people change besides jobs.

- `tokens`: people's bearer tokens. `admission`: who gets in: people, agents, and agents of rented machines (`user_data`).
- `desk`: policies, as one version after another.
- `sites`: drained, taken back, declared dead.
"""

"""The loops of the dispatcher, and what they are made of. Read `turns.turn` first: it is the whole of it on one screen.

Where things are; each package imports only those below it, `submission` and `turns` nothing of each other, nor `leases` and `maintenance`:

- `queries`: what people are shown, of jobs, sites, money and plans.
- `messages`: what people are told without asking, and when.
- `submission`: what users submit, once or again and again.
- `turns`: a turn: what it sees, when it is due, and how its plan is committed.
- `administration`: who may, and what else people change: policies, tokens, sites.
- `leases`: what is rented, and given back.
- `maintenance`: what is dropped in time, and what is put right after a restore.
- `reports`: what sites say of themselves and of work, and what becomes of jobs by it.
- `accounts`: what is paid and used, as caps and shares count it.
- `record`: what is written down, and who may write.
"""

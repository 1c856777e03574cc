"""Where sealed lines of the ledger go outside of the store, one module for each kind of place; see `federator.ports.LedgerTarget`.

- `address`: which addresses there are, and their faults; no I/O.
- `files`, `syslog`: with the standard library; `s3`: the dispatcher's own door to boto3.
"""

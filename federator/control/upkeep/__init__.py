"""What is dropped in time, and what is put right after a restore.

- `retention`: what is dropped, when, and when there is no room for more; `series_keeping`: what series still need.
- `blob_keeping`: bytes that no record names any more. `ledger_keeping`: the oldest lines of the ledger, dropped so that the rest can still be verified.
- `measuring`: whose the bytes are.
- `sweeper`: machines that nobody knows, and the hour of retention.
- `ledger_keeping`, `ledger_export`: dropping the ledger's oldest lines, and taking its new ones to places outside.
- `reconciling`: after a store was restored: first everybody is heard, then anything is done.
"""

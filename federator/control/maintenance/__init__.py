"""What is dropped in time, and what is put right after a restore.

- `retention`: what is dropped, when, and when there is no room for more; `series_retention`: what series still need.
- `blob_retention`: bytes that no record names any more. `ledger_retention`: the oldest lines of the ledger, dropped so that the rest can still be verified.
- `archive_writer`: jobs that have ended move to the archive; `archive_retention`: what of it is dropped.
- `blob_usage`: whose the bytes are. `unfinished_uploads`: what people have begun to upload.
- `sweeper`: machines that nobody knows, and the hour of retention.
- `ledger_retention`, `ledger_export`: dropping the ledger's oldest lines, and taking its new ones to places outside.
- `reconciliation`: after a store was restored: first everybody is heard, then anything is done.
"""

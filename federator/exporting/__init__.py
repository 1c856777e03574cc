"""What goes to other systems: sealed lines of the ledger, one module for each kind of place (`federator.ports.LedgerTarget`), and spans (`federator.ports.SpanTarget`).

- `address`: which addresses there are, and their faults; no I/O.
- `otlp`: spans of jobs to an OpenTelemetry collector.
- `files`, `syslog`: with the standard library; `s3`: the dispatcher's own door to boto3.
"""

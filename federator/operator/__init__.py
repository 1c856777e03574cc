"""The operator of a Kubernetes cluster: `FederatedJob` objects, submitted to the dispatcher through its public API, and mirrored in their status.

- `definition` makes the custom resource of the job file's own types, `objects` are the parts that are read here, `status` is what is said of a job: all of it pure.
- `cluster` is what is done at the API server, `events` what `kubectl describe` shows, `submissions` what goes to the dispatcher together, `election` lets one operator of several work, `loop` is the operator.
- `policies` keeps the set of policies as objects have it, `sites` says how sites are and drains those whose objects say so.
- `workloads` plans those of a MultiKueue's manager as jobs.

It keeps nothing of its own. An object's uid is the client id of its submission and a label of its job, so whoever comes after finds what was begun.
"""

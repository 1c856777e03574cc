"""What is written down, and who may write.

- `records`: the store's rows in memory, and the one way to change them; `decoders`, `job_index` and `array_limits` keep that quick. `unexpanded`: tasks of arrays that are no jobs yet.
- `archived_jobs`: reading those that have left memory for the archive; `past`: what was read of them lately. `rows`: rows that are no part of the model.
- `batches`: many changes as few transactions, each no larger than the store takes. `blob_owners`: who has uploaded which bytes.
- `chain`: the ledger's lines, linked and signed (`signer`), so that tampering shows; `journal` notes those that are not linked yet.
- `event_writer`: a change of status, its event and its line in the ledger, always together.
- `leadership`: who leads, and until when that counts.
- `holders`: how much of it each person and team holds; `shares`: how much of a limit they may.
- `decisions`: problems and plans of turns, so that anyone can ask later why; `decision_parts` makes them small.
"""

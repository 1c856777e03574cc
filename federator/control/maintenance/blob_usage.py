"""Whose the bytes are: what a sweep has measured, by person and team."""

from collections import Counter

from federator.control.maintenance.archive_writer import ArchiveWriter
from federator.control.record.holders import Held, Holder, holders_of
from federator.control.record.records import Records
from federator.ports import Usage


def measure(records: Records, usage: Usage, archive: ArchiveWriter) -> int:
    """Note how many bytes each person and team has. What several have uploaded counts for each of them. Returns how many are the archive's own."""
    blobs: Counter[Holder] = Counter()
    logs: Counter[Holder] = Counter()
    for each in records.blob_owners.values():
        if not each.team:
            (person,) = holders_of(each.owner)
            blobs[person] += usage.blobs.get(each.digest, 0)
    for outputs in records.outputs.values():
        size = sum(usage.blobs.get(part.digest, 0) for part in outputs.parts)
        for holder in _of_job(records, outputs.job):
            blobs[holder] += size
    for name, size in usage.logs.items():
        placement = records.placements.get(name)
        for holder in _of_job(records, placement.job) if placement is not None else ():
            logs[holder] += size
    own = archive.measure(logs, blobs)
    records.held_counts.measured(Held.BLOB_BYTES, blobs)
    records.held_counts.measured(Held.LOG_BYTES, logs)
    return own


def _of_job(records: Records, name: str) -> tuple[Holder, ...]:
    job = records.jobs.get(name)
    return holders_of(job.owner, job.team) if job is not None else ()

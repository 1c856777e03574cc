"""What is kept for the sake of series, and what of theirs need not be kept any more."""

from federator.control.record.blob_owners import files_of_services, folder_of
from federator.control.record.records import Changes, Records
from federator.model.series import series_key

MOST = 100
"""Rows that one transaction drops."""


def folders_of_series(records: Records) -> set[str]:
    """The work directories of runs to come, and of replicas of services."""
    files = [each.file for each in records.series.values() if each.ended_at is None]
    return {folder_of(file) for file in (*files, *(file for _, file in files_of_services(records)))} - {""}


def surplus_runs(records: Records) -> set[str]:
    """Runs that are over beyond those that their series keeps, the oldest, by the names of their jobs or arrays."""
    found: set[str] = set()
    for key, jobs in records.runs.items():
        series = records.series.get(key)
        if series is not None and len(jobs) > series.every.keep:
            still_open = {
                job.array or name
                for name, job in jobs.items()
                if not job.terminal or records.has_left(job.array or "")
            }
            over = sorted({job.array or name for name, job in jobs.items()} - still_open)
            found.update(over[: -series.every.keep])
    return found


def forgotten_series(records: Records, before: float) -> list[str]:
    """Keys of the rows of series that ended before then and of which no run is on record."""
    return [
        f"series/{key}"
        for key, each in records.series.items()
        if each.ended_at is not None
        and each.ended_at < before
        and series_key(each.owner, each.name) not in records.runs
    ]


def without_forgotten(records: Records, before: float) -> Changes:
    """Some of these rows dropped; looked at anew where one moves meanwhile, so that whoever submits a series again just now has it."""
    return Changes(deletes=forgotten_series(records, before)[:MOST])

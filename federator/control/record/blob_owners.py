"""Who has uploaded which bytes. Bytes are kept once, whoever sends them; a hash alone opens nothing, because anybody may come to know one."""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes, Records
from federator.kernel.errors import TooMany
from federator.model.identity import BlobOwner
from federator.wire.jobfile import BLOB_PREFIX

MOST = 100
"""Rows that one transaction drops."""


def owns(records: Records, owner: str, digest: str, teams: Iterable[str]) -> bool:
    """Whether that person or a member of those teams has uploaded these bytes, or the person has a series or service that names them: it may be older than this note."""
    notes = (BlobOwner(owner, digest, 0.0), *(BlobOwner("", digest, 0.0, team) for team in teams))
    return any(note.key in records.blob_owners for note in notes) or _is_repeated(records, owner, digest)


def refuse_more(records: Records, owner: str, digest: str, most: int) -> None:
    """Raise `TooMany` when that person has as many work directories on record as one may, and this would be another."""
    if f"{digest}/{owner}" in records.blob_owners:
        return
    (person,) = holders_of(owner)
    if records.held_counts.of(Held.WORKDIRS, person) >= most:
        raise TooMany(
            f"{most} work directories of yours are kept, which is the limit (limits.person_blobs)",
            retry_after_s=60.0,
            remedy="wait until jobs of yours that need them are forgotten, or submit several jobs with one folder",
        )


def owned(
    records: Records, owner: str, digest: str, now: float, fresh_s: float, teams: Iterable[str]
) -> Changes:
    """Note that they and their teams own the bytes and use them now. A note younger than `fresh_s` stays as it is."""
    changes = Changes()
    for note in (BlobOwner(owner, digest, now), *(BlobOwner("", digest, now, team) for team in teams)):
        known = records.blob_owners.get(note.key)
        if known is None or known.at < now - fresh_s:
            changes.put(note)
    return changes


def used(
    records: Records, owner: str, digest: str, now: float, fresh_s: float, teams: Iterable[str]
) -> Changes:
    """Note the use in the notes that there are: who uses what a team-mate has uploaded does not come to own it."""
    rows = owned(records, owner, digest, now, fresh_s, teams).rows
    known = {key: row for key, row in rows.items() if key.removeprefix("blob-owner/") in records.blob_owners}
    return Changes(rows=known)


def disowned(records: Records, digests: Collection[str], before: float) -> Changes:
    """Some of the notes dropped that are about these bytes, and older."""
    old = [
        f"blob-owner/{key}"
        for key, each in records.blob_owners.items()
        if each.digest in digests and each.at <= before
    ]
    return Changes(deletes=old[:MOST])


def folder_of(file: str) -> str:
    """The work directory that the job file of a series or service names, or an empty text."""
    return msgspec.json.decode(file, type=_Folder).workdir.removeprefix(BLOB_PREFIX)


class _Folder(msgspec.Struct):
    """Of a job file, the work directory."""

    workdir: str = ""


def files_of_services(records: Records) -> Iterator[tuple[str, str]]:
    """The job files of replicas that may be started, each behind its owner."""
    for service in records.services.values():
        yield from ((service.owner, each.file) for each in (service.revision, service.former) if each)


def _is_repeated(records: Records, owner: str, digest: str) -> bool:
    files = [(each.owner, each.file) for each in records.series.values()]
    return any(
        whose == owner and folder_of(file) == digest for whose, file in (*files, *files_of_services(records))
    )

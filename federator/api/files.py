"""Work directories in, outputs out: gzipped tars by content."""

import asyncio
import gzip
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Annotated, Any, cast

import msgspec
from aiohttp import web

from federator.api.attempts import refuse_array
from federator.api.exchange import Call
from federator.api.resuming import Upload, take_up
from federator.control.record.blob_owners import owned, owns, refuse_more, used
from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes
from federator.control.record.rows import OutputPart
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.tars import members
from federator.model.jobs import JobStatus
from federator.ports import Blobs
from federator.wire.http import BlobLength, OutputFile, OutputList

GZIP = "application/gzip"
SHA256 = re.compile("[0-9a-f]{64}")
MOST_LISTED = 1000
"""Files of a job's outputs that are listed,"""
LISTED_BYTES = 1 << 28
"""and bytes of them that are unpacked for it: a second's work."""
BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, Invalid)
"""What an archive raises that is none."""


class BlobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an upload that goes on where it was cut. Both left out: the body is the whole archive."""

    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The archive's bytes."""
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Where the body belongs in it. An empty body asks how much has come."""


async def put_blob(call: Call) -> BlobLength:
    """Keep a work directory under its hash; keeping it twice is the same as once."""
    wanted, query = call.path("hash"), call.query(BlobQuery)
    retention = call.core.sweeper.retention
    retention.refuse_bytes_if_full()
    retention.refuse_bytes_over_share(call.caller.name, call.request.content_length or 0)
    refuse_more(call.core.records, call.caller.name, wanted, call.core.settings.limits.person_blobs)
    if query.size:
        return await _go_on(call, wanted, query)
    async with call.archive(retention.refuse_bytes_if_full) as draft:
        if draft.digest != wanted:
            raise Invalid(
                f"the bytes that arrived have the hash {draft.digest}",
                field="hash",
                remedy="send them again, or under their hash",
            )
        retention.refuse_bytes_over_share(call.caller.name, draft.length)
        await asyncio.to_thread(draft.keep)
    await _own(call, wanted, draft.length)
    return BlobLength(draft.length)


async def _go_on(call: Call, wanted: str, query: BlobQuery) -> BlobLength:
    """Take up what is new of the body, and keep the archive once all of it has come."""
    retention, person = call.core.sweeper.retention, call.caller.name
    if not SHA256.fullmatch(wanted):
        raise Invalid("this is not a hash", field="hash", remedy="64 hexadecimal digits")
    unfinished = retention.unfinished
    retention.refuse_bytes_over_share(person, query.size + unfinished.others(person, wanted))
    folder = await unfinished.folder(person, wanted, query.size)

    async def kept() -> None:
        await _own(call, wanted, query.size)
        unfinished.over(person, folder)

    def may_go_on() -> None:
        retention.refuse_bytes_if_full()
        unfinished.refuse_dropped(person, folder)

    upload = Upload(folder, wanted, query.size, query.offset)
    return BlobLength(await take_up(call, upload, kept, may_go_on))


async def _own(call: Call, digest: str, length: int) -> None:
    """Note that the caller has uploaded these bytes."""
    if f"{digest}/{call.caller.name}" not in call.core.records.blob_owners:
        (person,) = holders_of(call.caller.name)
        call.core.records.held_counts.add(Held.BLOB_BYTES, person, length)
    await _note(call, digest, owned)


async def has_blob(call: Call) -> web.Response:
    """Whether they or a team-mate have uploaded it already: then it need not be uploaded again. Of others' bytes nothing is said."""
    digest = call.path("hash")
    if not owns(call.core.records, call.caller.name, digest, _teams(call)):
        return web.Response(status=404)
    found = await asyncio.to_thread(call.core.blobs.has, digest)
    if found:
        await _note(call, digest, used)
    return web.Response(status=200 if found else 404)


async def _note(call: Call, digest: str, note: Callable[..., Changes]) -> None:
    records, settings = call.core.records, call.core.settings.retention
    fresh_s = settings.unused_blob_s / 2
    who, teams, now = call.caller.name, _teams(call), call.core.clock.now()
    await records.transact(lambda: note(records, who, digest, now, fresh_s, teams))


def _teams(call: Call) -> tuple[str, ...]:
    return call.core.authority.now.teams_of(call.caller)


async def outputs(call: Call) -> web.StreamResponse:
    """What `outputs` matched, of the newest attempt that collected any."""
    parts = await _collected(call)
    file = await asyncio.to_thread(_archive, call.core.blobs, parts)
    name = f'attachment; filename="{call.job.id}.tar.gz"'
    return await call.send(file, GZIP, {"Content-Disposition": name})


async def list_outputs(call: Call) -> OutputList:
    """The names and sizes of the same, without fetching it."""
    return await asyncio.to_thread(_listed, call.core.blobs, await _collected(call))


async def _collected(call: Call) -> list[OutputPart]:
    """What the members have collected, that with rank 0 first. Raises `NotFound` where there is nothing."""
    await refuse_array(call, "download")
    collected = call.core.records.known_outputs(call.job.id)
    if collected is None:
        spec = call.core.records.spec(call.job.spec_hash)
        why = "nothing has been collected yet" if spec.outputs else "its job file names none under `outputs`"
        runs = call.job.status is JobStatus.RUNNING
        remedy = (
            "while it runs, federator download takes what is there, and federator copy any file"
            if runs
            else None
        )
        raise NotFound(f"{call.job.name} has no outputs: {why}", remedy=remedy)
    placement = call.core.records.known_placement(collected.placement)
    return by_rank(collected.parts, placement.members if placement else ())


def by_rank(parts: Iterable[OutputPart], members: tuple[str, ...]) -> list[OutputPart]:
    """The part with rank 0 first."""
    ranks = {member: rank for rank, member in reversed(list(enumerate(members)))}
    return sorted(parts, key=lambda part: (ranks.get(part.member, len(members)), part.member))


def _archive(blobs: Blobs, parts: Sequence[OutputPart]) -> IO[bytes]:
    """One archive of all members' parts; of files that several have, the first one's. Blocks on disk."""
    if len(parts) == 1:
        return _part(blobs, parts[0].digest)
    merged = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=merged, mode="w:gz") as target:
            for part in parts:
                try:
                    _merge(target, _part(blobs, part.digest), seen)
                except BROKEN:
                    raise NotFound(
                        f"what {part.member} collected is damaged and cannot be put with the rest"
                    ) from None
    except BaseException:
        merged.close()
        raise
    return merged


def _merge(target: tarfile.TarFile, data: IO[bytes], seen: set[str]) -> None:
    """Copy files and folders. Agents collect nothing else, so what leads elsewhere did not come from one of ours."""
    with data:
        for source, entry in members(data):
            plain = entry.isreg() or entry.isdir() or (entry.islnk() and _inside(entry.linkname))
            if plain and _inside(entry.name) and entry.name not in seen:
                seen.add(entry.name)
                target.addfile(entry, source.extractfile(entry) if entry.isreg() else None)
                cast("Any", target).members.clear()  # or it keeps one of each for ever


def _listed(blobs: Blobs, parts: Sequence[OutputPart]) -> OutputList:
    """Files by name; of those that several have, the first one's. Blocks on disk."""
    found: dict[str, int] = {}
    left = LISTED_BYTES
    for part in parts:
        with _part(blobs, part.digest) as data:
            try:
                for _, entry in members(data):
                    if len(found) >= MOST_LISTED or left <= 0:
                        return _output_list(found, complete=False)
                    if entry.isfile() and _inside(entry.name):
                        found.setdefault(entry.name, entry.size)
                    left -= entry.size
            except BROKEN:
                raise NotFound(f"what {part.member} collected is damaged and cannot be listed") from None
    return _output_list(found, complete=True)


def _output_list(found: dict[str, int], *, complete: bool) -> OutputList:
    return OutputList(tuple(OutputFile(*each) for each in sorted(found.items())), complete)


def _inside(name: str) -> bool:
    return not {"..", ""} & set(re.split(r"[/\\]", name))


def _part(blobs: Blobs, digest: str) -> IO[bytes]:
    file = blobs.open(digest)
    if file is None:
        raise NotFound("these outputs are no longer kept")
    return file

"""Work directories in, outputs out: gzipped tars by content."""

import asyncio
import gzip
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, cast

from aiohttp import web

from federator.api.attempts import refuse_array
from federator.api.exchange import Call
from federator.control.record.blob_owners import owned, owns, refuse_more, used
from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes
from federator.control.record.rows import OutputPart
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.tars import members
from federator.model.jobs import JobStatus
from federator.ports import Blobs
from federator.wire.http import OutputFile, OutputList

GZIP = "application/gzip"
MOST_LISTED = 1000
"""Files of a job's outputs that are listed,"""
LISTED_BYTES = 1 << 28
"""and bytes of them that are unpacked for it: a second's work."""
BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, Invalid)
"""What an archive raises that is none."""


async def put_blob(call: Call) -> web.Response:
    """Keep a work directory under its hash; keeping it twice is the same as once."""
    wanted = call.path("hash")
    retention = call.core.sweeper.retention
    retention.refuse_bytes_if_full()
    retention.refuse_bytes_over_share(call.caller.name, call.request.content_length or 0)
    refuse_more(call.core.records, call.caller.name, wanted, call.core.settings.limits.person_blobs)
    async with call.archive(retention.refuse_bytes_if_full) as draft:
        if draft.digest != wanted:
            raise Invalid(
                f"the bytes that arrived have the hash {draft.digest}",
                field="hash",
                remedy="send them again, or under their hash",
            )
        retention.refuse_bytes_over_share(call.caller.name, draft.length)
        await asyncio.to_thread(draft.keep)
    if f"{wanted}/{call.caller.name}" not in call.core.records.blob_owners:
        (person,) = holders_of(call.caller.name)
        call.core.records.held_counts.add(Held.BLOB_BYTES, person, draft.length)
    await _note(call, wanted, owned)
    return web.Response(status=201)


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

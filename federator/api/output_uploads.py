"""What agents collect of jobs: whole in one request, or from where an upload was cut.

An upload that goes on says which bytes it is of, by their hash, and where it goes on. What has come of it is kept as a log beside those of its placement:
that goes on at an offset in every kind of store, and is dropped with the job. A loss of power may take its end, or damage it; so the hash of the whole is
compared before it counts, and what differs begins again.
"""

import asyncio
import hashlib
from typing import Annotated

import msgspec
from aiohttp import web

from federator.api.agents import own_placement
from federator.api.exchange import GZIP_MAGIC, MIB, READ_BYTES, Call
from federator.control.record.records import Changes
from federator.control.record.rows import OutputPart, Outputs
from federator.kernel.errors import Invalid, TooLarge
from federator.model.placements import Placement
from federator.ports import Blobs
from federator.wire.link import OutputLength


class OutputQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an upload that goes on where it was cut. All of it left out: the body is the whole archive."""

    digest: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """SHA-256 of the archive."""
    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Its bytes."""
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Where the body belongs in it. An empty body asks how much has come."""


async def put_outputs(call: Call) -> web.Response | OutputLength:
    """Keep what this member collected for a placement; a part sent again replaces the former."""
    placement, query = own_placement(call), call.query(OutputQuery)
    if query.digest:
        return await _go_on(call, placement, query)
    async with call.archive() as draft:
        digest = await asyncio.to_thread(draft.keep)
    part = OutputPart(call.session.member, digest, draft.length)
    await call.core.records.transact(lambda: _collected(call, placement, part))
    return web.Response(status=201)


async def _go_on(call: Call, placement: Placement, query: OutputQuery) -> OutputLength:
    """Take up what is new of the body, and keep the archive once all of it has come."""
    limit_mib = call.core.settings.limits.blob_mib
    if query.size > limit_mib * MIB:
        raise TooLarge(f"the archive is larger than {limit_mib} MiB", remedy="send less, or raise the limit")
    part = OutputPart(call.session.member, query.digest, query.size)
    known = call.core.records.outputs.get(placement.job)
    if known is not None and known.placement == placement.id and part in known.parts:
        return OutputLength(query.size)  # the answer to its last byte was lost
    blobs = call.core.blobs
    of_member = f"{placement.id}/outputs-{hashlib.sha256(part.member.encode()).hexdigest()[:16]}"
    name = f"{of_member}/{query.digest}"
    with call.transfer():
        length = await asyncio.to_thread(blobs.log_length, name)
        if query.offset > length:
            return OutputLength(length)
        if not length:
            await asyncio.to_thread(blobs.drop_logs, of_member)  # of another archive, which this replaces
        offset = query.offset
        async for data in call.chunks(limit_mib):
            if offset + len(data) > query.size:
                raise Invalid(
                    "the archive is longer than that", field="?size", remedy="give its size in bytes"
                )
            length = await asyncio.to_thread(blobs.append_log, name, offset, data)
            offset += len(data)
        if length < query.size:
            return OutputLength(length)
        whole = await asyncio.to_thread(_keep, blobs, name, query)
        if whole:
            await call.core.records.transact(lambda: _collected(call, placement, part))
        await asyncio.to_thread(blobs.drop_logs, of_member)
    return OutputLength(query.size if whole else 0)


def _keep(blobs: Blobs, name: str, query: OutputQuery) -> bool:
    """Keep the archive under its hash, if it is what was said. Blocks on disk. Raises `Invalid`."""
    if blobs.read_log(name, 0, len(GZIP_MAGIC)) != GZIP_MAGIC:
        raise Invalid("the body is not gzipped", field="$", remedy="send a gzipped tar")
    draft = blobs.draft()
    try:
        while part := blobs.read_log(name, draft.length, READ_BYTES):
            draft.write(part)
        if draft.digest != query.digest:
            return False
        draft.keep()
    finally:
        draft.discard()
    return True


def _collected(call: Call, placement: Placement, part: OutputPart) -> Changes:
    changes = Changes()
    known = call.core.records.outputs.get(placement.job)
    if known is not None and known.epoch > placement.epoch:
        return changes  # a newer attempt's count
    parts = known.parts if known is not None and known.placement == placement.id else ()
    others = tuple(other for other in parts if other.member != part.member)
    changes.put(Outputs(placement.job, placement.id, placement.epoch, (*others, part)))
    return changes

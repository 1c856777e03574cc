"""What agents collect of jobs: whole in one request, or from where an upload was cut. The parts of one that goes on lie beside the logs of its placement, and go with them."""

import asyncio
import hashlib
from typing import Annotated

import msgspec
from aiohttp import web

from federator.api.agents import own_placement
from federator.api.exchange import Call
from federator.api.resuming import Upload, take_up
from federator.control.record.records import Changes
from federator.control.record.rows import OutputPart, Outputs
from federator.model.placements import Placement, PlacementStatus
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
    part = OutputPart(call.session.member, query.digest, query.size)
    known = call.core.records.outputs.get(placement.job)
    if known is not None and known.placement == placement.id and part in known.parts:
        return OutputLength(query.size)  # the answer to its last byte was lost
    of_member = f"{placement.id}/outputs-{hashlib.sha256(part.member.encode()).hexdigest()[:16]}"

    async def kept() -> None:
        await call.core.records.transact(lambda: _collected(call, placement, part))

    upload = Upload(of_member, query.digest, query.size, query.offset)
    return OutputLength(await take_up(call, upload, kept))


def _collected(call: Call, placement: Placement, part: OutputPart) -> Changes:
    changes = Changes()
    known = call.core.records.outputs.get(placement.job)
    if known is not None and known.placement != placement.id and _counts(call, known, placement):
        return changes
    parts = known.parts if known is not None and known.placement == placement.id else ()
    others = tuple(other for other in parts if other.member != part.member)
    changes.put(Outputs(placement.job, placement.id, placement.epoch, (*others, part)))
    return changes


def _counts(call: Call, known: Outputs, placement: Placement) -> bool:
    """Whether what another attempt has left counts more: that of a success, or of a newer one that may still be one."""
    made = call.core.records.known_placement(known.placement)
    if made is not None and made.ended:
        return made.status is PlacementStatus.SUCCEEDED
    return known.epoch > placement.epoch

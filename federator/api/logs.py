"""A rank's log for its user: a part of it, its last lines, or all of it as it grows until the job is over."""

import asyncio
import contextlib
from typing import Annotated

import msgspec
from aiohttp import web

from federator.api.exchange import Call
from federator.kernel.errors import NotFound
from federator.model.placements import Placement
from federator.ports import Blobs

READ_BYTES = 2**16
LOOK_S = 5.0
"""Real seconds after which a waiting stream looks whether its client is still there."""
SETTLE_S = 0.2
"""Real seconds for which a log must not grow, once its job is over, to count as complete. Agents bring logs home before the last status;
this is for what was given up without one."""
PLACEMENT_HEADER = "X-Federator-Placement"
OFFSET_HEADER = "X-Federator-Offset"
"""Where in the log the answer begins: a client that asked for a tail goes on from there after a cut."""


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`node` is the rank; `offset` in bytes; `tail` in lines; without `placement`, the newest attempt."""

    node: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    tail: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    follow: bool = False
    placement: str = ""


async def read(call: Call) -> web.StreamResponse:
    """The log as plain text. With `follow` it goes on over later attempts and ends when the job is over and its log complete."""
    query = call.query(LogsQuery)
    placement = _asked_for(call, query.placement) if query.placement else _newest(call)
    if placement is None and not query.follow:
        raise NotFound(
            f"{call.job.name} has not been started yet, so it has no log", remedy="follow it to wait for one"
        )
    offset = query.offset
    if placement is not None and query.tail is not None:
        name = log_name(placement.id, query.node)
        offset = await asyncio.to_thread(tail_offset, call.core.blobs, name, query.tail)
    headers = {PLACEMENT_HEADER: placement.id if placement else "", OFFSET_HEADER: str(offset)}
    response = await call.stream("text/plain", headers)
    copy = _Copy(call, response, query.node)
    if query.follow:
        await _follow(copy, placement, offset, only=bool(query.placement))
    elif placement is not None:
        await copy.all_there_is(placement, offset)
    await response.write_eof()
    return response


def log_name(placement: str, rank: int) -> str:
    """Under which a rank's log is kept."""
    return f"{placement}/{rank}"


def tail_offset(blobs: Blobs, name: str, lines: int) -> int:
    """Where the last `lines` lines of a log begin. Blocks on disk."""
    end = start = blobs.log_length(name)
    wanted = lines
    while start > 0 and lines > 0:
        begin = max(0, start - READ_BYTES)
        part = blobs.read_log(name, begin, start - begin)
        position = len(part)
        if start == end and part.endswith(b"\n"):
            position -= 1  # the newline that ends the last line does not begin another
        while (position := part.rfind(b"\n", 0, position)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + position + 1
        start = begin
    return start


class _Copy:
    """Copies log bytes into an answer."""

    def __init__(self, call: Call, response: web.StreamResponse, rank: int) -> None:
        self.call = call
        self.response = response
        self.rank = rank

    async def all_there_is(self, placement: Placement, offset: int) -> int:
        """Write what is stored from `offset` on; returns where it ends."""
        name = log_name(placement.id, self.rank)
        while data := await asyncio.to_thread(self.call.core.blobs.read_log, name, offset, READ_BYTES):
            await self.response.write(data)
            offset += len(data)
        return offset


async def _follow(copy: _Copy, placement: Placement | None, offset: int, *, only: bool) -> None:
    call = copy.call
    quiet = False
    with call.feeds.listen(call.job.id) as bell:
        while not (call.hung_up or call.feeds.closing):
            bell.clear()
            over = _over(call, placement) if only else _job_over(call)
            before = offset
            if placement is not None:
                offset = await copy.all_there_is(placement, offset)
            if offset == before:
                newest = placement if only else _newest(call)
                if newest is not None and newest is not placement and _gone_from(call, placement, newest):
                    placement, offset, quiet = newest, 0, False
                    continue
                if over and quiet:
                    return
            quiet = over
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S if over else LOOK_S):
                    await bell.wait()
                quiet = False


def _gone_from(call: Call, placement: Placement | None, newest: Placement) -> bool:
    """Whether to go on with the newest attempt: there was none, or the former is over."""
    if placement is None:
        return True
    if placement.id == newest.id:
        return False
    former = call.core.records.placements.get(placement.id)
    return former is None or former.ended


def _over(call: Call, placement: Placement | None) -> bool:
    now = call.core.records.placements.get(placement.id) if placement else None
    return now is None or now.ended


def _job_over(call: Call) -> bool:
    job = call.core.records.jobs.get(call.job.id)
    return job is None or job.terminal


def _asked_for(call: Call, placement_id: str) -> Placement:
    placement = call.core.records.placements.get(placement_id)
    if placement is None or placement.job != call.job.id:
        raise NotFound(f"{call.job.name} has no placement {placement_id}")
    return placement


def _newest(call: Call) -> Placement | None:
    """The attempt that counts now; between two attempts, the last one."""
    records = call.core.records
    job = records.jobs.get(call.job.id, call.job)
    if job.placement in records.placements:
        return records.placements[job.placement]
    if job.epoch == 0:
        return None
    attempts = [placement for placement in records.placements.values() if placement.job == job.id]
    return max(attempts, key=lambda placement: placement.epoch, default=None)

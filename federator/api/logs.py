"""A rank's log for its user: a part of it, its last lines, what is newer than a moment, or all of it as it grows until the job is over."""

import asyncio
import contextlib
from typing import Annotated, NamedTuple

import msgspec
from aiohttp import web

from federator.api.attempts import attempt, log_name, refuse_array
from federator.api.exchange import NDJSON, Call, Moment
from federator.api.log_offsets import READ_BYTES, offset_since, parts, tail_offset, times_of
from federator.kernel.errors import NotFound
from federator.model.placements import Placement, PlacementStatus
from federator.ports import Blobs
from federator.wire.log_times import LogTime

LOOK_S = 5.0
"""Real seconds after which a waiting stream looks whether its client is still there."""
SETTLE_S = 0.2
"""Real seconds for which a log must not grow, once its job is over, to count as complete. Agents bring logs home before the last status, so one that
succeeded is complete; this is for what was given up without one."""
OFFSET_HEADER = "X-Federator-Offset"
"""Where in the log the answer begins: a client that asked for a tail goes on from there after a cut."""


class LogsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`node` is the rank; `offset` in bytes; `tail` in lines; `since` in seconds since the epoch. Without `placement` and `attempt` (1 is the first), the newest.

    With `times` the answer is NDJSON, each line a part of the log with its offset and when it was written.
    """

    node: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    tail: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    follow: bool = False
    placement: str = ""
    attempt: Annotated[int, msgspec.Meta(ge=1)] | None = None
    since: Moment = 0.0
    times: bool = False


async def read(call: Call) -> web.StreamResponse:
    """The log as plain text. With `follow` it goes on over later attempts and ends when the job is over and its log complete."""
    await refuse_array(call, "logs")
    query = call.query(LogsQuery)
    placement = await _asked_for(call, query)
    if placement is None and not query.follow:
        raise NotFound(
            f"{call.job.name} has not been started yet, so it has no log", remedy="follow it to wait for one"
        )
    offset = query.offset
    if placement is not None and (query.tail is not None or query.since):
        offset = await asyncio.to_thread(_begin, call.core.blobs, placement, query)
    headers = {OFFSET_HEADER: str(offset)}
    response = await call.stream(NDJSON if query.times else "text/plain", headers)
    copy = _Copy(call, response, query)
    if query.follow:
        await _follow(copy, placement, offset, only=bool(query.placement or query.attempt))
    elif placement is not None:
        await copy.all_there_is(placement, offset)
    await response.write_eof()
    return response


def _begin(blobs: Blobs, placement: Placement, query: LogsQuery) -> int:
    """Where what is asked for begins: of several conditions, where the last of them is met."""
    name = log_name(placement.id, query.node)
    offset = query.offset
    if query.tail is not None:
        offset = max(offset, tail_offset(blobs, name, query.tail))
    if query.since:
        length, times = blobs.log_length(name), times_of(blobs, name)
        if times:
            offset = max(offset, offset_since(times, query.since, length))
        elif placement.ended_at is not None and placement.ended_at < query.since:
            offset = length  # its times were not recorded; that it is over was
    return offset


class _Times(NamedTuple):
    """What is known of when a log was written, up to that offset."""

    log: str
    until: int
    times: list[LogTime]


def _times(blobs: Blobs, name: str) -> _Times:
    until = blobs.log_length(name)
    return _Times(name, until, times_of(blobs, name))


class _Copy:
    """Copies log bytes into an answer."""

    def __init__(self, call: Call, response: web.StreamResponse, query: LogsQuery) -> None:
        self.call = call
        self.response = response
        self.query = query
        self._times = _Times("", -1, [])

    async def all_there_is(self, placement: Placement, offset: int) -> int:
        """Write what is stored from `offset` on; returns where it ends."""
        name = log_name(placement.id, self.query.node)
        while data := await asyncio.to_thread(self.call.core.blobs.read_log, name, offset, READ_BYTES):
            await self.response.write(await self._told(name, offset, data))
            offset += len(data)
        return offset

    async def _told(self, name: str, offset: int, data: bytes) -> bytes:
        if not self.query.times:
            return data
        if name != self._times.log or offset + len(data) > self._times.until:
            self._times = await asyncio.to_thread(_times, self.call.core.blobs, name)
        return b"".join(msgspec.json.encode(part) + b"\n" for part in parts(self._times.times, offset, data))


async def _follow(copy: _Copy, placement: Placement | None, offset: int, *, only: bool) -> None:
    call = copy.call
    quiet = False
    with call.feeds.listen(call.job.id) as bell:
        while not (call.hung_up or call.feeds.closing):
            bell.clear()
            over = _over(call, placement) if only else _job_over(call)
            complete = over and _succeeded(call, placement)
            before = offset
            if placement is not None:
                offset = await copy.all_there_is(placement, offset)
            if complete or offset == before:
                newest = placement if only else _newest(call)
                if newest is not None and newest is not placement and _gone_from(call, placement, newest):
                    placement, offset, quiet = newest, 0, False
                    continue
                if complete or (over and quiet):
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
    former = call.core.records.known_placement(placement.id)
    return former is None or former.ended


def _over(call: Call, placement: Placement | None) -> bool:
    now = call.core.records.known_placement(placement.id) if placement else None
    return now is None or now.ended


def _succeeded(call: Call, placement: Placement | None) -> bool:
    now = call.core.records.known_placement(placement.id) if placement else None
    return now is not None and now.status is PlacementStatus.SUCCEEDED


def _job_over(call: Call) -> bool:
    job = call.core.records.open_job(call.job.id)
    return job is None or job.terminal


async def _asked_for(call: Call, query: LogsQuery) -> Placement | None:
    """The attempt that is named, or the newest if there is one. Raises `NotFound`."""
    if query.attempt is not None:
        return await attempt(call, query.attempt)
    if not query.placement:
        return _newest(call)
    placement = call.core.records.known_placement(query.placement)
    if placement is None or placement.job != call.job.id:
        raise NotFound(f"{call.job.name} has no placement {query.placement}")
    return placement


def _newest(call: Call) -> Placement | None:
    """The attempt that counts now; between two attempts, the last one."""
    records = call.core.records
    job = records.jobs.get(call.job.id, call.job)
    if (now := records.known_placement(job.placement)) is not None:
        return now
    if job.epoch == 0:
        return None
    attempts = [placement for placement in records.placements.values() if placement.job == job.id]
    return max(attempts, key=lambda placement: placement.epoch, default=None)

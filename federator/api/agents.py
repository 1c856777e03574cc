"""The agents' side: joining, the link, and bulk beside it.

Bulk is allowed by the ticket of a live session, and an agent reaches only what belongs to placements of its own member: the specs and work
directories of those that are open, the logs and outputs of those that are or were its own.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from federator.api.access import bearer
from federator.api.attempts import log_name
from federator.api.exchange import JSON, MIB, READ_BYTES, Call
from federator.api.listener import connection_of
from federator.api.log_offsets import keep_times
from federator.api.problems import note_refusal
from federator.control.record.leadership import Reign
from federator.hub import Session
from federator.hub.frames import Goodbye
from federator.kernel.errors import Invalid, NotFound, TooLarge
from federator.model.placements import Placement
from federator.settings import LimitSettings
from federator.wire.link import (
    MAX_MESSAGE_BYTES,
    SITE_HEADER,
    JoinAnswer,
    JoinRequest,
    KeyAnswer,
    KeyRequest,
    LogLength,
)
from federator.wire.log_times import TIMES_HEADER, LogTime, read_times, within

HEARTBEAT_S = 20.0
"""Real seconds between pings; a connection that does not answer in half of that is dead."""
CLOSE_S = 2.0
UNPROVEN_BYTES = 2**14
"""Most that an agent may say before its key is proven; its greeting and its signature take less than one KiB each."""
LEAST_LOG_BYTES = 2**17
"""Kept of a rank's log, of however many ranks."""
GZIP = "application/gzip"
GZIP_WINDOW = 31
"""To zlib: gzip, with the largest window."""


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where in the log the body belongs, in bytes."""

    offset: int
    zipped: bool = False
    """Whether the body is gzipped."""


async def join(call: Call) -> JoinAnswer:
    """Bind an agent's key to a site, by a one-time token."""
    secret = bearer(call.request)
    call.core.admission.require_join_token(secret)
    site = call.request.headers.get(SITE_HEADER, "")
    return await call.core.admission.join(secret, await call.body(JoinRequest), site)


async def rotate_key(call: Call) -> KeyAnswer:
    """Take the next key of an agent, which its present one has signed: that is the credential."""
    return await call.core.admission.rotate_key(await call.body(KeyRequest))


async def open_link(call: Call) -> web.StreamResponse:
    """The agent's control connection."""
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S, max_msg_size=MAX_MESSAGE_BYTES, compress=False, timeout=CLOSE_S
    )
    connection = connection_of(call.request)
    await socket.prepare(call.request)
    if connection is not None:
        connection.allowance = UNPROVEN_BYTES

    def judged(session: Session | None) -> None:
        if session is None:
            note_refusal(call.request, "agent")
        elif connection is not None and not connection.signed_in(
            f"member {session.member}", lambda: not session.ended.done()
        ):
            raise ConnectionError("this member has too many connections")

    await call.core.hub.serve(_SocketPipe(socket, call.core.reign), judged)
    return socket


class _SocketPipe:
    """A WebSocket as the hub's pipe. Nothing is said through it beyond the term: the look at the clock is the last thing before."""

    def __init__(self, socket: web.WebSocketResponse, reign: Reign) -> None:
        self._socket = socket
        self._reign = reign

    async def receive(self) -> str | None:
        """The next text frame. Any other kind ends the connection: the link is JSON text. Raises `Goodbye`."""
        message = await self._socket.receive()
        if message.type is WSMsgType.CLOSE and message.data == WSCloseCode.GOING_AWAY:
            raise Goodbye
        return message.data if message.type is WSMsgType.TEXT else None

    async def send(self, text: str) -> None:
        """Send a frame; waits while the other side does not take it."""
        if not self._reign.holds:
            raise ConnectionError("the term is over")
        await self._socket.send_str(text)

    async def close(self) -> None:
        """End the connection."""
        await self._socket.close()


async def spec(call: Call) -> web.Response:
    """The spec of an open placement of this member: the bytes that the hash is of."""
    wanted = call.path("hash")
    if not any(placement.spec_hash == wanted for placement in _open(call)):
        raise NotFound("no open placement of this member has that spec")
    return web.Response(body=call.core.records.spec_bytes(wanted), content_type=JSON)


async def blob(call: Call) -> web.StreamResponse:
    """The work directory of an open placement of this member."""
    wanted = call.path("hash")
    records = call.core.records
    if not any(records.spec(placement.spec_hash).workdir == wanted for placement in _open(call)):
        raise NotFound("no open placement of this member has that work directory")
    file = await asyncio.to_thread(call.core.blobs.open, wanted)
    if file is None:
        raise NotFound("that work directory is not stored")
    return await call.send(file, GZIP)


async def append_log(call: Call) -> LogLength:
    """Add to a rank's log. What is over the limit, or comes while the disk has no room, is left out; a line in the log says so. What would leave a gap is taken at the second try."""
    placement = own_placement(call)
    rank = int(call.path("rank"))
    if rank >= len(placement.members) or placement.members[rank] != call.session.member:
        raise NotFound(f"rank {rank} of {placement.id} is not at this member")
    limits = call.core.settings.limits
    most = _most_of_a_log(limits, ranks=len(placement.members))
    query = call.query(LogQuery)
    offset = query.offset
    name = log_name(placement.id, rank)
    blobs, retention = call.core.blobs, call.core.sweeper.retention
    length = await asyncio.to_thread(blobs.log_length, name)
    if length < min(offset, most) and name not in call.session.told_ends:
        # A request that was begun with another dispatcher, which had more of it: the agent has the rest still.
        call.session.told_ends.add(name)
        return LogLength(length, most)
    times = _times(call, placement, offset)
    parts = call.chunks(limits.body_mib)
    async for data in _unzipped(parts, limits.body_mib) if query.zipped else parts:
        kept = _kept(data, offset, most)
        if kept and retention.has_room():
            new = within(times, max(length, offset), offset + len(kept))
            await asyncio.to_thread(keep_times, blobs, name, new)
            length = await asyncio.to_thread(blobs.append_log, name, offset, kept)
        offset += len(data)
    call.feeds.ring(placement.job)
    left_out = offset > most or not retention.has_room()
    return LogLength(max(offset, length) if left_out else length, most)


async def _unzipped(parts: AsyncIterator[bytes], limit_mib: int) -> AsyncIterator[bytes]:
    """What was gzipped, in parts of bounded size. Raises `TooLarge` for what is longer than a body may be, and `Invalid`."""
    unzip, seen = zlib.decompressobj(wbits=GZIP_WINDOW), 0
    try:
        async for part in parts:
            packed = part
            while packed and not unzip.eof:
                data = unzip.decompress(packed, READ_BYTES)
                packed = unzip.unconsumed_tail
                seen += len(data)
                if seen > limit_mib * MIB:
                    raise TooLarge(
                        f"the body unpacks to more than {limit_mib} MiB", remedy="send less at a time"
                    )
                if data:
                    yield data
    except zlib.error as error:
        raise Invalid(f"the body is broken: {error}", field="$") from None
    if not unzip.eof or unzip.unused_data:
        raise Invalid("the body is not one gzipped whole", field="$")


def _times(call: Call, placement: Placement, offset: int) -> list[LogTime]:
    """When its bytes were written, as the agent says, but not before the attempt and not later than now; an older agent does not say it."""
    now = call.core.clock.now()
    said = read_times(call.request.headers.get(TIMES_HEADER, "")) or [LogTime(offset, now)]
    return [LogTime(each.offset, min(max(each.at, placement.assigned_at), now)) for each in said]


def _most_of_a_log(limits: LimitSettings, ranks: int) -> int:
    """How many bytes are kept of the log of one rank: its part of what is kept of its job's, and not more than of any rank."""
    return max(LEAST_LOG_BYTES, min(limits.log_mib * MIB, limits.job_log_mib * MIB // ranks))


def _kept(data: bytes, offset: int, most: int) -> bytes:
    """What of a part at this offset is within the limit of a log, and at its end a line that says so."""
    room = most - offset
    if len(data) <= room:
        return data
    return data[:room] + f"\n[the log is cut here: over {most / MIB:g} MiB]\n".encode() if room >= 0 else b""


def _open(call: Call) -> list[Placement]:
    return list(call.core.hub.held(call.session.member).values())


def own_placement(call: Call) -> Placement:
    """The placement that the path names, if ranks of it are or were at this member. Raises `NotFound`."""
    placement = call.core.records.placements.get(call.path("placement"))
    if placement is None or call.session.member not in placement.members:
        raise NotFound("this member has no such placement")
    return placement

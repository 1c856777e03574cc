"""Streams that outlive a connection: server-sent events, and the log of a job that moves from site to site.

A stream that breaks is opened again where it broke, for as long as the client's patience lasts without a single byte.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, TypeVar

from federator.client.transport import Response, Transport
from federator.kernel.errors import Transient
from federator.wire.jsontext import Reader
from federator.wire.log_times import LogPart

OFFSET_HEADER = "X-Federator-Offset"
NDJSON = "application/x-ndjson"
M = TypeVar("M")
_part: Reader[LogPart] = Reader(LogPart)


class ServerEvent(NamedTuple):
    """One message of an event stream."""

    id: str
    data: bytes


async def server_events(answer: Response) -> AsyncIterator[ServerEvent]:
    """The messages of one connection, comments (the server's heartbeat) left out. Raises `TooLarge` for an endless line."""
    last_id, data = "", []
    async for line in answer.lines():
        field, _, value = line.rstrip(b"\r").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"id":
            last_id = value.decode(errors="replace")
        elif field == b"data":
            data.append(value)
        elif not field and not value and data:
            yield ServerEvent(last_id, b"\n".join(data))
            data = []


async def follow_stream(
    transport: Transport, path: str, query: dict[str, str], reader: Reader[M], *, after: str = ""
) -> AsyncIterator[M]:
    """Messages from `after` on, each once, over as many connections as it takes; ends when the server ends the stream.

    Raises `Transient` when the dispatcher stays away for longer than the client's patience.
    """
    last_id = after
    patience = _Patience(transport)
    while True:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        try:
            async with transport.open("GET", path, query=query, headers=headers, endless=True) as response:
                async for message in server_events(response):
                    patience.renew()
                    last_id = message.id or last_id
                    yield reader.decode(message.data)
                return
        except Transient as error:
            await patience.spend(error)


async def log_parts(answer: Response, offset: int) -> AsyncIterator[LogPart]:
    """A log as one answer brings it from `offset` on: with its times, where they were asked for. Raises `TooLarge` for an endless line."""
    if answer.header("Content-Type").partition(";")[0] != NDJSON:
        async for chunk in answer.chunks():
            yield LogPart(offset, chunk)
            offset += len(chunk)
        return
    async for line in answer.lines():
        yield _part.decode(line)


async def follow_log(
    transport: Transport, path: str, query: dict[str, str], *, tail: int | None
) -> AsyncIterator[LogPart]:
    """One attempt's log (`placement` in the query) until the attempt is over, each byte once, over as many connections as it takes."""
    patience = _Patience(transport)
    first = {"offset": "0"} if tail is None else {"tail": str(tail)}
    offset: int | None = None
    while True:
        start = first if offset is None else {"offset": str(offset)}
        try:
            async with transport.open(
                "GET", path, query=query | start, headers={"Accept": "*/*"}, endless=True
            ) as response:
                if offset is None:
                    offset = int(response.header(OFFSET_HEADER) or 0)
                async for part in log_parts(response, offset):
                    patience.renew()
                    offset = part.offset + len(part.data)
                    yield part
                return
        except Transient as error:
            await patience.spend(error)


class _Patience:
    """How much longer to wait for a dispatcher that does not answer; every sign of life renews it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._spent_s = 0.0
        self._failures = 0

    def renew(self) -> None:
        self._spent_s, self._failures = 0.0, 0

    async def spend(self, error: Transient) -> None:
        """Wait a little before the next attempt, or raise `error`."""
        if self._spent_s >= self._transport.patience_s:
            raise error
        self._transport.tell(error)
        self._failures += 1
        self._spent_s += await self._transport.pause(self._failures)

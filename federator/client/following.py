"""Streams that outlive a connection: server-sent events, and the log of a job that moves from site to site.

A stream that breaks is opened again where it broke, for as long as the client's patience lasts without a single byte.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import msgspec

from federator.client.transport import Transport
from federator.kernel.errors import Bug, Transient
from federator.model.events import Event

MAX_LINE_BYTES = 2**20
PLACEMENT_HEADER = "X-Federator-Placement"
OFFSET_HEADER = "X-Federator-Offset"
_event = msgspec.json.Decoder(Event)


class ServerEvent(NamedTuple):
    """One message of an event stream."""

    id: str
    data: bytes


async def server_events(response: aiohttp.ClientResponse) -> AsyncIterator[ServerEvent]:
    """The messages of one connection, comments (the server's heartbeat) left out. Raises `Bug` for an endless line."""
    last_id, data, rest = "", [], b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise Bug(f"a line of an event stream has more than {MAX_LINE_BYTES} bytes")
        for line in (line.rstrip(b"\r") for line in lines):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"id":
                last_id = value.decode(errors="replace")
            elif field == b"data":
                data.append(value)
            elif not line and data:
                yield ServerEvent(last_id, b"\n".join(data))
                data = []


async def follow_events(
    transport: Transport, path: str, query: dict[str, str], *, after: str = ""
) -> AsyncIterator[Event]:
    """Events from `after` on, each once, over as many connections as it takes; ends when the server ends the stream.

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
                    yield _event.decode(message.data)
                return
        except Transient as error:
            await patience.spend(error)


class LogPosition(NamedTuple):
    """Where a reader of a log is: in which attempt, after how many bytes."""

    placement: str = ""
    offset: int = 0


class LogStream:
    """One rank's log, read to its end; `position` says how far."""

    def __init__(self, transport: Transport, path: str, query: dict[str, str]) -> None:
        self.position = LogPosition()
        self._transport = transport
        self._path = path
        self._query = query

    async def read(self, *, tail: int | None = None) -> AsyncIterator[bytes]:
        """What there is now, from `position` on; with `follow=true` in the query, what comes until the attempt is over."""
        patience = _Patience(self._transport)
        while True:
            query = dict(self._query)
            if tail is not None and not self.position.placement:
                query["tail"] = str(tail)
            elif self.position.placement:
                query |= {"placement": self.position.placement, "offset": str(self.position.offset)}
            try:
                async with self._transport.open(
                    "GET", self._path, query=query, headers={"Accept": "*/*"}, endless=True
                ) as response:
                    self._arrive(response)
                    async for chunk in response.content.iter_any():
                        patience.renew()
                        self.position = self.position._replace(offset=self.position.offset + len(chunk))
                        yield chunk
                    return
            except Transient as error:
                await patience.spend(error)

    def _arrive(self, response: aiohttp.ClientResponse) -> None:
        """Note which attempt this is, and where in its log the answer begins."""
        placement = response.headers.get(PLACEMENT_HEADER, "")
        begins = response.headers.get(OFFSET_HEADER)
        if begins is not None:
            self.position = LogPosition(placement, int(begins))
        elif placement != self.position.placement:
            self.position = LogPosition(placement)


class _Patience:
    """How much longer to wait for a dispatcher that does not answer; every sign of life renews it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._spent_s = 0.0

    def renew(self) -> None:
        self._spent_s = 0.0

    async def spend(self, error: Transient) -> None:
        """Wait a little before the next attempt, or raise `error`."""
        if self._spent_s >= self._transport.patience_s:
            raise error
        self._transport.tell(error)
        self._spent_s += await self._transport.pause(self._spent_s)

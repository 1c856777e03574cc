"""Tunnels into running jobs, as their user's end has them: frames, and how they end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import quote

import aiohttp
from aiohttp import WSMsgType

from federator.client.pooled import PooledTransport
from federator.kernel.errors import Unavailable
from federator.wire import tunnel

LOST = "the connection to the job was lost; what becomes of the command is not known"


class Frame(NamedTuple):
    """What came, and on which channel."""

    channel: int
    data: bytes


class Tunnel:
    """An open one."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def frames(self) -> AsyncIterator[Frame]:
        """What the job's side says, up to its end. Raises `Unavailable` when the connection is lost before that."""
        try:
            while (message := await self._socket.receive()).type is WSMsgType.BINARY:
                if message.data:
                    yield Frame(message.data[0], message.data[1:])
                    if message.data[0] == tunnel.END:
                        return
        except (TimeoutError, aiohttp.ClientError, ConnectionError) as error:
            raise Unavailable(LOST) from error
        raise Unavailable(LOST)

    async def send(self, channel: int, data: bytes) -> None:
        """Pass bytes on; waits while the job's side does not take them. What cannot be sent any more is dropped: `frames` tells why."""
        for start in range(0, len(data), tunnel.DATA_BYTES):
            await self.send_frame(bytes((channel,)) + data[start : start + tunnel.DATA_BYTES])

    async def send_frame(self, frame: bytes) -> None:
        """The same of one frame."""
        if not self._socket.closed:
            try:
                await self._socket.send_bytes(frame)
            except ConnectionError:
                return

    async def close_input(self) -> None:
        """Say that no more comes."""
        await self.send_frame(tunnel.STDIN_ENDS)


class TunnelVerbs:
    """What users do inside of their jobs."""

    pool: PooledTransport

    @asynccontextmanager
    async def tunnel(self, job: str, request: tunnel.Request, *, rank: int = 0) -> AsyncIterator[Tunnel]:
        """Run a command in a rank of a running job, or connect to a port of it. Hangs up at the end."""
        socket = await self.pool.socket(
            f"/v1/jobs/{quote(job, safe='')}/tunnel",
            query={"rank": str(rank)},
            silence_s=tunnel.SILENT_S,
            most_bytes=tunnel.MAX_FRAME_BYTES,
        )
        try:
            await socket.send_str(tunnel.request_text(request))
            yield Tunnel(socket)
        finally:
            await socket.close()

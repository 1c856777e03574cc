"""Takes connections from the port and has them served: as many as there are places for, and none that waits for ever.

Why not asyncio's own server: it accepts until the process has no descriptors left, and then logs a trace for each attempt. Here what has no place
stays in the port's queue. And aiohttp's log prints the header that it could not read, which may hold a token: of those only the number is told.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from federator.api.connections import Connection, Connections
from federator.kernel.tasks import cancel_and_wait
from federator.settings import ConnectionSettings

LOOK_S = 1.0
BURST = 4
"""Connections that are taken before others have their turn: some 0.3 ms each, and an answer takes several turns of the loop."""
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
MOST_DESCRIPTORS = 65_536
LINGER_S = 5.0
"""Real seconds for which the rest of a refused body is read, so that its sender sees the refusal."""
MOST_HEADERS = 64


def make_connections(settings: ConnectionSettings) -> Connections:
    """For this process, which is allowed as many open files as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return Connections(settings, soft, asyncio.get_running_loop().time)


@asynccontextmanager
async def serving(
    app: web.Application,
    listener: socket.socket,
    connections: Connections,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Answer on that port by this application."""
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=1.0,
        auto_decompress=False,
        keepalive_timeout=connections.settings.idle_s + LINGER_S,
        lingering_time=LINGER_S,
        max_headers=MOST_HEADERS,
        logger=_ServerLog(connections),
    )
    await runner.setup()
    listener.setblocking(False)
    tasks = [
        asyncio.create_task(_accept(listener, connections, runner, tls)),
        asyncio.create_task(_look(connections)),
    ]
    try:
        yield
    finally:
        await cancel_and_wait(*tasks)
        await runner.cleanup()
        connections.end()


@web.middleware
async def attend(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Let the connection know when a request begins and ends."""
    connection = connection_of(request)
    if connection is None:
        return await handler(request)
    connection.begin()
    try:
        return await handler(request)
    finally:
        connection.end()


def connection_of(request: web.Request) -> Connection | None:
    """The connection that it came by; None where another server than ours has taken it."""
    found = request.transport.get_protocol() if request.transport is not None else None
    return found if isinstance(found, Connection) else None


async def _accept(
    listener: socket.socket, connections: Connections, runner: web.AppRunner, tls: ssl.SSLContext | None
) -> None:
    loop = asyncio.get_running_loop()
    taken = 0
    while True:
        while connections.full:
            connections.closed.note("full", connections.now())
            connections.freed.clear()
            await connections.freed.wait()
        try:
            sock, peer = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno in EXHAUSTED:
                connections.closed.note("descriptors", connections.now())
                await asyncio.sleep(LOOK_S)
            continue
        assert runner.server is not None
        connection = Connection(connections, runner.server(), peer[0])
        connections.arrived(connection)
        connection.opening = asyncio.create_task(_open(sock, connection, tls))
        taken += 1
        if taken % BURST == 0:
            await asyncio.sleep(0)


async def _open(sock: socket.socket, connection: Connection, tls: ssl.SSLContext | None) -> None:
    """Shake hands, where that is to be done."""
    loop = asyncio.get_running_loop()
    limit_s = connection.connections.settings.header_s if tls else None
    try:
        await loop.connect_accepted_socket(lambda: connection, sock, ssl=tls, ssl_handshake_timeout=limit_s)
    except OSError:
        # What is no TLS, or none that we speak, or has hung up.
        connection.connections.gone(connection)
        sock.close()
    except asyncio.CancelledError:
        sock.close()
        raise
    finally:
        connection.opening = None


async def _look(connections: Connections) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        connections.look()


class _ServerLog(logging.Logger):
    """The log of aiohttp's server: requests that could not be read are counted, and what failed is told without what it was about."""

    def __init__(self, connections: Connections) -> None:
        super().__init__("federator.http")
        self.parent = logging.getLogger()
        self.addFilter(self._without_content)
        self._connections = connections

    def _without_content(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            address = str(record.args[0]) if isinstance(record.args, tuple) and record.args else "unknown"
            self._connections.unreadable.note(address, self._connections.now())
            return False
        if error is not None:
            where = "".join(traceback.format_tb(error.__traceback__))
            record.msg, record.args = "a connection failed with %s\n%s", (type(error).__name__, where)
            record.exc_info = record.exc_text = None
        return True

"""Tunnels into running jobs: two WebSockets, of a person and of the job's agent, coupled here.

Nothing is kept in between: a frame is read only once the one before it was taken by the other side, so who does not read stops who writes.
Pings go to both sides and ask for no answer, since a side that waits to be read from gives none; what is dead is found by the connection itself.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
from aiohttp import WebSocketError, WSCloseCode, WSMessage, WSMsgType, web

from federator.api.attempts import refuse_array
from federator.api.exchange import Call
from federator.api.problems import STARTED
from federator.control.administration.tunnels import TunnelTarget
from federator.kernel.errors import FederatorError, Invalid, NotFound, TooMany, Transient, Unavailable
from federator.kernel.tasks import cancel_and_wait
from federator.settings import LimitSettings
from federator.telemetry import METRICS
from federator.wire import link, tunnel

REQUEST_S = 10.0
"""Real seconds for which a client's first frame is waited for."""
DIAL_S = 15.0
"""Real seconds for which the agent is."""
CLOSE_S = 2.0
FLUSH_S = 20.0
"""Real seconds for which a side may take what was sent to it before; then its connection is cut."""
FLUSHED_S = 0.1
"""Real seconds between looks whether it has."""
AGAIN_S = 1.0
CLOSED = WSMessage(WSMsgType.CLOSED, None, None)
AGENT_GONE, CLIENT_GONE = "the connection to the job's agent was lost", "the client has left"
FROM_CLIENT = frozenset({tunnel.STDIN, tunnel.RESIZE, tunnel.CLOSE})
FROM_AGENT = frozenset({tunnel.STDOUT, tunnel.STDERR, tunnel.END, tunnel.CLOSE})
"""Channels that each side may speak on; frames of others are dropped."""


class TunnelQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rank of the job."""

    rank: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0


class Tunnels:
    """All that are open, and those whose agent is still to dial."""

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.present: Counter[str] = Counter()
        self._awaited: dict[str, tuple[str, asyncio.Future[Tunnel]]] = {}
        self._open: set[Tunnel] = set()
        self.idle_s = limits.tunnel_idle_s

    @contextlib.contextmanager
    def place(self, person: str, member: str) -> Iterator[None]:
        """Hold a place. Raises `TooMany`."""
        limits = self.limits
        both = ((f"user {person}", limits.tunnels_each, "each"), (member, limits.tunnels_agent, "agent"))
        for who, most, name in both:
            if self.present[who] >= most:
                raise TooMany(
                    f"{who} has {most} tunnels into jobs open",
                    retry_after_s=AGAIN_S,
                    remedy=f"close some, or have limits.tunnels_{name} raised",
                )
        keys = [who for who, _, _ in both]
        self.present.update(keys)
        try:
            yield
        finally:
            self.present.subtract(keys)
            self.present = +self.present

    @contextlib.contextmanager
    def awaited(self, member: str) -> "Iterator[tuple[str, asyncio.Future[Tunnel]]]":
        """A name by which this member's agent finds the tunnel, once, and what it brings."""
        name = secrets.token_urlsafe(24)
        came: asyncio.Future[Tunnel] = asyncio.get_running_loop().create_future()
        self._awaited[name] = member, came
        try:
            yield name, came
        except BaseException:
            if came.done():  # it came at the last moment, and nobody waits any more
                came.result().over.set()
            raise
        finally:
            self._awaited.pop(name, None)
            came.cancel()

    def claim(self, name: str, member: str) -> "asyncio.Future[Tunnel]":
        """What waits for that member under that name. Raises `NotFound`."""
        found = self._awaited.get(name)
        if found is None or found[0] != member:
            raise NotFound("no tunnel of that name waits for this member")
        del self._awaited[name]
        return found[1]

    @contextlib.contextmanager
    def opened(self, each: "Tunnel") -> Iterator[None]:
        """It is one of those that are open."""
        self._open.add(each)
        METRICS.set("federator_tunnels", len(self._open))
        try:
            yield
        finally:
            self._open.discard(each)
            METRICS.set("federator_tunnels", len(self._open))

    def close(self) -> None:
        """End all of them."""
        for each in self._open:
            each.stop("the dispatcher stops")


class Tunnel:
    """Two ends. The agent's is there first; `over` is when both are done with."""

    def __init__(self, agent: web.WebSocketResponse) -> None:
        self.agent = agent
        self.over = asyncio.Event()
        self._stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._moved_s = asyncio.get_running_loop().time()
        self._told = False
        """The client has been sent the job's own end."""

    def stop(self, why: str) -> None:
        """Have it end."""
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def couple(self, client: web.WebSocketResponse, idle_s: float) -> tuple[str, bool]:
        """Pass on what comes, both ways, until one side has closed, nothing has come for so long, or it is told to stop. How it ended, and whether the client knows."""
        tasks: list[asyncio.Future[str]] = [
            asyncio.ensure_future(self._carry(self.agent, client)),
            asyncio.ensure_future(self._carry(client, self.agent)),
            asyncio.ensure_future(_pinged(self.agent, AGENT_GONE)),
            asyncio.ensure_future(_pinged(client, CLIENT_GONE)),
            asyncio.ensure_future(self._idle(idle_s)),
            self._stopped,
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(each for each in tasks if each in done).result(), self._told
        finally:
            await cancel_and_wait(*tasks)

    async def _carry(self, source: web.WebSocketResponse, target: web.WebSocketResponse) -> str:
        """Pass on one direction to its end; how it ended."""
        is_agent = source is self.agent
        source_is_gone, target_is_gone = (AGENT_GONE, CLIENT_GONE) if is_agent else (CLIENT_GONE, AGENT_GONE)
        while (message := await _received(source)).type is WSMsgType.BINARY:
            frame: bytes = message.data
            channel = frame[0] if frame else None
            if channel not in (FROM_AGENT if is_agent else FROM_CLIENT):
                continue
            self._moved_s = asyncio.get_running_loop().time()
            METRICS.count("federator_tunnel_bytes_total", len(frame), of="agent" if is_agent else "client")
            end = tunnel.read_end(frame) if channel == tunnel.END else None
            try:
                await target.send_bytes(frame if end is None else tunnel.end_frame(end))
            except ConnectionError:
                return target_is_gone
            if end is not None:
                self._told = True
                return end.error or ("closed" if end.exit_code is None else f"exit code {end.exit_code}")
        if isinstance(message.data, WebSocketError) and message.data.code == WSCloseCode.MESSAGE_TOO_BIG:
            return f"a frame was longer than {tunnel.MAX_FRAME_BYTES} bytes"
        return source_is_gone

    async def _idle(self, idle_s: float) -> str:
        while True:
            left_s = self._moved_s + idle_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return f"nothing has come through it for {idle_s:g} s"
            await asyncio.sleep(left_s)


async def _pinged(socket: web.WebSocketResponse, gone: str) -> str:
    """Until that side cannot be written to. Each has a task of its own: a ping may have to wait."""
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.sleep(tunnel.PING_S)
            await socket.ping()
    return gone


async def _received(source: web.WebSocketResponse) -> WSMessage:
    """The next message; that it is closed, too, where a ping could not be answered."""
    try:
        return await source.receive()
    except ConnectionError:
        return CLOSED


async def enter(call: Call) -> web.StreamResponse:
    """A person's end: what it is for, the agent's end, then both coupled. Errors before the upgrade are answers, later ones come as the tunnel's end."""
    core, tunnels = call.core, call.request.app[TUNNELS]
    await refuse_array(call, "exec")
    target = core.tunnels.target(call.job, call.query(TunnelQuery).rank)
    core.hub.require_tunnels(target.member)
    core.sweeper.retention.refuse_line(call.caller.name)
    with tunnels.place(call.caller.name, target.member):
        client = _socket()
        await client.prepare(call.request)
        call.request[STARTED] = client
        try:
            request = await _first(client)
            async with core.tunnels.accounted(call.caller, target, request) as account:
                made = await _dialled(call, tunnels, target, request)
                account.how, told = await _coupled(tunnels, made, client)
            end = None if told else tunnel.End(error=account.how, lost=True)
        except FederatorError as error:
            end = tunnel.End(error=error.describe(), lost=isinstance(error, Transient))
        await _finish(call.request, client, end)
    return client


async def _finish(request: web.Request, socket: web.WebSocketResponse, end: tunnel.End | None) -> None:
    """Say how it ended, unless the job's own side has, and close; who does not take it in time is cut off, since a close is sent only after all else."""
    transport = request.transport
    try:
        async with asyncio.timeout(FLUSH_S):
            with contextlib.suppress(ConnectionError):
                if end is not None:
                    await socket.send_bytes(tunnel.end_frame(end))
            await socket.close(drain=False)  # a wait of aiohttp's that was cancelled spoils the next one
            await _flushed(transport)
    except TimeoutError:
        if transport is not None:
            transport.abort()


async def _flushed(transport: asyncio.Transport | None) -> None:
    while True:
        if transport is None or not transport.get_write_buffer_size():
            return
        await asyncio.sleep(FLUSHED_S)


async def _first(client: web.WebSocketResponse) -> tunnel.Request:
    try:
        async with asyncio.timeout(REQUEST_S):
            message = await client.receive()
    except TimeoutError:
        raise Invalid(f"no request came within {REQUEST_S:g} s", field="$") from None
    if message.type is not WSMsgType.TEXT:
        raise Invalid("the first frame is not text", field="$", remedy="send the request as JSON text")
    try:
        return tunnel.read_request(message.data)
    except msgspec.DecodeError as error:
        text, _, path = str(error).partition(" - at `")
        raise Invalid(text, field=path.rstrip("`") or "$") from None


async def _dialled(call: Call, tunnels: Tunnels, target: TunnelTarget, request: tunnel.Request) -> Tunnel:
    """Have the agent dial. Raises `Unavailable` when it does not."""
    with tunnels.awaited(target.member) as (name, came):
        call.core.hub.dial(target.member, link.Dial(name, target.placement, target.rank, request))
        try:
            async with asyncio.timeout(DIAL_S):
                return await asyncio.shield(came)
        except TimeoutError:
            raise Unavailable(
                f"the agent of {target.site} did not dial back within {DIAL_S:g} s",
                remedy="try again; federator site show says when it was last heard",
            ) from None


async def _coupled(tunnels: Tunnels, made: Tunnel, client: web.WebSocketResponse) -> tuple[str, bool]:
    """Couple both ends until one is gone; how it ended, and whether the client was told."""
    try:
        with tunnels.opened(made):
            return await made.couple(client, tunnels.idle_s)
    finally:
        made.over.set()


async def meet(call: Call) -> web.StreamResponse:
    """An agent's end of a tunnel that waits for it."""
    came = call.request.app[TUNNELS].claim(call.path("tunnel"), call.session.member)
    agent = _socket()
    await agent.prepare(call.request)
    call.request[STARTED] = agent
    if not came.done():
        made = Tunnel(agent)
        came.set_result(made)
        await made.over.wait()
    await _finish(call.request, agent, None)
    return agent


def _socket() -> web.WebSocketResponse:
    return web.WebSocketResponse(max_msg_size=tunnel.MAX_FRAME_BYTES, compress=False, timeout=CLOSE_S)


TUNNELS = web.AppKey("tunnels", Tunnels)
"""Where the application keeps them."""

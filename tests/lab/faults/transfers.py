"""What goes beside an agent's session: logs and outputs up, outputs of other jobs down, over links that are thin, metered, torn, and damage what they carry.

At one end is production's `federator_agent.bulk.Bulk`, at the other production's handlers; what stands between them in place of HTTP is here. The bytes that really
go over a link are counted here, by nobody's word, and judged by what the site file allows of the link.
"""

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import IO, Any, NamedTuple, cast

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from federator.api import agents, output_uploads, placement_inputs
from federator.api.exchange import Call, _range_begin, read_query
from federator.api.feeds import Feeds
from federator.kernel.errors import Unavailable
from federator.wire.link import RESUMING
from federator_agent.link_use import HOUR_S, SMALL_BYTES
from federator_agent.logs import FIRST_BYTES
from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.dispatchers import Dispatcher
from tests.lab.faults.fault_profile import Trouble
from tests.lab.faults.plan import LinkPlan
from tests.lab.faults.scene import Scene

CHUNK_BYTES = 2**15
ORIGIN = "http://dispatcher"
HEAD_BYTES = 300
"""Of each request and each answer, as the product counts it."""
SPARE = 1.1
"""What was left unused for some minutes may be used at once, and clocks run up to a two-hundredth fast."""
CLOCK_SET_S = 60.0
"""A clock that was set in the middle of a transfer."""
_ROUTES: tuple[tuple[str, re.Pattern[str], Any, type[msgspec.Struct] | None], ...] = (
    ("PUT", re.compile(r"/logs/(?P<placement>[^/]+)/(?P<rank>\d+)"), agents.append_log, agents.LogQuery),
    (
        "PUT",
        re.compile(r"/outputs/(?P<placement>[^/]+)"),
        output_uploads.put_outputs,
        output_uploads.OutputQuery,
    ),
    ("GET", re.compile(r"/inputs/(?P<placement>[^/]+)"), placement_inputs.found, None),
    (
        "GET",
        re.compile(r"/inputs/(?P<placement>[^/]+)/(?P<job>[^/]+)/(?P<hash>[^/]+)"),
        placement_inputs.archive,
        None,
    ),
)


class LinkMeter:
    """The link of one member, over all lives of its agent: how fast it is, what may go over it, and what does."""

    def __init__(self, member: str, plan: LinkPlan, clock: MachineClock, scene: Scene) -> None:
        self._member, self._plan, self._clock = member, plan, clock
        self._loop, self._truth = scene.loop, scene.truth
        self._logs: deque[tuple[float, int]] = deque()
        self._lives_s: deque[float] = deque()

    def begins(self) -> None:
        """Another life of its agent."""
        self._lives_s.append(self._loop.time())

    def way_s(self, count: int) -> float:
        """How long so many bytes take."""
        return count / self._plan.bytes_s

    def logs(self, count: int) -> None:
        """So many bytes of logs have gone over it: half of the budget is theirs."""
        budget = self._plan.limits.budget
        if budget is None:
            return
        now_s = self._loop.time()
        self._logs.append((now_s, count))
        while self._logs[0][0] <= now_s - HOUR_S:
            self._logs.popleft()
        lives = sum(each > now_s - HOUR_S for each in self._lives_s) + 1
        used = sum(each for _, each in self._logs)
        # What is sent at once is sent whole when there is anything left, and a new life knows nothing of what the last one used.
        if used > budget / 2 * SPARE + lives * (FIRST_BYTES + 2 * HEAD_BYTES):
            self._truth.find(
                0, f"{self._member} has sent {used} bytes of logs in an hour, of a budget of {budget}"
            )

    def bulk(self, size: int) -> None:
        """A part of something of that size has gone over it."""
        hours = self._plan.limits.bulk_hours
        if not hours or size <= SMALL_BYTES:
            return
        now_at = self._clock.now()
        offs_s = (-CLOCK_SET_S, 0.0, CLOCK_SET_S)
        if not any(each.contains(now_at + off_s) for each in hours for off_s in offs_s):
            self._truth.find(0, f"{self._member} moves something of {size} bytes outside of its hours")


class Bearer(NamedTuple):
    """What `Bulk` asks of the session."""

    ticket: Callable[[], Any]
    takes: frozenset[str] = frozenset({RESUMING})

    @property
    def addresses(self) -> "Bearer":
        """Of the dispatcher."""
        return self

    @property
    def present(self) -> str:
        """The one in use."""
        return ORIGIN

    @property
    def way(self) -> "Bearer":
        """No proxy, no authorities."""
        return self

    def options(self, _url: str) -> dict[str, Any]:
        """None."""
        return {}

    def fault(self, _error: BaseException, _url: str) -> str:
        """Nothing is known of it."""
        return ""


class Answer:
    """An answer on its way to the agent."""

    def __init__(self, body: bytes, status: int, passing: "Http", kind: str) -> None:
        self.status, self.content_length = status, len(body)
        self._body, self._passing, self._kind = body, passing, kind

    @property
    def content(self) -> "Answer":
        """Itself, part by part."""
        return self

    async def read(self) -> bytes:
        """All of it."""
        return b"".join([part async for part in self.iter_chunked(CHUNK_BYTES)])

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """As it comes. Raises `ConnectionResetError`."""
        for begin in range(0, len(self._body), size):
            yield await self._passing.carry(self._body[begin : begin + size], self._kind, len(self._body))


class Http:
    """In place of aiohttp's client: requests of one life of an agent to whoever its session is with."""

    def __init__(self, member: str, server: Callable[[], Dispatcher], meter: LinkMeter, scene: Scene) -> None:
        self._member, self._server, self._meter = member, server, meter
        self._network, self._profile = scene.network, scene.profile
        self._chance = scene.chance(f"transfers of {member} {scene.loop.time()}")

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        data: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answer]:
        """Ask, and be answered. Raises `ConnectionResetError` where it is torn, and what the dispatcher does."""
        path = url.removeprefix(f"{ORIGIN}/agent/v1")
        kind, parts, torn = path.split("/")[1], list[bytes](), False
        said = re.search(r"size=(\d+)", path)
        try:
            async for part in _parts(data):
                size = int(said[1]) if said else len(part)
                parts.append(await self.carry(part, kind, size))
        except ConnectionResetError:
            torn = True
        server = self._server()
        if kind == "logs":
            self._meter.logs(2 * HEAD_BYTES)
        asked = partial(_handled, server, self._member, method, path, dict(headers or {}), parts, torn=torn)
        status, body = await self._network.ask(self._member, server, asked)
        yield Answer(body, status, self, kind)

    async def carry(self, part: bytes, kind: str, size: int) -> bytes:
        """A part of something of that size goes over the link, and may be damaged by it. Raises `ConnectionResetError` where it is torn."""
        await asyncio.sleep(self._meter.way_s(len(part)))
        if kind == "logs":
            self._meter.logs(len(part))
        else:
            self._meter.bulk(size)
        if self._profile.draw(self._chance, self._member, Trouble.TEAR):
            raise ConnectionResetError("torn")
        if (
            kind != "logs"
            and self._profile.draw(self._chance, self._member, Trouble.DAMAGE)
            and len(part) > 4
        ):
            at = self._chance.randrange(2, len(part))
            return part[:at] + bytes([part[at] ^ 0xFF]) + part[at + 1 :]
        return part


async def _parts(data: bytes | AsyncIterator[bytes] | None) -> AsyncIterator[bytes]:
    if isinstance(data, bytes):
        for begin in range(0, len(data), CHUNK_BYTES):
            yield data[begin : begin + CHUNK_BYTES]
    elif data is not None:
        async for part in data:
            yield part


class _Call(Call):
    """A request whose body has come already, as far as it has."""

    arrived: Sequence[bytes] = ()
    torn = False
    sent: bytes | None = None

    async def parts(self) -> AsyncIterator[bytes]:
        """What has come of the body. Raises `ConnectionResetError` where that is not all."""
        for part in self.arrived:
            yield part
        if self.torn:
            raise ConnectionResetError("torn")

    def transfer(self) -> AbstractContextManager[None]:
        """There is always a place."""
        return contextlib.nullcontext()

    async def send(
        self, file: IO[bytes], content_type: str, headers: dict[str, str] | None = None
    ) -> web.StreamResponse:
        """Keep the answer."""
        del content_type, headers
        whole = file.read()
        begin = _range_begin(self.request, len(whole))
        self.sent = whole[begin:]
        return web.StreamResponse(status=206 if begin else 200)


class _NoFeeds:
    """Nobody follows."""

    def ring(self, job: str) -> None:
        """Nobody hears it."""


async def _handled(
    server: Dispatcher,
    ticket: str,
    method: str,
    path: str,
    headers: dict[str, str],
    parts: Sequence[bytes],
    *,
    torn: bool,
) -> tuple[int, bytes]:
    """Status and body of the dispatcher's answer."""
    core = server.serving()
    session = core.hub.session_of(headers["Authorization"].removeprefix("Bearer "))
    for verb, pattern, handler, query in _ROUTES:
        found = pattern.fullmatch(path.partition("?")[0])
        if verb == method and found is not None:
            request = make_mocked_request(method, path, headers=headers, match_info=found.groupdict())
            call = _Call(
                core, cast("Feeds", _NoFeeds()), request, of_session=session, given=read_query(request, query)
            )
            call.arrived, call.torn = parts, torn
            try:
                answer = await handler(call)
            except ConnectionResetError:
                raise Unavailable("the connection is torn") from None
            if call.sent is not None:
                return answer.status, call.sent
            return 200, msgspec.json.encode(answer) if isinstance(answer, msgspec.Struct) else b""
    raise AssertionError(f"{method} {path} is no route: {json.dumps(headers)}")

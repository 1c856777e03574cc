"""The transport on an event loop: aiohttp, with a pool of connections for what goes on at the same time."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

import aiohttp

from federator.client import transport as shared
from federator.client.transport import BROKE, Request, Response, Transport
from federator.kernel.errors import Unavailable
from federator.kernel.tasks import cancel_and_wait
from federator.retry import Sleeper

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AT_ONCE = 4
"""Requests for one call: enough to hide the waits in between, and few enough to leave others their turn."""
MOST_CONNECTIONS = 100
"""More than the tunnels that a person may have, so that it is the dispatcher that says when there are too many."""


class PooledTransport(Transport):
    """Requests of many tasks at once."""

    _session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def waiting(self) -> Sleeper:
        """As the event loop does, which may be on virtual time."""
        return Sleeper(asyncio.sleep, asyncio.get_running_loop().time)

    async def offload(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it in a thread."""
        return await asyncio.to_thread(work, *args, **kwargs)

    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
        """The answers for all of these, in their order; `AT_ONCE` at a time. The first error ends the rest."""
        left, answers = iter(enumerate(items)), dict[int, R]()

        async def take() -> None:
            for number, item in left:
                answers[number] = await work(item)

        takers = [asyncio.ensure_future(take()) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*takers)
        finally:
            await cancel_and_wait(*takers)
        return [answers[number] for number in sorted(answers)]

    @asynccontextmanager
    async def _exchange(self, asked: int, request: Request) -> AsyncIterator[Response]:
        server = self._servers[asked]
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=shared.CONNECT_S, sock_read=request.silence_s
        )
        sent = self._live_session().request(
            request.method,
            server + request.path,
            params=request.query,
            data=request.body,
            headers=request.headers,
            timeout=timeout,
            allow_redirects=False,
            **self._way.options(server),
        )
        with self._translated(asked):
            response = await self._answered(asked, sent)
        async with response:
            yield _PooledAnswer(response, lambda: self._translated(asked))

    async def socket(
        self, path: str, *, query: Mapping[str, str], silence_s: float, most_bytes: int
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket, which the caller closes. It is taken for lost when nothing, not even a ping, comes for `silence_s`. Raises the error that the server named, or `Unavailable`."""

        async def once() -> aiohttp.ClientWebSocketResponse:
            asked, credential = self._present, await self._credential()
            server = self._servers[asked]
            try:
                with self._translated(asked):
                    async with asyncio.timeout(shared.CONNECT_S):
                        return await self._live_session().ws_connect(
                            server + path,
                            params=query,
                            headers=credential,
                            timeout=aiohttp.ClientWSTimeout(ws_receive=silence_s, ws_close=shared.SILENT_S),
                            max_msg_size=most_bytes,
                            **self._way.options(server),
                        )
            except aiohttp.WSServerHandshakeError as error:
                # What is wrong stands in the answer, which this error does not have.
                async with self.open("GET", path, query=query):
                    raise Unavailable(f"no WebSocket can be opened at {server}: {error.message}") from error

        return await self.patiently(once)

    @contextmanager
    def _translated(self, asked: int) -> Iterator[None]:
        """aiohttp's errors as ours."""
        try:
            yield
        except aiohttp.InvalidURL as error:
            raise self._no_address(asked) from error
        except aiohttp.WSServerHandshakeError:
            raise
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ssl.SSLError) as error:
            number = error.errno if isinstance(error, aiohttp.ClientConnectorError) else 0
            broke = isinstance(error, aiohttp.ClientPayloadError)
            why = os.strerror(number).lower() if number and number > 0 else BROKE if broke else str(error)
            hung_up = isinstance(error, aiohttp.ServerDisconnectedError)
            raise self._lost(asked, error, why, hung_up=hung_up) from error

    async def _answered(
        self, asked: int, request: Coroutine[Any, Any, aiohttp.ClientResponse]
    ) -> aiohttp.ClientResponse:
        """The answer. One of several dispatchers that is silent while another leads is given up."""
        answer = asyncio.ensure_future(request)
        try:
            while not (await asyncio.wait((answer,), timeout=shared.SILENT_S))[0]:
                if server := await self._another_leads(asked):
                    raise TimeoutError(f"it is silent, and {server} leads")
            return await answer
        finally:
            answer.cancel()

    async def _leads(self, server: str) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
            timeout = aiohttp.ClientTimeout(total=shared.SILENT_S)
            options = self._way.options(server)
            async with self._live_session().get(f"{server}/readyz", timeout=timeout, **options) as response:
                return response.status < 400
        return False

    def _live_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=MOST_CONNECTIONS))
        return self._session


class _PooledAnswer(Response):
    def __init__(self, response: aiohttp.ClientResponse, translated: Callable[[], Any]) -> None:
        self.status = response.status
        self._response = response
        self._translated = translated

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def chunks(self) -> AsyncIterator[bytes]:
        with self._translated():
            async for chunk in self._response.content.iter_any():
                yield chunk

"""HTTP underneath the SDK: one session, errors by name, and patience while the dispatcher restarts.

Only calls that may be repeated without harm are repeated. A submission is one of them, because it always carries a client
id: the server answers a repeated one with what the first one did.

Of several dispatchers one leads. The others say so, and the next address is asked; whichever answers is asked first from then on.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from federator.client.faults import error_in
from federator.kernel.errors import Bug, FederatorError, NotLeading, Transient, Unavailable, Untrusted
from federator.kernel.way import Way
from federator.retry import Backoff, retried
from federator.wire.jsontext import read

T = TypeVar("T")
R = TypeVar("R")
Bearer = Callable[[], Awaitable[str]]
"""Answers a token that is good now: it is asked before each request, for one that is signed in with ends sooner than what it is used for."""
BACKOFF = Backoff(0.2, 3.0)
CONNECT_S = 10.0
TIME_HEADER = "X-Federator-Time"
SILENT_S = 3.0
"""Of several dispatchers, one that is silent for so long may not be the one that leads any more."""
ANSWER_S = 120.0
"""Longest silence of a server that has a request; followed streams are pinged or reopened well before."""


class Transport:
    """Requests to a dispatcher, or to that of several which leads: `server` is one address, or some with commas in between. `patience_s` is for how long a call that may be repeated is repeated while nobody answers.

    `on_wait` is told what is wrong each time a call is about to be repeated. `way`: whose certificates are believed, and through which proxy it goes.
    """

    def __init__(
        self,
        server: str,
        token: "str | Bearer | None",
        *,
        patience_s: float,
        on_wait: Callable[[FederatorError], None] | None = None,
        way: Way | None = None,
    ) -> None:
        self._way = way or Way()
        self._servers = [each.strip().rstrip("/") for each in server.split(",") if each.strip()]
        self._present = 0
        self.patience_s = patience_s
        self.token = token
        self._on_wait = on_wait
        self._session: aiohttp.ClientSession | None = None
        self._ahead_s = 0.0

    @property
    def server(self) -> str:
        """The address that is asked now."""
        return self._servers[self._present]

    def now(self) -> float:
        """The dispatcher's time by its last answer: demonstrations run on a scaled clock, and people's clocks are wrong."""
        return time.time() + self._ahead_s

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> T:
        """One request with a JSON answer. Raises the error that the server named, or `Unavailable`."""

        async def once() -> T:
            async with self.open(method, path, query=query, body=body, headers=headers) as response:
                return decode(await response.read(), answer, f"{method} {path}")

        return await self.patiently(once, only_if_refused=not repeatable)

    async def put_file(self, path: str, file: Path) -> None:
        """Send a file as the body; the path names its content, so repeating is harmless."""

        async def once() -> None:
            with file.open("rb") as content:
                async with self.open("PUT", path, body=content, headers={"Content-Type": "application/gzip"}):
                    pass

        await self.patiently(once)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        endless: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer to be read as it comes; `endless` streams may be silent. A connection that breaks raises `Unavailable`."""
        sent = {"Accept": "application/json", **(headers or {})}
        token = await self.token() if callable(self.token) else self.token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S, sock_read=None if endless else ANSWER_S
        )
        asked = self._present
        request = self._live_session().request(
            method,
            self.server + path,
            params=query,
            data=body,
            headers=sent,
            timeout=timeout,
            **self._way.options(self.server),
        )
        try:
            async with await self._answered(asked, request) as response:
                if TIME_HEADER in response.headers:
                    self._ahead_s = float(response.headers[TIME_HEADER]) - time.time()
                if response.status >= 400:
                    raise error_in(response.status, await response.read(), f"{method} {path}")
                yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ssl.SSLError) as error:
            unreachable = self._unreachable(error)
            self._leave(asked)
            raise unreachable from error
        except NotLeading:
            self._leave(asked)
            raise

    async def _answered(
        self, asked: int, request: Coroutine[Any, Any, aiohttp.ClientResponse]
    ) -> aiohttp.ClientResponse:
        """The answer. One of several dispatchers that is silent while another leads is given up: it hangs, or has lost its machine."""
        answer = asyncio.ensure_future(request)
        try:
            while not (await asyncio.wait((answer,), timeout=SILENT_S))[0]:
                for number, server in enumerate(self._servers):
                    if number != asked and await self._leads(server):
                        raise TimeoutError(f"it is silent, and {server} leads")
            return await answer
        finally:
            answer.cancel()

    async def _leads(self, server: str) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
            timeout = aiohttp.ClientTimeout(total=SILENT_S)
            options = self._way.options(server)
            async with self._live_session().get(f"{server}/readyz", timeout=timeout, **options) as response:
                return response.status < 400
        return False

    async def patiently(self, once: Callable[[], Awaitable[R]], *, only_if_refused: bool = False) -> R:
        """Repeat while the failure is a transient one and `patience_s` is not over; every address is asked before the first pause.

        `only_if_refused`: only what a dispatcher that does not lead has refused to do is repeated.
        """
        return await retried(
            partial(self._of_each, once, only_if_refused=only_if_refused),
            BACKOFF,
            on=NotLeading if only_if_refused else Transient,
            patience_s=self.patience_s,
            asked_s=_asked_s,
            failed=self.tell,
        )

    async def _of_each(self, once: Callable[[], Awaitable[R]], *, only_if_refused: bool) -> R:
        """Ask one address after another until one answers. Of several dispatchers another may lead, or have a better certificate."""
        elsewhere = (NotLeading,) if only_if_refused else (Unavailable,)
        for _ in self._servers[1:]:
            with suppress(Untrusted, *elsewhere):
                return await once()
        return await once()

    async def pause(self, failures: int) -> float:
        """Wait before a stream is opened again after so many failures in a row; answers the seconds waited."""
        pause_s = BACKOFF.pause_s(failures)
        await asyncio.sleep(pause_s)
        return pause_s

    def _leave(self, asked: int) -> None:
        """Ask the next address from now on, unless somebody has found that out already."""
        if self._present == asked:
            self._present = (asked + 1) % len(self._servers)

    def tell(self, error: BaseException) -> None:
        """Say that something is about to be repeated, and why."""
        if self._on_wait is not None and isinstance(error, FederatorError):
            self._on_wait(error)

    def _live_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))
        return self._session

    def _unreachable(self, error: BaseException) -> FederatorError:
        fault = self._way.fault(error, self.server)
        if fault is not None:
            return fault
        why = str(error) or type(error).__name__
        if isinstance(error, aiohttp.InvalidURL):
            return Unavailable(
                f"{self.server!r} is not the address of a server",
                remedy="write for example http://127.0.0.1:7070",
            )
        if isinstance(error, aiohttp.ClientConnectorError) and error.errno and error.errno > 0:
            why = os.strerror(error.errno).lower()
        return Unavailable(
            f"cannot reach the dispatcher at {self.server}: {why}",
            remedy="does it speak TLS? Then write https://"
            if isinstance(error, aiohttp.ServerDisconnectedError) and self.server.startswith("http:")
            else "is `federator serve` running there?",
        )


def _asked_s(error: BaseException) -> float:
    """The pause that a dispatcher asks for; one that does not answer asks for none."""
    return error.retry_after_s if isinstance(error, Transient) and not isinstance(error, Unavailable) else 0.0


def decode(body: bytes, answer: type[T], what: str) -> T:
    """A JSON answer as the record it must be; an empty one only where nothing is expected."""
    if answer is type(None) and not body.strip():
        return None
    try:
        return read(body, answer)
    except msgspec.DecodeError as error:
        raise Bug(
            f"{what} was answered with something unexpected: {error}",
            remedy="do client and server have the same version?",
        ) from None

"""HTTP underneath the SDK: one session, errors by name, and patience while the dispatcher restarts.

Only calls that may be repeated without harm are repeated. A submission is one of them, because it always carries a client
id: the server answers a repeated one with what the first one did.
"""

import asyncio
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from federator.client.faults import error_in
from federator.kernel.errors import Bug, FederatorError, Transient, Unavailable

T = TypeVar("T")
R = TypeVar("R")
FIRST_DELAY_S = 0.2
MAX_DELAY_S = 3.0
CONNECT_S = 10.0
TIME_HEADER = "X-Federator-Time"
ANSWER_S = 120.0
"""Longest silence of a server that has a request; followed streams are pinged or reopened well before."""


class Transport:
    """Requests to one dispatcher. `patience_s` is for how long a call that may be repeated is repeated while nobody answers.

    `on_wait` is told what is wrong each time a call is about to be repeated.
    """

    def __init__(
        self,
        server: str,
        token: str | None,
        *,
        patience_s: float,
        on_wait: Callable[[FederatorError], None] | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        self.patience_s = patience_s
        self._token = token
        self._on_wait = on_wait
        self._session: aiohttp.ClientSession | None = None
        self._ahead_s = 0.0

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

        return await self.patiently(once) if repeatable else await once()

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
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S, sock_read=None if endless else ANSWER_S
        )
        try:
            async with self._live_session().request(
                method, self.server + path, params=query, data=body, headers=sent, timeout=timeout
            ) as response:
                if TIME_HEADER in response.headers:
                    self._ahead_s = float(response.headers[TIME_HEADER]) - time.time()
                if response.status >= 400:
                    raise error_in(response.status, await response.read(), f"{method} {path}")
                yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ssl.SSLError) as error:
            raise self._unreachable(error) from error

    async def patiently(self, once: Callable[[], Awaitable[R]]) -> R:
        """Repeat while the failure is a transient one and `patience_s` is not over."""
        until = time.monotonic() + self.patience_s
        delay_s = FIRST_DELAY_S
        while True:
            try:
                return await once()
            except Transient as error:
                pause_s = max(delay_s, error.retry_after_s if not isinstance(error, Unavailable) else 0.0)
                if time.monotonic() + pause_s > until:
                    raise
                self.tell(error)
            await asyncio.sleep(pause_s * random.uniform(0.7, 1.0))
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    async def pause(self, spent_s: float) -> float:
        """Wait before a stream is opened again, longer the longer it has been; answers the seconds waited."""
        delay_s = min(FIRST_DELAY_S + spent_s / 2, MAX_DELAY_S)
        await asyncio.sleep(delay_s * random.uniform(0.7, 1.0))
        return delay_s

    def tell(self, error: FederatorError) -> None:
        """Say that something is about to be repeated, and why."""
        if self._on_wait is not None:
            self._on_wait(error)

    def _live_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))
        return self._session

    def _unreachable(self, error: BaseException) -> Unavailable:
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
            remedy="is `federator serve` running there?",
        )


def decode(body: bytes, answer: type[T], what: str) -> T:
    """A JSON answer as the record it must be; an empty one only where nothing is expected."""
    if answer is type(None) and not body.strip():
        return None
    try:
        return msgspec.json.decode(body, type=answer)
    except msgspec.DecodeError as error:
        raise Bug(
            f"{what} was answered with something unexpected: {error}",
            remedy="do client and server have the same version?",
        ) from None

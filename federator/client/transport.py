"""HTTP underneath the client: what a request carries, errors by name, and patience while the dispatcher restarts.

Only calls that may be repeated without harm are repeated. A submission is one of them, because it always carries a client
id: the server answers a repeated one with what the first one did.

Of several dispatchers one leads. The others say so, and the next address is asked; whichever answers is asked first from then on.

Two classes send the requests: `pooled.PooledTransport` with aiohttp on an event loop, and `blocking.BlockingTransport` with the standard library, for
commands and scripts, which start faster without an event loop. Both are used through `async` functions, so that each verb is written once: those of the
blocking one never suspend, and `blocking.finish` runs such a verb to its end.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple, ParamSpec, TypeVar

import msgspec

from federator.client.faults import error_in
from federator.client.progress import CountedFile, Tell
from federator.kernel.errors import (
    Bug,
    FederatorError,
    Invalid,
    NotLeading,
    Permanent,
    TooLarge,
    Transient,
    Unavailable,
    Untrusted,
)
from federator.kernel.route import Way
from federator.retry import Backoff, Sleeper, retried
from federator.wire.http import BlobLength
from federator.wire.jsontext import read

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Bearer = Callable[[], Awaitable[str]]
"""Answers a token that is good now: it is asked before each request, for one that is signed in with ends sooner than what it is used for."""
BACKOFF = Backoff(0.2, 3.0)
DEFAULT_SERVER = "http://127.0.0.1:7070"
CONNECT_S = 10.0
TIME_HEADER = "X-Federator-Time"
SILENT_S = 3.0
"""Of several dispatchers, one that is silent for so long may not be the one that leads any more."""
ANSWER_S = 120.0
"""Longest silence of a server that has a request; followed streams are pinged or reopened well before."""
ANSWER_BYTES = 2**28
"""Longest answer that is read as a whole; what is streamed has no limit here."""
BROKE = "the connection broke in the middle of an answer"
RESUMED_BYTES = 2**23
"""A file of fewer is sent again from its beginning."""
LINE_BYTES = 2**20
"""Longest line of a stream of lines."""


class Request(NamedTuple):
    """One request as it is sent. `silence_s`: how long the server may say nothing; None: a stream that may be silent."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | IO[bytes] | None
    silence_s: float | None

    @property
    def what(self) -> str:
        """What was asked for, in messages."""
        return f"{self.method} {self.path}"


class Response(ABC):
    """An answer that has begun; its body is read as it comes. A connection that breaks raises `Unavailable`."""

    status: int

    @abstractmethod
    def header(self, name: str) -> str:
        """A header by its name in any case; empty where it is not there."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""

    async def lines(self) -> AsyncIterator[bytes]:
        """The body's lines without their ends. Raises `TooLarge` for an endless one."""
        rest = b""
        async for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > LINE_BYTES:
                raise TooLarge(
                    f"a line of the answer has more than {LINE_BYTES} bytes, and no dispatcher writes one"
                )
        if rest:
            yield rest

    async def read(self) -> bytes:
        """The whole body. Raises `TooLarge` for one that no dispatcher sends."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise TooLarge(f"the answer has more than {ANSWER_BYTES >> 20} MiB", remedy="ask for less")
            parts.append(chunk)
        return b"".join(parts)


class Transport(ABC):
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
        self._token = token
        self._on_wait = on_wait
        self._ahead_s = 0.0

    @abstractmethod
    def _exchange(self, asked: int, request: Request) -> AbstractAsyncContextManager[Response]:
        """Send a request to the server of this number. Raises what `_lost` makes of a connection that cannot be made, or breaks."""

    @abstractmethod
    async def _leads(self, server: str) -> bool:
        """Whether this one of several dispatchers says within `SILENT_S` that it leads."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of all connections."""

    @abstractmethod
    def waiting(self) -> Sleeper:
        """How to wait here."""

    @abstractmethod
    async def offload(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what takes long on this machine, such as packing a folder, without holding up what else is under way."""

    @property
    def server(self) -> str:
        """The address that is asked now."""
        return self._servers[self._present]

    def now(self) -> float:
        """The dispatcher's time by its last answer: demonstrations run on a scaled clock, and people's clocks are wrong."""
        return time.time() + self._ahead_s

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, object] | None = None,
        sends: object = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> T:
        """One request with a JSON answer. Of the query, what is None or False is left out; `sends` is the body, as JSON. Raises the error that the server named, or `Unavailable`."""
        given, body = in_query(query or {}), None
        if sends is not None:
            body = json.dumps(msgspec.to_builtins(sends)).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}

        async def once() -> T:
            async with self.open(method, path, query=given, body=body, headers=headers) as response:
                return decode(await response.read(), answer, f"{method} {path}")

        return await self.patiently(once, only_if_refused=not repeatable)

    async def put_file(self, path: str, file: Path, size: int, tell: Tell | None = None) -> None:
        """Send a file of so many bytes as the body; the path names its content, so repeating is harmless, and what is large goes on where it was cut. `tell` hears how far it is."""
        if size < RESUMED_BYTES:
            await self.patiently(partial(self._put_rest, path, file, tell, size))
            return
        query = {"size": str(size)}

        async def once() -> None:
            try:
                begun = await self._put_part(path, query | {"offset": "0"}, b"", 0)
            except Invalid:  # an older dispatcher
                await self._put_rest(path, file, tell, size)
                return
            if begun < size:
                begun = await self._put_rest(path, file, tell, size, begun, query | {"offset": str(begun)})
            if begun < size:
                raise Unavailable(f"PUT {path}: it has not arrived as it is")

        await self.patiently(once)

    async def _put_rest(
        self,
        path: str,
        file: Path,
        tell: Tell | None,
        size: int,
        begun: int = 0,
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Send the file from that byte on; how much of it has come."""
        with file.open("rb") if tell is None else CountedFile(file, "uploading", tell) as content:
            content.seek(begun)
            return await self._put_part(path, query, content, size - begun)

    async def _put_part(
        self, path: str, query: Mapping[str, str], body: bytes | IO[bytes], length: int
    ) -> int:
        headers = {"Content-Type": "application/gzip", "Content-Length": str(length)}
        async with self.open("PUT", path, query=query, body=body, headers=headers) as answer:
            told = await answer.read()
        return decode(told, BlobLength, f"PUT {path}").length if query else 0

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        endless: bool = False,
    ) -> AsyncIterator[Response]:
        """An answer to be read as it comes; `endless` streams may be silent. A connection that breaks raises `Unavailable`."""
        sent = {"Accept": "application/json", **(headers or {}), **await self._credential()}
        request = Request(method, path, query or {}, sent, body, None if endless else ANSWER_S)
        asked = self._present
        try:
            async with self._exchange(asked, request) as answer:
                if at := answer.header(TIME_HEADER):
                    self._ahead_s = float(at) - time.time()
                if answer.status >= 400:
                    raise error_in(answer.status, await answer.read(), request.what)
                if answer.status >= 300:
                    raise self._elsewhere(answer)
                yield answer
        except NotLeading:
            self._leave(asked)
            raise

    async def _credential(self) -> dict[str, str]:
        """The header that says who asks."""
        token = await self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _elsewhere(self, answer: Response) -> FederatorError:
        """A redirection is not followed: the credential is for the address that was named."""
        to = answer.header("Location")[:200] or "an address that it does not name"
        return Permanent(f"{self.server} answers that it has moved to {to}", remedy="name that address")

    async def _another_leads(self, asked: int) -> str:
        """Which of the others leads, while the one that was asked is silent: it hangs, or has lost its machine. Empty: none."""
        for number, server in enumerate(self._servers):
            if number != asked and await self._leads(server):
                return server
        return ""

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
            waiting=self.waiting(),
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
        await self.sleep(pause_s)
        return pause_s

    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
        """The answers for all of these, in their order: one after the other, unless several requests may be under way."""
        return [await work(item) for item in items]

    async def sleep(self, seconds: float) -> None:
        """Wait this long."""
        await self.waiting().sleep(seconds)

    def _leave(self, asked: int) -> None:
        """Ask the next address from now on, unless somebody has found that out already."""
        if self._present == asked:
            self._present = (asked + 1) % len(self._servers)

    def tell(self, error: BaseException) -> None:
        """Say that something is about to be repeated, and why."""
        if self._on_wait is not None and isinstance(error, FederatorError):
            self._on_wait(error)

    def _lost(self, asked: int, error: Exception, why: str, *, hung_up: bool) -> FederatorError:
        """What to raise for a connection that could not be made or broke; the next address is asked from now on.

        `hung_up`: the server ended the connection in place of an answer.
        """
        server = self._servers[asked]
        self._leave(asked)
        if fault := self._way.fault(error, server):
            return fault
        no_tls = hung_up and server.startswith("http:")
        return Unavailable(
            f"cannot reach the dispatcher at {server}: {why or type(error).__name__}",
            remedy="does it speak TLS? Then write https://"
            if no_tls
            else "is `federator serve` running there?",
        )

    def _no_address(self, asked: int) -> FederatorError:
        return Unavailable(
            f"{self._servers[asked]!r} is not the address of a server",
            remedy="write for example http://127.0.0.1:7070",
        )


def _asked_s(error: BaseException) -> float:
    """The pause that a dispatcher asks for; one that does not answer asks for none."""
    return error.retry_after_s if isinstance(error, Transient) and not isinstance(error, Unavailable) else 0.0


def in_query(given: Mapping[str, object]) -> dict[str, str]:
    """Parameters as a query has them; what is None or False is left out."""
    wanted = {name: value for name, value in given.items() if value is not None and value is not False}
    return {name: "true" if value is True else str(value) for name, value in wanted.items()}


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

"""The transport without an event loop: the standard library's HTTP, one request at a time.

Why not the other one run to its end by asyncio: a command that asks one question spends two thirds of its time on importing aiohttp.
"""

import http.client
import select
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from federator.client import transport as shared
from federator.client.transport import BROKE, Request, Response, Transport
from federator.retry import BLOCKING, Sleeper

P = ParamSpec("P")
R = TypeVar("R")
CHUNK = 2**16
MOST_IDLE = 4
"""Connections that are kept for the next request: more than one only where streams are read side by side."""


def finish(verb: Coroutine[Any, Any, R]) -> R:
    """Run a verb to its end, over a transport that blocks: it never suspends."""
    try:
        verb.send(None)
    except StopIteration as end:
        answer: R = end.value
        return answer
    verb.close()
    raise AssertionError("a verb has waited for an event loop, and there is none")


class BlockingTransport(Transport):
    """Requests of one thread, one after the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle: list[tuple[int, http.client.HTTPConnection]] = []

    async def close(self) -> None:
        """Let go of all connections."""
        while self._idle:
            self._idle.pop()[1].close()

    def waiting(self) -> Sleeper:
        """As the machine does."""
        return BLOCKING

    async def offload(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do it now: nothing else is under way."""
        return work(*args, **kwargs)

    @asynccontextmanager
    async def _exchange(self, asked: int, request: Request) -> AsyncIterator[Response]:
        with self._translated(asked):
            connection = self._connected(asked)
            try:
                response = await self._sent(asked, connection, request)
            except BaseException:
                connection.close()
                raise
        answer = _BlockingAnswer(response, lambda: self._translated(asked))
        try:
            yield answer
        finally:
            if answer.whole and not response.will_close and len(self._idle) < MOST_IDLE:
                self._idle.append((asked, connection))
            else:
                response.close()
                connection.close()

    @contextmanager
    def _translated(self, asked: int) -> Iterator[None]:
        """The library's errors as ours."""
        try:
            yield
        except http.client.InvalidURL as error:
            raise self._no_address(asked) from error
        except (OSError, http.client.HTTPException) as error:
            hung_up = isinstance(error, (http.client.RemoteDisconnected, http.client.BadStatusLine))
            why = (error.strerror or "").lower() if isinstance(error, OSError) else ""
            broke = isinstance(error, http.client.IncompleteRead)
            raise self._lost(
                asked, error, why or (BROKE if broke else str(error)), hung_up=hung_up
            ) from error

    def _connected(self, asked: int) -> http.client.HTTPConnection:
        """A connection that is kept and still stands, or a new one."""
        for kept in [each for each in self._idle if each[0] == asked]:
            self._idle.remove(kept)
            if _stands(kept[1]):
                return kept[1]
            kept[1].close()
        return self._connect(self._servers[asked], shared.CONNECT_S)

    def _connect(self, server: str, timeout_s: float) -> http.client.HTTPConnection:
        target, proxy = _parts(server), self._way.proxy(server)
        tls = target.scheme == "https"
        if proxy is None:
            return self._opened(target, tls=tls, timeout_s=timeout_s)
        through = _parts(proxy)
        if not tls:
            return self._opened(through, tls=through.scheme == "https", timeout_s=timeout_s)
        if through.scheme == "https":
            return self._nested(through, target, timeout_s)
        return self._opened(through, tls=True, timeout_s=timeout_s, tunnel=target)

    def _nested(
        self, proxy: SplitResult, target: SplitResult, timeout_s: float
    ) -> http.client.HTTPConnection:
        """TLS with the dispatcher inside of TLS with the proxy."""
        from federator.client.nested_tls import NestedTls, open_tunnel

        assert target.hostname is not None
        port = target.port or 443
        made = http.client.HTTPSConnection(
            target.hostname, port, timeout=timeout_s, context=self._way.context()
        )
        made.auto_open = 0
        outer = self._opened(proxy, tls=True, timeout_s=timeout_s).sock
        assert isinstance(outer, ssl.SSLSocket)
        try:
            open_tunnel(outer, target.hostname, port, _proxy_login(proxy))
            made.sock = NestedTls(outer, self._way.context(), target.hostname)
        except BaseException:
            outer.close()
            raise
        return made

    def _opened(
        self, to: SplitResult, *, tls: bool, timeout_s: float, tunnel: SplitResult | None = None
    ) -> http.client.HTTPConnection:
        assert to.hostname is not None
        port = to.port or (443 if to.scheme == "https" else 80)
        made = (
            http.client.HTTPSConnection(to.hostname, port, timeout=timeout_s, context=self._way.context())
            if tls
            else http.client.HTTPConnection(to.hostname, port, timeout=timeout_s)
        )
        if tunnel is not None:
            assert tunnel.hostname is not None
            made.set_tunnel(tunnel.hostname, tunnel.port or 443, _proxy_login(to))
        try:
            made.connect()
        except BaseException:
            made.close()
            raise
        assert isinstance(made.sock, socket.socket)
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    async def _sent(
        self, asked: int, connection: http.client.HTTPConnection, request: Request
    ) -> http.client.HTTPResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        path, login = self._addressed(self._servers[asked], request.path + query)
        headers = dict(request.headers) | login
        if request.body is None and request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = "0"
        sock = connection.sock
        sock.settimeout(shared.ANSWER_S)
        # A server that refuses a body answers before it has read all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, path, body=request.body, headers=headers)
        response = await self._answered(asked, connection)
        sock.settimeout(request.silence_s)
        return response

    def _addressed(self, server: str, path: str) -> tuple[str, dict[str, str]]:
        """What is asked for, and what a proxy wants besides: one that carries plain requests is told the whole address."""
        parts, proxy = urlsplit(server), self._way.proxy(server)
        if proxy is None or parts.scheme != "http":
            return parts.path + path, {}
        whole = f"http://{parts.netloc.rpartition('@')[2]}{parts.path}{path}"
        return whole, _proxy_login(_parts(proxy))

    async def _answered(self, asked: int, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        """The answer. One of several dispatchers that is silent while another leads is given up."""
        if len(self._servers) == 1:
            return connection.getresponse()
        found: list[http.client.HTTPResponse | BaseException] = []
        over = threading.Event()

        def listen() -> None:
            try:
                found.append(connection.getresponse())
            except (OSError, http.client.HTTPException, ValueError) as error:
                found.append(error)
            finally:
                over.set()

        threading.Thread(target=listen, daemon=True).start()
        while not over.wait(shared.SILENT_S):
            if server := await self._another_leads(asked):
                connection.sock.shutdown(socket.SHUT_RDWR)
                raise TimeoutError(f"it is silent, and {server} leads")
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    async def _leads(self, server: str) -> bool:
        with suppress(OSError, http.client.HTTPException):
            connection = self._connect(server, shared.SILENT_S)
            try:
                path, headers = self._addressed(server, "/readyz")
                connection.request("GET", path, headers=headers)
                return connection.getresponse().status < 400
            finally:
                connection.close()
        return False


class _BlockingAnswer(Response):
    def __init__(self, response: http.client.HTTPResponse, translated: Callable[[], Any]) -> None:
        self.status = response.status
        self.whole = False
        self._response = response
        self._missing = response.length or 0
        self._translated = translated

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def chunks(self) -> AsyncIterator[bytes]:
        with self._translated():
            while chunk := self._response.read1(CHUNK):
                self._missing -= len(chunk)
                yield chunk
            if self._missing > 0:
                # The library takes a connection that breaks for the end.
                raise http.client.IncompleteRead(b"", self._missing)
        self._response.close()
        self.whole = True


def _parts(url: str) -> SplitResult:
    """The parts of a server's address. Raises `InvalidURL`."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise http.client.InvalidURL(url)


def _proxy_login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _stands(connection: http.client.HTTPConnection) -> bool:
    """Whether a connection that idles is still there: one that has something to read was ended by the server."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)

"""One door to the API server: requests that are repeated within bounds, streams, and commands in containers.

The client library finds the server and proves who we are, in all the ways that kubeconfigs know. What is said goes past its models: they would take a
hundred times the memory of the few fields that are read here.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from federator.kernel.errors import Conflict, FederatorError, Forbidden, Invalid, NotFound, Unavailable
from federator.kube.library import library
from federator.retry import Backoff, retried
from federator.wire.jsontext import read

PATIENCE_S = 60.0
"""For how long one request is repeated: an API server that is replaced is back by then."""
BACKOFF = Backoff(0.1, 5.0)
CONNECT_S = 10.0
ANSWER_S = 60.0
GOODBYE_S = 0.25
"""TLS takes leave in the background, after its connection counts as closed."""
EXEC_PROTOCOL = "v4.channel.k8s.io"
T = TypeVar("T")
_UNREACHABLE = (aiohttp.ClientError, TimeoutError, ConnectionError, OSError)


class TooOld(Conflict):
    """The server no longer has the changes since then: list again."""

    code = "too-old"


class Api:
    """The API server as whoever asks sees it. Connects at the first request."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        """`kubeconfig`: a file, and `context` which cluster of it; empty: this process is a pod of the cluster. Raises `Invalid` where the client library is not installed."""
        self._kubeconfig, self._context = kubeconfig, context
        self._library = library()
        self._client: Any = None
        self._former: Any = None
        """Whose credential was refused; what it is still in use for may end."""
        self._connecting = asyncio.Lock()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        kind: str = "application/json",
        patience_s: float = PATIENCE_S,
    ) -> bytes:
        """One request, repeated while the server is away or busy. Raises `FederatorError` of the family that fits."""
        data = None if body is None else msgspec.json.encode(body)

        async def once() -> bytes:
            async with self._request(method, path, query, data, kind) as answer:
                return await answer.read()

        away = (Unavailable, *_UNREACHABLE)
        try:
            return await retried(once, BACKOFF, on=away, patience_s=patience_s, asked_s=_asked_s)
        except away as error:
            raise _away(error) from None

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_s: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """A body as it comes. Raises what `ask` raises, and `Unavailable` when it is cut or nothing comes for `silence_s`."""
        try:
            async with self._request("GET", path, query, None, "", silence_s) as answer:
                yield answer.content
        except _UNREACHABLE as error:
            raise _away(error) from None

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        kind: str,
        silence_s: float = ANSWER_S,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        connected = await self._connect()
        headers = await _headers(connected) | {"Accept": "application/json", "Content-Type": kind}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        url = connected.configuration.host.rstrip("/") + path
        session = connected.rest_client.pool_manager
        options = _options(connected)
        async with session.request(
            method, url, params=query, data=data, headers=headers, timeout=timeout, **options
        ) as answer:
            if answer.status == 401:
                await self._retire(connected)
            if answer.status >= 400:
                raise _error(answer, await answer.read())
            yield answer

    @asynccontextmanager
    async def command(
        self, path: str, query: list[tuple[str, str]]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket to a command in a container, or to a port of its pod. Raises `Unavailable`, `NotFound`, `Forbidden`."""
        connected = await self._connect()
        url = connected.configuration.host.rstrip("/") + path
        try:
            async with connected.rest_client.pool_manager.ws_connect(
                url, params=query, headers=await _headers(connected), protocols=(EXEC_PROTOCOL,),
                timeout=aiohttp.ClientWSTimeout(ws_close=5.0), max_msg_size=0, **_options(connected),
            ) as socket:  # fmt: skip
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 404:
                raise NotFound("there is no such pod") from None
            if error.status == 403:
                raise Forbidden("the agent may not do that in pods") from None
            raise Unavailable(f"the command was answered with {error.status}: {error.message}") from None
        except _UNREACHABLE as error:
            raise _away(error) from None

    async def _connect(self) -> Any:
        async with self._connecting:
            if self._client is None:
                self._client = self._library.ApiClient(await self._configuration())
            return self._client

    async def _configuration(self) -> Any:
        config = self._library.config
        configuration = self._library.Configuration()
        try:
            if self._kubeconfig:
                await config.load_kube_config(self._kubeconfig, self._context or None, configuration)
            else:
                config.load_incluster_config(configuration)
        except config.ConfigException as error:
            said = self._missing() or f"the cluster cannot be reached: {error}"
            raise Unavailable(said, retry_after_s=5.0) from None
        configuration.connection_pool_maxsize = 0  # each log that is followed has a connection
        return configuration

    def _missing(self) -> str:
        """The client library says of a file that is not there that a key is missing in it."""
        absent = self._kubeconfig and not Path(self._kubeconfig).exists()
        return f"there is no kubeconfig {self._kubeconfig}" if absent else ""

    async def _retire(self, refused: Any) -> None:
        """Read the credential anew for the next request: it may have been renewed where it came from."""
        if self._client is refused:
            self._client, self._former, gone = None, refused, self._former
            if gone is not None:
                await gone.close()

    async def close(self) -> None:
        """Let go of all connections."""
        left = [client for client in (self._client, self._former) if client is not None]
        self._client = self._former = None
        for client in left:
            await client.close()
        if left:
            await asyncio.sleep(GOODBYE_S)


async def _headers(connected: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    await connected.update_params_for_auth(headers, [], ["BearerToken"])
    return headers


def _options(connected: Any) -> dict[str, Any]:
    rest = connected.rest_client
    found = {
        "proxy": rest.proxy,
        "proxy_headers": rest.proxy_headers,
        "server_hostname": rest.server_hostname,
    }
    return {name: value for name, value in found.items() if value}


def decoded(data: bytes | str, kind: type[T]) -> T:
    """What the API server has said. Raises `Unavailable` for what cannot be read."""
    try:
        return read(data, kind)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the answer of the API server cannot be read: {error}") from None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


def _error(answer: aiohttp.ClientResponse, body: bytes) -> FederatorError:
    try:
        message = read(body, _Status).message
    except msgspec.MsgspecError:
        message = body.decode(errors="replace")[:500]
    message = message or f"the API server answers {answer.status}"
    if answer.status in (401, 408, 429) or answer.status >= 500:
        after = answer.headers.get("Retry-After", "")
        return Unavailable(
            message, retry_after_s=float(after) if after.isascii() and after.isdigit() else 0.0
        )
    families = {403: Forbidden, 404: NotFound, 409: Conflict, 410: TooOld}
    return families.get(answer.status, Invalid)(message)


def _asked_s(error: BaseException) -> float:
    return error.retry_after_s if isinstance(error, Unavailable) else 0.0


def _away(error: BaseException) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    return Unavailable(f"the API server cannot be reached: {str(error) or type(error).__name__}")

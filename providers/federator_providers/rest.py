"""Calls of a cloud's REST API over aiohttp: connections that are made when first needed, answers of a bounded size and time, and JSON."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec

from federator.kernel.errors import Unavailable
from federator.wire.jsontext import read

FAULT_S = 5.0
"""After how long something is tried again that has failed without a word on when."""
ANSWERS_WITHIN_S = 40.0
MAX_ANSWER = 16 * 2**20


class Answer(NamedTuple):
    """What came back. `body` is empty where there is none, and where an error is not told in JSON."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


class Rest:
    """One API's connections. They are made again after `close`."""

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    async def ask(self, what: str, method: str, url: str, **parts: Any) -> Answer:
        """The answer, errors too; `parts` as aiohttp takes them. Raises `Unavailable`, which says `what`, when there is none that can be read."""
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=ANSWERS_WITHIN_S, sock_connect=5.0)
            self._http = aiohttp.ClientSession(timeout=timeout, trust_env=True)
        try:
            async with self._http.request(method, url, **parts) as response:
                status, headers, data = response.status, response.headers, await _bounded(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{what}: {type(error).__name__}", retry_after_s=FAULT_S) from None
        try:
            body = read(data, dict[str, Any]) if data else {}
        except msgspec.MsgspecError:
            if status < 400:
                raise Unavailable(f"{what}: the answer is not JSON", retry_after_s=FAULT_S) from None
            body = {}
        return Answer(status, body, headers)

    async def close(self) -> None:
        """Let go of connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(2**16):
        data += chunk
        if len(data) > MAX_ANSWER:
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(data)

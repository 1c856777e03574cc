"""`http(s)://…`: one file of a web server. There is nothing to list and nowhere to put."""

import asyncio
import os
from pathlib import Path

import aiohttp

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, NotSupported, Unavailable
from federator_agent.data.sources import Item, Moved

CHUNK_BYTES = 2**20
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=120)
TROUBLE = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)


class WebSource:
    """Plain GET. Proxies are those of the agent's environment."""

    async def items(self, uri: str) -> list[Item]:
        """The one file: its length, and by what the server tells one content from another."""
        async with _session() as http:
            try:
                async with http.get(uri, headers={"Range": "bytes=0-0"}) as answer:
                    _check(uri, answer)
                    return [Item("", _length(answer), _tag(answer))]
            except TROUBLE as error:
                raise _unavailable(uri, error) from None

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """All of it, checked against the length that was announced."""
        async with _session() as http:
            try:
                async with http.get(uri) as answer:
                    _check(uri, answer)
                    got = await _save(answer, into, moved)
            except TROUBLE as error:
                raise _unavailable(uri, error) from None
        if item.size >= 0 and got != item.size:
            raise Unavailable(f"{uri}: {got} bytes arrived, {item.size} were announced")

    async def put(self, file: Path, uri: str) -> None:
        """Web servers take nothing."""
        del file
        raise NotSupported(f"nothing can be put to {uri}", remedy="use an s3 or file address")

    async def read(self, uri: str) -> bytes:
        """The content."""
        async with _session() as http:
            try:
                async with http.get(uri) as answer:
                    _check(uri, answer)
                    return await answer.read()
            except TROUBLE as error:
                raise _unavailable(uri, error) from None

    async def remove(self, uri: str) -> None:
        """Nothing there is ours."""
        raise NotSupported(f"nothing can be removed from {uri}")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True, auto_decompress=False)


async def _save(answer: aiohttp.ClientResponse, into: Path, moved: Moved) -> int:
    got = 0
    with into.open("wb") as file:
        async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
            file.write(chunk)
            got += len(chunk)
            moved(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    return got


def _check(uri: str, answer: aiohttp.ClientResponse) -> None:
    if answer.status < 400 or answer.status == 416:
        return
    raise _refusal(uri, answer.status)


def _refusal(uri: str, status: int) -> FederatorError:
    said = f"{uri}: the server answers {status}"
    if status in (404, 410):
        return NotFound(said, remedy="check the address")
    if status in (401, 403, 407):
        return Forbidden(
            said, remedy="web inputs are fetched without credentials; use s3, or open it to the site"
        )
    if status in (408, 425, 429) or status >= 500:
        return Unavailable(said)
    return Invalid(said)


def _unavailable(uri: str, error: BaseException) -> Unavailable:
    return Unavailable(f"{uri}: {str(error) or type(error).__name__}")


def _length(answer: aiohttp.ClientResponse) -> int:
    """Of the whole; -1 when the server does not say."""
    whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if answer.status in (206, 416):
        return int(whole) if whole.isdigit() else -1
    return answer.content_length if answer.content_length is not None else -1


def _tag(answer: aiohttp.ClientResponse) -> str:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""

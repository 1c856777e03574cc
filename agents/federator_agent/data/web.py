"""`http(s)://…`: one file of a web server. There is nothing to list and nowhere to put.

Redirects are followed here and not by aiohttp: each step has to be an address that the job might have named, on a computer that the site lets be asked.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import aiohttp
from aiohttp.helpers import get_env_proxy_for_url
from yarl import URL

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, NotSupported, Unavailable
from federator_agent.data.allowed import below
from federator_agent.data.reach import CheckedResolver, Reach
from federator_agent.data.sources import READ_BYTES, Item, Moved, WebRules, size_of
from federator_agent.link_use import BULK, HEAD_BYTES, LinkUse

CHUNK_BYTES = 2**20
MOST_STEPS = 5
"""Redirects that are followed."""
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=120)
MOVED = (301, 302, 303, 307, 308)
ASK = "name the file's own address, or have the site's owner allow that one under data_addresses"
TROUBLE = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)


class WebSource:
    """Plain GET. Proxies are those of the agent's environment."""

    def __init__(self, rules: WebRules, link: LinkUse | None = None) -> None:
        self._reach, self._addresses = Reach(rules.networks), rules.addresses
        self.link = link

    async def items(self, uri: str) -> list[Item]:
        """The one file: its length, and by what the server tells one content from another."""
        async with self._get(uri, {"Range": "bytes=0-0"}) as answer:
            return [Item("", _length(answer), _tag(answer))]

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """All of it, checked against the length that was announced; what was cut goes on where the server can tell that it is the same."""
        begun = size_of(into) if _is_strong(item.tag) else 0
        if begun and begun == item.size:
            moved(begun)
            return
        headers = {"Range": f"bytes={begun}-", "If-Range": item.tag} if begun else None
        async with self._get(uri, headers) as answer:
            if begun and not _goes_on(answer, item.tag, begun):
                begun = 0
                if answer.status != 200:
                    os.truncate(into, 0)
                    raise Unavailable(f"{uri}: the server does not go on where it was cut")
            got = await self._save(answer, into, begun, item.size, moved)
        if item.size >= 0 and got != item.size:
            raise Unavailable(f"{uri}: {got} bytes arrived, {item.size} were announced")

    async def _save(
        self, answer: aiohttp.ClientResponse, into: Path, begun: int, size: int, moved: Moved
    ) -> int:
        """Append what comes to the bytes that had begun; how many there are then."""
        got = begun
        moved(begun)
        with into.open("ab" if begun else "wb") as file:
            try:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    file.write(chunk)
                    got += len(chunk)
                    moved(len(chunk))
                    if self.link is not None:
                        await self.link.bulk_moved(size, received=len(chunk))
            finally:
                file.flush()
                os.fsync(file.fileno())
        return got

    async def put(self, file: Path, uri: str) -> None:
        """Web servers take nothing."""
        del file
        raise NotSupported(f"nothing can be put to {uri}", remedy="use an s3 or file address")

    async def read(self, uri: str) -> bytes:
        """The content. Raises `Invalid` for more than is read at once."""
        async with self._get(uri) as answer:
            data = bytearray()
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                data += chunk
                if len(data) > READ_BYTES:
                    raise Invalid(f"{uri} is longer than {READ_BYTES} bytes")
            return bytes(data)

    async def remove(self, uri: str) -> None:
        """Nothing there is ours."""
        raise NotSupported(f"nothing can be removed from {uri}")

    @contextlib.asynccontextmanager
    async def _get(
        self, uri: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of the server to which the address leads in the end."""
        url = uri
        try:
            for _ in range(MOST_STEPS):
                async with self._once(url, headers) as answer:
                    if answer.status not in MOVED:
                        _check(uri, answer)
                        yield answer
                        return
                    url = self.next_address(uri, url, answer.headers.get("Location", ""))
        except TROUBLE as error:
            raise _unavailable(uri, error) from None
        raise Invalid(f"{uri}: there were {MOST_STEPS} redirects", remedy="name the file's own address")

    @contextlib.asynccontextmanager
    async def _once(self, url: str, headers: dict[str, str] | None) -> AsyncIterator[aiohttp.ClientResponse]:
        to = URL(url)
        self._reach.check_if_number(to.raw_host or "")
        if self.link is not None:
            self.link.count(BULK, sent=HEAD_BYTES, received=HEAD_BYTES)
        try:
            # The proxy is the site's, and decides about names that it alone knows.
            proxy, login = get_env_proxy_for_url(to)
            connector = aiohttp.TCPConnector()
        except LookupError:
            proxy, login = None, None
            connector = aiohttp.TCPConnector(resolver=CheckedResolver(self._reach))
        async with (
            aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, auto_decompress=False) as http,
            http.get(to, headers=headers, proxy=proxy, proxy_auth=login, allow_redirects=False) as answer,
        ):
            yield answer

    def next_address(self, uri: str, url: str, location: str) -> str:
        """Where a server sends on to. Raises `Forbidden` for what the job could not have named."""
        try:
            to = urldefrag(urljoin(url, location)).url
            URL(to)
        except ValueError:
            raise Forbidden(f"{uri}: it redirects to what is not an address", remedy=ASK) from None
        if not location or urlsplit(to).scheme not in {"https", urlsplit(url).scheme}:
            raise Forbidden(f"{uri}: it redirects to {to[:200]!r}, which is not followed", remedy=ASK)
        if self._addresses is not None and not any(below(to, address) for address in self._addresses):
            raise Forbidden(
                f"{uri}: it redirects to {to[:200]!r}, from which this site fetches no data", remedy=ASK
            )
        return to


def _is_strong(tag: str) -> bool:
    """Whether a server answers with a part only if all of the content is still the same."""
    return bool(tag) and not tag.startswith("W/")


def _goes_on(answer: aiohttp.ClientResponse, tag: str, begun: int) -> bool:
    rest = answer.headers.get("Content-Range", "").startswith(f"bytes {begun}-")
    return answer.status == 206 and rest and _tag(answer) == tag


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
        return int(whole) if whole.isascii() and whole.isdigit() and len(whole) < 19 else -1
    return answer.content_length if answer.content_length is not None else -1


def _tag(answer: aiohttp.ClientResponse) -> str:
    tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
    return tag.encode(errors="backslashreplace").decode()  # a header may hold bytes that are no text

"""A client that costs next to nothing, so that what is measured is the server: requests made beforehand, over connections that stay open.

It reads only what answers of ours have: a status, and a body of known length or in chunks.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from urllib.parse import urlsplit


class Refused(Exception):
    """The server has answered with something else than success."""


def request_bytes(
    method: str, server: str, path: str, token: str, body: bytes = b"", content_type: str = "application/json"
) -> bytes:
    """One request, ready to be sent."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(server).netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send_all(server: str, requests: Sequence[bytes], clients: int) -> list[float]:
    """Send them over so many connections at once, each sending its next when the last is answered; the seconds that each took, in no order.

    Raises `Refused` at the first answer that is not a success.
    """
    waiting = iter(requests)
    took_s: list[float] = []
    await asyncio.gather(*(_client(server, waiting, took_s) for _ in range(clients)))
    return took_s


async def _client(server: str, waiting: Iterator[bytes], took_s: list[float]) -> None:
    address = urlsplit(server)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for request in waiting:
            begun = time.perf_counter()
            writer.write(request)
            await _answer(reader)
            took_s.append(time.perf_counter() - begun)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.lower().split("\r\n")
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join([chunk async for chunk in _chunks(reader)])
    else:
        body = await reader.readexactly(int(headers["content-length"]))
    if not status.split(" ", 2)[1].startswith("2"):
        raise Refused(f"{status}: {body.decode(errors='replace')}")
    return body


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")

"""HTTP beside the control session: specs and work directories down, logs and outputs up.

Requests wait for a session, use its ticket, and are repeated until they are answered; only an answer that will stay the same (4xx) is an error. What is
large goes on where it was cut, down and up, and is kept to what the site file allows of the link.
"""

import asyncio
import gzip
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import aiohttp
import msgspec

from federator.kernel.errors import Invalid, Transient, Unauthenticated, Unavailable
from federator.retry import retried
from federator.wire import tunnel
from federator.wire.jsontext import read
from federator.wire.link import RESUMING, ZIPPED_LOGS, LogLength, OutputArchive, OutputLength, PlacementInputs
from federator.wire.log_times import TIMES_HEADER, LogTime, times_text
from federator_agent.dialer import TRANSFERS
from federator_agent.enrollment import raise_for, reason
from federator_agent.link import GOODBYE_S, GREETING_S, Link
from federator_agent.link_use import BULK, HEAD_BYTES, LOGS, REPORTS, HoursOver, LinkUse

T = TypeVar("T")
CHUNK_BYTES = 2**15
LEAST_ZIPPED_BYTES = 256
"""What is no longer is sent as it is."""
MOST_DAMAGED = 3
"""So often all of an archive may arrive and not be what was sent."""
UNREACHABLE = (aiohttp.ClientError, TimeoutError, ConnectionError)
log = logging.getLogger("federator_agent.bulk")


class Bulk:
    """What goes beside the control session `link`, as `use` allows it."""

    def __init__(self, link: Link, http: aiohttp.ClientSession, use: LinkUse) -> None:
        self._link = link
        self._http = http
        self.use = use

    async def spec(self, spec_hash: str) -> bytes:
        """A spec's bytes. Raises `NotFound` and other `Permanent`."""
        return await self._get(f"/specs/{spec_hash}")

    async def blob(self, blob_hash: str, into: Path) -> None:
        """Fetch a blob into a file, checked against its name. Raises `Permanent`; a transfer that was cut goes on."""
        await self._fetch(f"/blobs/{blob_hash}", blob_hash, into)

    async def inputs(self, placement: str) -> tuple[tuple[OutputArchive, ...], ...]:
        """Where the outputs of others are that a placement reads. Raises `Permanent`."""
        answer = await self._get(f"/inputs/{placement}")
        return _read_answer(answer, PlacementInputs).found

    async def input(self, placement: str, job: str, digest: str, into: Path) -> None:
        """Fetch one archive of these, as `blob`."""
        await self._fetch(f"/inputs/{placement}/{job}/{digest}", digest, into)

    async def put_log(
        self, placement: str, rank: int, offset: int, data: bytes, times: Sequence[LogTime] = ()
    ) -> LogLength:
        """Append to the dispatcher's copy of a log, and say when that was written; compressed, where the dispatcher takes it so. Raises `Permanent`."""
        headers = {TIMES_HEADER: times_text(times)} if times else {}
        path = f"/logs/{placement}/{rank}?offset={offset}"

        zipped = b""
        if len(data) > LEAST_ZIPPED_BYTES:
            zipped = await asyncio.to_thread(gzip.compress, data, mtime=0)

        async def once() -> bytes:
            # The ticket is of the dispatcher that is meant by what it takes: another may be older. From the last look at the budget to the request nothing else comes.
            await self._link.ticket()
            while await self.use.until_logs_may_move():
                await self._link.ticket()
            if ZIPPED_LOGS in self._link.takes and zipped:
                return await self._ask("PUT", f"{path}&zipped=true", LOGS, zipped, headers)
            return await self._ask("PUT", path, LOGS, data, headers)

        return _read_answer(await self._until_answered(f"PUT {path}", once), LogLength)

    async def put_outputs(self, placement: str, archive: Path) -> str:
        """Bring an archive of outputs home, by the name that it answers; what was cut goes on. Raises `Permanent`."""
        path = f"/outputs/{placement}"
        digest, size = await asyncio.to_thread(_hash_of, archive)
        damaged = 0

        async def once() -> None:
            nonlocal damaged
            await self.use.until_bulk_may_move(size)
            await self._link.ticket()
            if RESUMING not in self._link.takes:
                await self._ask("PUT", path, BULK, self._stream(archive, size))
                return
            whole = f"{path}?digest={digest}&size={size}"
            has = _read_answer(await self._ask("PUT", f"{whole}&offset=0", BULK, b""), OutputLength).length
            if has < size:
                rest = self._stream(archive, size, has)
                answer = await self._ask("PUT", f"{whole}&offset={has}", BULK, rest)
                has = _read_answer(answer, OutputLength).length
            if has < size:
                damaged += 1
                if damaged == MOST_DAMAGED:
                    raise Invalid(f"the archive has arrived damaged {damaged} times")
                raise Unavailable("the archive has not arrived as it is")

        await self._until_answered(f"PUT {path}", once)
        return digest

    @asynccontextmanager
    async def tunnel(self, name: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Dial out the tunnel of that name. Raises `aiohttp.ClientError`, `TimeoutError`, `OSError`: it is not tried again, since nobody waits for long."""
        url = f"{self._link.addresses.present}{tunnel.PATH}/{name}"
        async with asyncio.timeout(GREETING_S):
            socket = await self._http.ws_connect(
                url,
                headers={"Authorization": f"Bearer {await self._link.ticket()}"},
                timeout=aiohttp.ClientWSTimeout(ws_receive=tunnel.SILENT_S, ws_close=GOODBYE_S),
                max_msg_size=tunnel.MAX_FRAME_BYTES,
                compress=0,
                **self._link.way.options(url),
            )
        async with socket:
            yield socket

    async def _fetch(self, path: str, blob_hash: str, into: Path) -> None:
        """Into a file beside it first, which outlives what cuts the transfer: it goes on at its end."""
        temporary = into.with_name(f".{into.name}.new")
        large_bytes = 0

        async def once() -> None:
            nonlocal large_bytes
            await self.use.until_bulk_may_move(large_bytes)
            hasher, begun = await asyncio.to_thread(_begun, temporary)
            async with self._request("GET", path, headers=_range(begun)) as answer:
                if answer.status >= 400:
                    raise_for(answer.status, await answer.read())
                if begun and answer.status != 206:
                    hasher, begun = hashlib.sha256(), 0
                large_bytes = answer.content_length or 0
                self.use.refuse_bulk(large_bytes)
                await self._write(answer, temporary, hasher, begun)
            if hasher.hexdigest() == blob_hash:
                return
            temporary.unlink(missing_ok=True)
            if begun:
                raise Unavailable("what had come before was damaged")
            raise Invalid(f"blob {blob_hash} arrived with the content of {hasher.hexdigest()}")

        await self._until_answered(f"GET {path}", once)
        temporary.rename(into)

    async def _write(
        self, answer: aiohttp.ClientResponse, into: Path, hasher: "hashlib._Hash", begun: int
    ) -> None:
        with into.open("r+b" if begun else "wb") as file:
            file.seek(begun)
            file.truncate()
            try:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    hasher.update(chunk)
                    file.write(chunk)
                    await self.use.bulk_moved(answer.content_length or 0, received=len(chunk))
            finally:
                file.flush()
                os.fsync(file.fileno())

    async def _stream(self, path: Path, size: int, offset: int = 0) -> AsyncIterator[bytes]:
        with path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
                await self.use.bulk_moved(size, sent=len(chunk))

    async def _get(self, path: str) -> bytes:
        """Ask until there is an answer."""
        return await self._until_answered(f"GET {path}", lambda: self._ask("GET", path, REPORTS, None))

    async def _until_answered(self, what: str, once: Callable[[], Awaitable[T]]) -> T:
        """Try until it is answered. A ticket that is not good any more is that of a session which is about to be replaced."""

        def note(error: BaseException) -> None:
            why = self._link.way.fault(error, self._link.addresses.present) or reason(error)
            log.info("%s: %s; trying again", what.partition("?")[0], why)

        return await retried(
            once, TRANSFERS, on=(Unauthenticated, Transient, HoursOver, *UNREACHABLE), failed=note
        )

    async def _ask(
        self,
        method: str,
        path: str,
        kind: str,
        data: bytes | AsyncIterator[bytes] | None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        # Before it is sent: what gets no answer has gone over the link all the same, and of many that have waited one goes first.
        self.use.count(kind, sent=HEAD_BYTES + (len(data) if isinstance(data, bytes) else 0))
        async with self._request(method, path, data=data, headers=headers) as answer:
            body = await answer.read()
        self.use.count(kind, received=HEAD_BYTES + len(body))
        raise_for(answer.status, body)
        return body

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        data: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        ticket = await self._link.ticket()
        signed = {"Authorization": f"Bearer {ticket}", "Content-Type": "application/octet-stream", **headers}
        url = self._link.addresses.present
        options = self._link.way.options(url)
        async with self._http.request(
            method, f"{url}/agent/v1{path}", data=data, headers=signed, **options
        ) as answer:
            yield answer


def _read_answer(answer: bytes, kind: type[T]) -> T:
    try:
        return read(answer, kind)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the dispatcher's answer cannot be read: {error}") from None


def _range(begun: int) -> dict[str, str]:
    return {"Range": f"bytes={begun}-"} if begun else {}


def _hash_of(path: Path) -> tuple[str, int]:
    """The hash of a file, and its bytes."""
    hasher, size = _begun(path)
    return hasher.hexdigest(), size


def _begun(path: Path) -> "tuple[hashlib._Hash, int]":
    """What has come of a file: hashed, and how many bytes."""
    hasher, size = hashlib.sha256(), 0
    if path.exists():
        with path.open("rb") as file:
            while part := file.read(2**20):
                hasher.update(part)
                size += len(part)
    return hasher, size

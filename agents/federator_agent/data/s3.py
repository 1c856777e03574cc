"""`s3://bucket/key`: Amazon S3, and what speaks like it. The one door to boto3 in the agent.

Credentials and endpoint are those that boto3 finds by itself: environment (`AWS_…`, `AWS_ENDPOINT_URL_S3`), files of the agent's user, or the machine's own role.
Nothing of them is passed on to jobs.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from federator.kernel.errors import FederatorError, Forbidden, NotFound, Unavailable
from federator_agent.data.sources import READ_BYTES, Item, Moved, in_thread, listed, size_of
from federator_agent.link_use import BULK, HEAD_BYTES, HoursOver, LinkUse

AT_ONCE = 4
"""Transfers under way at once; each uses a few connections of its own."""
CHUNK_BYTES = 2**15
LOOK_S = 1.0
"""Real seconds after which a thread that waits for the link looks whether anybody still waits for it."""
_GONE = ("404", "412", "NoSuchKey", "NoSuchBucket", "NotFound", "PreconditionFailed")
_DENIED = (
    "401",
    "403",
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "AllAccessDisabled",
)
_PARTS = TransferConfig(multipart_threshold=64 * 2**20, multipart_chunksize=32 * 2**20, max_concurrency=4)
_ONE_BY_ONE = TransferConfig(
    multipart_threshold=8 * 2**20, multipart_chunksize=8 * 2**20, max_concurrency=1, use_threads=False
)
"""Where the link is held: a part that is cut is sent again, the parts before it are not."""


class S3Source:
    """Objects, and prefixes as directories of them."""

    def __init__(self, link: LinkUse | None = None) -> None:
        self.link = link
        self._held = link is not None and link.holds_bulk
        self._slots = asyncio.Semaphore(1 if self._held else AT_ONCE)
        self._lock = threading.Lock()
        self._made: Any = None

    def _client(self) -> Any:
        """Made in a thread, once: finding credentials may ask a metadata service."""
        with self._lock:
            if self._made is None:
                # Our own patience is longer, and ends when nobody waits any more.
                config = Config(retries={"max_attempts": 2}, connect_timeout=20, read_timeout=60)
                self._made = boto3.session.Session().client("s3", config=config)
            return self._made

    async def items(self, uri: str) -> list[Item]:
        """The object of that key; else all below it."""
        return await asyncio.to_thread(self._items, uri)

    def _items(self, uri: str) -> list[Item]:
        bucket, key = _place(uri)
        with _named(uri):
            client = self._client()
            if key and (item := _one(client, bucket, key)):
                return [item]
            prefix = f"{key}/" if key else ""
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            found = listed(
                uri,
                (
                    Item(each["Key"][len(prefix) :], int(each["Size"]), str(each["ETag"]))
                    for page in pages
                    for each in page.get("Contents", ())
                    if not each["Key"].endswith("/")
                ),
            )
        if not found:
            raise NotFound(f"{uri}: the bucket has nothing of that name", remedy="check the address")
        return found

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        """Large ones in parts side by side. Where the link is held one by one, and what was cut goes on."""
        loop = asyncio.get_running_loop()

        def fetch(progress: Moved) -> None:
            bucket, key = _place(uri)
            whole = "/".join(part for part in (key, item.name) if part)
            with _named(f"s3://{bucket}/{whole}"):
                if self._held:
                    self._go_on(bucket, whole, item, into, progress, loop)
                else:
                    told = self._paced(progress, item.size, loop)
                    self._client().download_file(bucket, whole, str(into), Callback=told, Config=_PARTS)

        async with self._slots:
            await in_thread(fetch, moved)

    def _go_on(
        self,
        bucket: str,
        key: str,
        item: Item,
        into: Path,
        progress: Moved,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """What is not there yet of an object, in order. Raises `HoursOver`."""
        begun = size_of(into)
        progress(begun)
        if begun and begun == item.size:
            return
        told = self._paced(progress, item.size, loop)
        rest = {"Range": f"bytes={begun}-"} if begun else {}
        answer = self._client().get_object(Bucket=bucket, Key=key, IfMatch=item.tag, **rest)
        with contextlib.closing(answer["Body"]) as body, into.open("ab") as file:
            for chunk in body.iter_chunks(CHUNK_BYTES):
                file.write(chunk)
                told(len(chunk))

    async def put(self, file: Path, uri: str) -> None:
        """S3 shows an object only when all of it is there."""
        loop = asyncio.get_running_loop()

        def put(progress: Moved) -> None:
            bucket, key = _place(uri)
            told = self._paced(progress, file.stat().st_size, loop, up=True)
            config = _ONE_BY_ONE if self._held else _PARTS
            with _named(uri):
                self._client().upload_file(str(file), bucket, key, Callback=told, Config=config)

        async with self._slots:
            await in_thread(put, lambda _: None)

    def _paced(
        self, progress: Moved, size: int, loop: asyncio.AbstractEventLoop, *, up: bool = False
    ) -> Moved:
        """For threads: count what moves over the link, and wait for as long as that asks for. At the end of its hours a download is cut, and an upload waits for the next."""
        link, way = self.link, "sent" if up else "received"
        if link is None:
            return progress
        loop.call_soon_threadsafe(partial(link.count, BULK, sent=HEAD_BYTES, received=HEAD_BYTES))

        def told(count: int) -> None:
            progress(count)
            if count <= 0:  # a part begins again
                return
            try:
                _wait(link.bulk_moved(size, **{way: count}), loop, progress)
            except HoursOver:
                if not up:
                    raise
                _wait(link.until_bulk_may_move(size), loop, progress)

        return told

    async def read(self, uri: str) -> bytes:
        """The object."""
        return await asyncio.to_thread(self._read, uri)

    def _read(self, uri: str) -> bytes:
        bucket, key = _place(uri)
        with _named(uri):
            return bytes(self._client().get_object(Bucket=bucket, Key=key)["Body"].read(READ_BYTES))

    async def remove(self, uri: str) -> None:
        """The object."""
        await asyncio.to_thread(self._remove, uri)

    def _remove(self, uri: str) -> None:
        bucket, key = _place(uri)
        with _named(uri):
            self._client().delete_object(Bucket=bucket, Key=key)


def _wait(pause: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, progress: Moved) -> None:
    """In a thread, until a pause of the loop is over; `progress` raises when nobody waits any more."""
    future = asyncio.run_coroutine_threadsafe(pause, loop)
    try:
        while not concurrent.futures.wait([future], LOOK_S).done:
            progress(0)
    finally:
        future.cancel()
    future.result()


def _place(uri: str) -> tuple[str, str]:
    parts = urlsplit(uri)
    return parts.netloc, unquote(parts.path).strip("/")


def _one(client: Any, bucket: str, key: str) -> Item | None:
    try:
        head = client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if _code(error) in _GONE:
            return None
        raise
    return Item("", int(head["ContentLength"]), str(head["ETag"]))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextlib.contextmanager
def _named(uri: str) -> Iterator[None]:
    """What boto3 raises, as the error that tells whether trying again may help."""
    try:
        yield
    except ClientError as error:
        raise _refusal(uri, error) from None
    except (NoCredentialsError, PartialCredentialsError):
        remedy = "give the agent's user credentials, in its environment or ~/.aws, or the machine a role"
        raise Forbidden(f"{uri}: the agent has no credentials for S3", remedy=remedy) from None
    except (BotoCoreError, boto3.exceptions.Boto3Error, OSError) as error:
        raise Unavailable(f"{uri}: {error}") from None


def _refusal(uri: str, error: ClientError) -> FederatorError:
    code, said = _code(error), f"{uri}: S3 answers {_code(error)}"
    if code in _GONE:
        return NotFound(said, remedy="check bucket and key")
    if code in _DENIED:
        return Forbidden(said, remedy="give the agent's credentials the right to it")
    return Unavailable(said)

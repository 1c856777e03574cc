"""`s3://bucket/key`: Amazon S3, and what speaks like it. The one door to boto3 in the agent.

Credentials and endpoint are those that boto3 finds by itself: environment (`AWS_…`, `AWS_ENDPOINT_URL_S3`), files of the agent's user, or the machine's own role.
Nothing of them is passed on to jobs.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from federator.kernel.errors import FederatorError, Forbidden, NotFound, Unavailable
from federator_agent.data.sources import READ_BYTES, Item, Moved, in_thread, listed

AT_ONCE = 4
"""Transfers under way at once; each uses a few connections of its own."""
_GONE = ("404", "NoSuchKey", "NoSuchBucket", "NotFound")
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


class S3Source:
    """Objects, and prefixes as directories of them."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
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
        """Large ones in parts side by side."""
        async with self._slots:
            await in_thread(lambda progress: self._fetch(uri, item, into, progress), moved)

    def _fetch(self, uri: str, item: Item, into: Path, progress: Moved) -> None:
        bucket, key = _place(uri)
        whole = "/".join(part for part in (key, item.name) if part)
        with _named(f"s3://{bucket}/{whole}"):
            self._client().download_file(bucket, whole, str(into), Callback=progress, Config=_PARTS)

    async def put(self, file: Path, uri: str) -> None:
        """S3 shows an object only when all of it is there."""
        async with self._slots:
            await in_thread(lambda progress: self._put(file, uri, progress), lambda _: None)

    def _put(self, file: Path, uri: str, progress: Moved) -> None:
        bucket, key = _place(uri)
        with _named(uri):
            self._client().upload_file(str(file), bucket, key, Callback=progress, Config=_PARTS)

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

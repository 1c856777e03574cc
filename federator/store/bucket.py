"""A bucket of Amazon S3, or of what speaks like it: the store's one door to boto3.

boto3 blocks, so calls are made in threads. It is told to try once: what may pass is tried again by `federator.retry`, so that patience is a setting and
has one meaning. Large objects go in parts, and come in pieces: memory is bounded whatever their size. botocore writes signed headers to its log at the
level DEBUG, so that level is closed to it. No error has more of what the server said than its code.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from federator.kernel.errors import FederatorError, Invalid, NoRoom, Unavailable
from federator.retry import Backoff, retried_in_thread
from federator.settings import S3Settings

T = TypeVar("T")
BACKOFF = Backoff(0.1, 5.0)
PART_BYTES = 8 * 2**20
"""Of a larger object so much is sent at a time; a bucket takes 10,000 parts."""
PIECE_BYTES = 2**20
CONNECTIONS = 64
DELETED_AT_ONCE = 1000
CLOCK_STEP_S = 1.0
"""Servers say when something was changed, and what time it is, in whole seconds."""
RIGHTS = "it needs s3:ListBucket of the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload below the prefix"
_GONE = frozenset({"404", "NoSuchKey", "NotFound"})
_FULL = frozenset({"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})  # fmt: skip
_BUSY = frozenset({"429", "RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "TooManyRequests", "ThrottlingException", "OperationAborted"})  # fmt: skip


class _MayPass(Unavailable):
    """The same request may be answered soon."""


class Found(NamedTuple):
    """An object: its key below the prefix, its size, and for how long at most nobody has written it, by the server's clock."""

    key: str
    size: int
    age_s: float


class Server:
    """The way to the server of a bucket. Safe to call from several threads."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._making = threading.Lock()

    def ask(self, name: str, what: str, ask: Callable[[Any], T], patience_s: float | None = None) -> T:
        """What `ask` answers with boto3's client, again for as long as a fault may pass. `name` and `what` are told: where, and what was to be done."""

        def attempt() -> T:
            try:
                with self._making:
                    client = self.client
                return ask(client)
            except ClientError as error:
                raise _meaning(*_code(error), name, what) from None
            except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
                raise Unavailable(
                    f"there are no credentials for {name} ({type(error).__name__})",
                    remedy="name a file in store.s3.credentials_file, or give the machine a role",
                ) from None
            except BotoCoreError as error:
                raise _MayPass(
                    f"{name} does not answer ({type(error).__name__})",
                    remedy="see store.s3 in the settings, and whether its server runs",
                ) from None

        patience_s = self.settings.patience_s if patience_s is None else patience_s
        return retried_in_thread(attempt, BACKOFF, on=_MayPass, patience_s=patience_s)

    def close(self) -> None:
        """End all connections."""
        if "client" in self.__dict__:
            self.client.close()

    @cached_property
    def client(self) -> Any:
        """Made in the first call's thread: finding credentials may ask a metadata service."""
        for name in ("boto3", "botocore", "urllib3"):
            logging.getLogger(name).setLevel(logging.INFO)
        given = self.settings
        core = botocore.session.Session(profile=given.profile or None)
        if given.credentials_file:
            core.set_config_variable("credentials_file", given.credentials_file)
        config: dict[str, object] = {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": min(10.0, given.timeout_s),
            "read_timeout": given.timeout_s,
            "max_pool_connections": CONNECTIONS,
            "s3": {"addressing_style": "path" if given.path_style else "auto"},
        }
        if given.endpoint:
            # Not all servers know the checksums that Amazon's took up in 2025.
            names = ("request_checksum_calculation", "response_checksum_validation")
            config |= dict.fromkeys(names, "when_required")
        return boto3.session.Session(botocore_session=core).client(
            "s3",
            region_name=given.region or core.get_config_variable("region") or "us-east-1",
            endpoint_url=given.endpoint or None,
            verify=str(Path(given.ca_file).expanduser()) if given.ca_file else None,
            config=Config(**config),
        )


class Bucket:
    """Objects below a prefix. Safe to call from several threads; raises `Unavailable`, and `NoRoom` where the server has none."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._bucket = server.settings.bucket
        self._root = f"{prefix}/"
        self.name = f"s3://{self._bucket}/{prefix}"
        self._extra: dict[str, str] = {}
        if server.settings.encryption:
            self._extra["ServerSideEncryption"] = server.settings.encryption
        if server.settings.kms_key:
            self._extra["SSEKMSKeyId"] = server.settings.kms_key

    def check(self) -> None:
        """Ask it once. Raises `Invalid` where settings or rights are wrong, `Unavailable` where it does not answer."""
        try:
            self._ask("list it", lambda s3: s3.list_objects_v2(**self._listing(""), MaxKeys=1))
        except _MayPass:
            raise
        except Unavailable as error:
            raise Invalid(error.message, field="$.store.s3", remedy=error.remedy) from error

    def put(self, key: str, data: bytes, *, patience_s: float | None = None) -> None:
        """Write an object, durably once this returns. `patience_s`: for less than the settings say."""
        asked = {**self._object(key), **self._extra, "Body": data}
        self._ask("write to it", lambda s3: s3.put_object(**asked), patience_s)

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a file, a large one in parts; nobody sees it before all of it is there."""
        with path.open("rb") as file:
            data = file.read(PART_BYTES)
            if len(data) < PART_BYTES:
                self.put(key, data)
                return
            asked: dict[str, Any] = {**self._object(key), **self._extra}
            begun = self._ask("write to it", lambda s3: s3.create_multipart_upload(**asked))
            upload = {**self._object(key), "UploadId": begun["UploadId"]}
            try:
                parts = list(self._sent_parts(upload, data, file))
                whole = {**upload, "MultipartUpload": {"Parts": parts}}
                self._ask("write to it", lambda s3: s3.complete_multipart_upload(**whole))
            except BaseException:
                with contextlib.suppress(FederatorError):
                    self._ask("write to it", lambda s3: s3.abort_multipart_upload(**upload), 0.0)
                raise

    def _sent_parts(self, upload: dict[str, Any], first: bytes, file: BinaryIO) -> Iterator[dict[str, Any]]:
        data, number = first, 1
        while data:
            asked = {**upload, "PartNumber": number, "Body": data}
            answer = self._ask("write to it", partial(_upload_part, asked))
            yield {"PartNumber": number, "ETag": answer["ETag"]}
            data, number = file.read(PART_BYTES), number + 1

    def get(self, key: str) -> bytes | None:
        """A small object, or None."""

        def read(s3: Any) -> bytes:
            return bytes(s3.get_object(**self._object(key))["Body"].read())

        return self._unless_gone(read)

    def fetch(self, key: str, into: IO[bytes]) -> bool:
        """Write an object of any size into a file, which begins anew; whether there is one."""

        def read(s3: Any) -> bool:
            into.seek(0)
            into.truncate()
            for piece in s3.get_object(**self._object(key))["Body"].iter_chunks(PIECE_BYTES):
                into.write(piece)
            return True

        return self._unless_gone(read) or False

    def look(self, key: str) -> Found | None:
        """What is known of an object, or None."""

        def head(s3: Any) -> Found:
            answer = s3.head_object(**self._object(key))
            return Found(key, int(answer["ContentLength"]), _age_s(answer, answer["LastModified"]))

        return self._unless_gone(head)

    def all(self, prefix: str) -> Iterator[Found]:
        """Every object whose key begins so, in order."""
        asked = self._listing(prefix)
        while True:
            page = self._ask("list it", partial(_list, asked))
            for each in page.get("Contents", ()):
                key = str(each["Key"]).removeprefix(self._root)
                yield Found(key, int(each["Size"]), _age_s(page, each["LastModified"]))
            if not page.get("IsTruncated"):
                return
            asked = {**asked, "ContinuationToken": page["NextContinuationToken"]}

    def delete(self, keys: Sequence[str]) -> None:
        """Remove these objects; unknown ones are fine."""
        if len(keys) == 1:
            self._ask("delete from it", lambda s3: s3.delete_object(**self._object(keys[0])))
            return
        for start in range(0, len(keys), DELETED_AT_ONCE):
            batch = [{"Key": self._root + key} for key in keys[start : start + DELETED_AT_ONCE]]
            asked = {"Bucket": self._bucket, "Delete": {"Objects": batch, "Quiet": True}}
            answer = self._ask("delete from it", partial(_delete, asked))
            for error in answer.get("Errors", ()):
                raise _meaning(str(error.get("Code", "")), 0, self.name, "delete from it")

    def close(self) -> None:
        """End all connections to its server."""
        self._server.close()

    def _object(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._root + key}

    def _listing(self, prefix: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Prefix": self._root + prefix}

    def _ask(self, what: str, ask: Callable[[Any], T], patience_s: float | None = None) -> T:
        return self._server.ask(self.name, what, ask, patience_s)

    def _unless_gone(self, read: Callable[[Any], T]) -> T | None:
        def asked(s3: Any) -> T | None:
            try:
                return read(s3)
            except ClientError as error:
                if _code(error)[0] in _GONE:
                    return None
                raise

        return self._ask("read it", asked)


def _upload_part(asked: dict[str, Any], s3: Any) -> Any:
    return s3.upload_part(**asked)


def _list(asked: dict[str, Any], s3: Any) -> Any:
    return s3.list_objects_v2(**asked)


def _delete(asked: dict[str, Any], s3: Any) -> Any:
    return s3.delete_objects(**asked)


def _code(error: ClientError) -> tuple[str, int]:
    answer = error.response
    return str(answer.get("Error", {}).get("Code", "")), int(
        answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    )


def _meaning(code: str, status: int, name: str, what: str) -> Unavailable:
    """What a refusal of the server means."""
    if code == "NoSuchBucket":
        return Unavailable(f"there is no bucket for {name}", remedy="make it, or correct store.s3.bucket")
    if code in _FULL or status == 507:
        return NoRoom(f"{name} is full ({code})", retry_after_s=10.0, remedy="give the bucket more room")
    if code in _BUSY or status >= 500 or status == 429:
        return _MayPass(f"{name} is busy ({code or status})", remedy="see whether its server is well")
    return Unavailable(f"{name} refuses that we {what} ({code or status})", remedy=RIGHTS)


def _age_s(answer: Any, modified: Any) -> float:
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    now_s = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
    return max(0.0, now_s - float(modified.timestamp()) + CLOCK_STEP_S)

"""What is kept in a bucket: its server's faults told as what they are, bytes of any size, and one bucket for one store."""

import hashlib
import http.server
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.backups import upload
from federator.config import check
from federator.kernel.clock import SystemClock
from federator.kernel.errors import Damaged, Invalid, NoRoom, NotFound, Unavailable
from federator.ports import Put, Transaction
from federator.settings import EtcdSettings, S3Settings, Settings, StoreSettings
from federator.store.blobs import FileBlobs, hash_of
from federator.store.bucket import PART_BYTES, Bucket, Server
from federator.store.s3_blobs import S3Blobs
from federator.store.shared import open_bucket, open_shared
from federator.store.sqlite import SqliteStore
from tests.testbeds.etcd import shared_cluster
from tests.testbeds.s3 import (
    BUCKET,
    KEY,
    SECRET,
    bucket_of_its_own,
    settings_for,
    shared_client,
    shared_server,
)

ROW = Transaction(
    puts=(Put("row", b"value"), Put("decision/1", b"outside"), Put("decision/2", b"outside too"))
)


# --------------------------------------------------------------------------------------------------------------- bytes


def test_large_bytes_go_in_parts_and_come_back(tmp_path: Path) -> None:
    bucket = bucket_of_its_own()
    blobs = S3Blobs(bucket, tmp_path)
    draft, expected = blobs.draft(), hashlib.sha256()
    for number in range(5):
        part = bytes([number]) * (PART_BYTES // 2)
        draft.write(part)
        expected.update(part)
    digest = draft.keep()
    draft.discard()
    assert digest == expected.hexdigest()
    assert list(tmp_path.iterdir()) == [], "nothing is left on this host"
    file = S3Blobs(bucket, tmp_path).open(digest)
    assert file is not None
    with file:
        assert hash_of(file) == digest
    assert "Uploads" not in shared_client().list_multipart_uploads(Bucket=BUCKET)


def test_bytes_damaged_in_the_bucket_are_not_handed_out(tmp_path: Path) -> None:
    bucket = bucket_of_its_own()
    blobs = S3Blobs(bucket, tmp_path)
    digest = blobs.put(b"bytes")
    bucket.put(f"objects/{digest}", b"bytez")
    with pytest.raises(Damaged, match="damaged in s3://"):
        blobs.get(digest)


def test_a_use_is_seen_by_another_dispatcher(tmp_path: Path) -> None:
    """Its notes are in the bucket: what one has just used, another does not drop."""
    bucket = bucket_of_its_own()
    digest = S3Blobs(bucket, tmp_path / "a").put(b"bytes")
    other = S3Blobs(bucket, tmp_path / "b")
    assert other.unused(30.0) == []
    assert not other.drop(digest, 30.0)
    assert other.has(digest)
    assert {each.key for each in bucket.all("")} == {f"objects/{digest}", f"uses/{digest}"}
    assert S3Blobs(bucket, tmp_path / "c").drop(digest, 0.0)
    assert list(bucket.all("")) == []


# -------------------------------------------------------------------------------------------------------------- faults


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that refuses, as its class is told to."""

    status, code, hangs = 503, "SlowDown", threading.Event()
    asked = 0

    def _answer(self) -> None:
        type(self).asked += 1
        self.hangs.wait(10) if self.code == "hang" else None
        body = f"<Error><Code>{self.code}</Code><Message>{SECRET}</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815 - their names over there

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[tuple[type[Answers], S3Settings]]:
    class Own(Answers):
        hangs = threading.Event()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    given = settings_for(tmp_path, shared_server())
    yield Own, S3Settings(
        bucket=BUCKET, endpoint=f"http://127.0.0.1:{server.server_address[1]}", path_style=True,
        credentials_file=given.credentials_file, patience_s=0.5, timeout_s=0.3,
    )  # fmt: skip
    Own.hangs.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "kind", "said", "again"),
    [
        (503, "SlowDown", Unavailable, "is busy", True),
        (500, "InternalError", Unavailable, "is busy", True),
        (200, "hang", Unavailable, "does not answer", True),
        (507, "XMinioStorageFull", NoRoom, "is full", False),
        (403, "AccessDenied", Unavailable, r"refuses that we write to it \(AccessDenied\)", False),
        (404, "NoSuchBucket", Unavailable, "there is no bucket", False),
    ],
)
def test_each_fault_is_told_and_only_what_may_pass_is_tried_again(
    refusing: tuple[type[Answers], S3Settings],
    caplog: pytest.LogCaptureFixture,
    status: int, code: str, kind: type[Unavailable], said: str, again: bool,
) -> None:  # fmt: skip
    answers, settings = refusing
    if code == "hang":  # botocore waits for a second whether the body is wanted
        settings = replace(settings, patience_s=4.0)
    answers.status, answers.code, answers.asked = status, code, 0
    server = Server(settings)
    bucket = Bucket(server, "x")
    assert server.client, "made before the time runs"
    caplog.set_level(logging.DEBUG)
    with pytest.raises(kind, match=said) as caught:
        bucket.put("key", b"data")
    assert (answers.asked > 1) is again
    assert SECRET not in caught.value.describe(), "only the code of what a server says is told"
    assert SECRET not in caplog.text
    bucket.close()


def test_no_credentials_are_told_with_where_they_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "empty").write_text("[default]\n")
    settings = S3Settings(
        bucket=BUCKET, endpoint=shared_server(), path_style=True, credentials_file=str(tmp_path / "empty")
    )
    with pytest.raises(Invalid, match=r"no credentials .*store\.s3\.credentials_file"):
        Bucket(Server(settings), "x").check()


def test_a_bucket_that_is_not_there_is_no_start(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, shared_server(), bucket="nobody-has-it")
    with pytest.raises(Invalid, match="there is no bucket") as caught:
        Bucket(Server(settings), "x").check()
    assert caught.value.field == "$.store.s3"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"bucket": "team/prefix"}, "bucket"),
        ({"prefix": "../other"}, "prefix"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "a//b"}, "prefix"),
        ({"endpoint": "minio:9000"}, "endpoint"),
        ({"endpoint": "https://key:secret@minio"}, "endpoint"),
        ({"kms_key": "abc"}, "kms_key"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"credentials_file": "/nowhere/at-all"}, "credentials_file"),
    ],
)
def test_settings_that_make_no_sense_are_told_by_their_key(fields: dict[str, Any], field: str) -> None:
    s3 = S3Settings(**{"bucket": "team", **fields})
    with pytest.raises(Invalid) as caught:
        check(Settings(store=StoreSettings(s3=s3)))
    assert caught.value.field == f"$.store.s3.{field}"
    assert "secret" not in caught.value.describe()


@pytest.mark.parametrize(("folder", "s3"), [("", None), ("/mnt/x", S3Settings(bucket="team"))])
def test_etcd_has_either_a_folder_or_a_bucket(folder: str, s3: S3Settings | None) -> None:
    etcd = EtcdSettings(endpoints=("http://127.0.0.1:2379",), shared_dir=folder)
    with pytest.raises(Invalid) as caught:
        check(Settings(store=StoreSettings(etcd=etcd, s3=s3)))
    assert caught.value.field == "$.store.etcd.shared_dir"


# ------------------------------------------------------------------------------------------------ one bucket, one store


async def test_dispatchers_with_one_bucket_see_the_same(tmp_path: Path) -> None:
    s3 = settings_for(tmp_path, shared_server())
    etcd = EtcdSettings(endpoints=shared_cluster().endpoints, prefix=f"/{s3.prefix}")
    one, blobs = await open_shared(etcd, s3, tmp_path / "one")
    await one.commit(ROW)
    digest = blobs.put(b"work directory")
    two, others = await open_shared(etcd, s3, tmp_path / "two")
    assert [item.value for item in (await two.range("decision/")).items] == [b"outside", b"outside too"]
    assert others.get(digest) == b"work directory"
    another = EtcdSettings(endpoints=shared_cluster().endpoints, prefix=f"/{s3.prefix}-2")
    with pytest.raises(Invalid, match="does not belong to this store"):
        await open_shared(another, s3, tmp_path / "three")
    await one.close()
    await two.close()


async def test_an_embedded_store_has_a_bucket_of_its_own(tmp_path: Path) -> None:
    s3 = settings_for(tmp_path, shared_server())
    store = SqliteStore.open(tmp_path / "a.db", SystemClock())
    digest = (await open_bucket(store, s3, tmp_path / "s1")).put(b"bytes")
    assert (await open_bucket(store, s3, tmp_path / "s2")).get(digest) == b"bytes"
    await store.close()
    other = SqliteStore.open(tmp_path / "b.db", SystemClock())
    with pytest.raises(Invalid, match="does not belong to this store"):
        await open_bucket(other, s3, tmp_path / "s3")
    await other.close()
    assert KEY not in (tmp_path / "a.db").read_bytes().decode(errors="replace")


async def test_a_folder_is_moved_to_a_bucket(tmp_path: Path) -> None:
    """By a command that may be cut short; before its end the store does not start on the bucket."""
    s3 = settings_for(tmp_path, shared_server())
    settings = Settings(state_dir=str(tmp_path), store=StoreSettings(s3=s3))
    store = SqliteStore.open(tmp_path / "store.db", SystemClock())
    await store.commit(ROW)
    files = FileBlobs(tmp_path / "blobs")
    digests = [files.put(b"%d" % number * 1000) for number in range(3)]
    log = b"line\n" * 100_000
    files.append_log("plc-1/0", 0, log)
    files.append_log("plc-1/0/times", 0, b"times")
    with pytest.raises(Invalid, match="federator store upload"):
        await open_bucket(store, s3, tmp_path / "s1")
    with pytest.raises(Unavailable, match="in use"):
        await upload(settings, tmp_path / "blobs")
    await store.close()
    with pytest.raises(NotFound, match="holds no blobs"):
        await upload(settings, tmp_path)
    for _ in range(2):
        assert await upload(settings, tmp_path / "blobs") == (3, 2)
    store = SqliteStore.open(tmp_path / "store.db", SystemClock())
    blobs = await open_bucket(store, s3, tmp_path / "s1")
    assert [blobs.get(digest) for digest in digests] == [b"%d" % number * 1000 for number in range(3)]
    assert blobs.read_log("plc-1/0", 0, len(log) + 1) == log
    assert blobs.read_log("plc-1/0/times", 0, 10) == b"times"
    await store.close()

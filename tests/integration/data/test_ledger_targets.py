"""The places that the ledger is exported to: a real file, real syslog sockets, and a bucket that moto keeps."""

import asyncio
import os
import re
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from federator.exporting.address import read_address
from federator.exporting.files import FileTarget
from federator.exporting.s3 import S3Target
from federator.exporting.syslog import SyslogTarget
from federator.kernel.errors import Invalid, Unavailable

FIRST, SECOND = (b'{"line":1}', b'{"seal":1}'), (b'{"line":2}', b'{"seal":2}')
NAME = "000000000001-0123456789abcdef"
MESSAGE = re.compile(rb"<110>1 \d{4}-\d\d-\d\dT[\d:.]+Z \S+ federator \d+ %s - (.*)" % NAME.encode())


async def test_a_file_is_appended_to_is_ones_own_and_loses_what_a_crash_left_half_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.jsonl"
    target = FileTarget(path)
    await target.append("1", FIRST)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'{"line":' + b"x" * 200_000)
    await target.append("2", SECOND)
    assert path.read_bytes().splitlines() == [*FIRST, *SECOND]
    path.rename(tmp_path / "ledger.jsonl.1")
    await target.append("3", FIRST)
    assert path.read_bytes().splitlines() == [*FIRST]


async def test_a_file_that_cannot_be_written_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    target = FileTarget(path)
    await target.append("1", FIRST)
    write = os.write
    taken: list[int] = []

    def full(descriptor: int, data: memoryview) -> int:
        if taken:
            raise OSError(28, "No space left on device")
        taken.append(write(descriptor, data[:5]))
        return taken[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Unavailable, match="No space left"):
        await target.append("2", SECOND)
    monkeypatch.undo()
    assert path.read_bytes().splitlines() == [*FIRST]
    with pytest.raises(Unavailable, match="No such file"):
        await FileTarget(tmp_path / "nowhere" / "ledger.jsonl").append("1", FIRST)


def datagrams(server: socket.socket, number: int) -> list[bytes]:
    return [said(server.recv(65536)) for _ in range(number)]


def said(message: bytes) -> bytes:
    found = MESSAGE.fullmatch(message)
    assert found, message
    return found[1]


async def test_syslog_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "log"
    target = SyslogTarget(read_address(f"syslog://{path}"))
    with pytest.raises(Unavailable):
        await target.append(NAME, FIRST)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(10)
        await target.append(NAME, FIRST)
        assert datagrams(server, 2) == [*FIRST]


async def test_syslog_by_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        await SyslogTarget(read_address(f"syslog://127.0.0.1:{server.getsockname()[1]}")).append(NAME, FIRST)
        assert datagrams(server, 2) == [*FIRST]


async def test_syslog_by_tcp_is_done_when_the_server_has_read_all() -> None:
    taken: list[bytes] = []
    breaks = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if breaks:
            await reader.readexactly(1)
            link = writer.get_extra_info("socket")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return
        data = await reader.read()
        while data:
            size, _, rest = data.partition(b" ")
            taken.append(said(rest[: int(size)]))
            data = rest[int(size) :]
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        target = SyslogTarget(read_address(f"syslog+tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        with pytest.raises(Unavailable):
            await target.append(NAME, FIRST)
        breaks = False
        await target.append(NAME, FIRST)
    assert taken == [*FIRST]


async def test_a_bucket_has_one_object_for_each_seal(s3: Any) -> None:
    target = S3Target(read_address("s3://team/federator/ledger"))
    for _ in range(2):
        await target.append(NAME, FIRST)
    await target.append("000000000002-fedcba9876543210", SECOND)
    found = s3.list_objects_v2(Bucket="team")["Contents"]
    keys = [each["Key"] for each in found]
    assert keys == [
        f"federator/ledger/{NAME}.jsonl",
        "federator/ledger/000000000002-fedcba9876543210.jsonl",
    ]
    bodies = [s3.get_object(Bucket="team", Key=key)["Body"].read() for key in keys]
    assert b"".join(bodies).splitlines() == [*FIRST, *SECOND]
    with pytest.raises(Unavailable, match="refused with NoSuchBucket"):
        await S3Target(read_address("s3://nobody/x")).append(NAME, FIRST)


@pytest.mark.parametrize(
    "text",
    [
        "ledger.jsonl",
        "file://host/ledger.jsonl",
        "file:///folder/",
        "file:///",
        "syslog:///",
        "syslog://host/dev/log",
        "syslog://host:99999",
        "syslog+tcp:///dev/log",
        "s3:///prefix",
        "s3://bucket:1/prefix",
        "https://example.org/ledger",
        "s3://key:secret@bucket/prefix",
        "s3://bucket/prefix?x=1",
    ],
)
def test_an_address_that_is_none_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_address(text, "$.ledger.export[0]")
    assert caught.value.field == "$.ledger.export[0]"
    assert "secret" not in caught.value.describe()

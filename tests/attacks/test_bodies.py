"""Large bodies: none is held in memory, none outgrows its limit, and nobody takes all places for them."""

import asyncio
import gzip
import io
import itertools
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from federator.api.exchange import READ_BYTES, SMALL_BYTES, Call
from federator.api.transfers import TRANSFERS, Transfers
from federator.client import workdir
from federator.kernel import tars
from federator.kernel.errors import Invalid, TooLarge
from federator.kernel.ids import content_hash
from federator.kernel.tars import HEADER_BYTES, members
from federator.settings import LimitSettings
from federator.store.blobs import FileBlobs, MemoryBlobs
from federator.store.drafts import MemoryDraft
from federator.wire.http import TokenRequest
from federator_agent import archives
from federator_agent.kube import commands, outputs
from tests.attacks.test_connections import port
from tests.integration.api.rig import ROOT, Rig, archive
from tests.integration.api.test_agents import placed
from tests.support.waiting import until


def limit(rig: Rig, **changes: int) -> None:
    """Other limits from now on."""
    limits = msgspec.structs.replace(LimitSettings(), **changes)
    rig.world.core.settings = msgspec.structs.replace(rig.world.core.settings, limits=limits)


async def chunked(data: bytes) -> AsyncIterator[bytes]:
    """A body whose length nobody is told."""
    yield data


async def test_an_upload_is_written_as_it_comes_and_never_held_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    write = MemoryDraft.write

    def counted(self: MemoryDraft, part: bytes) -> None:
        parts.append(len(part))
        write(self, part)

    monkeypatch.setattr(MemoryDraft, "write", counted)
    data = b"\x1f\x8b" + bytes(8 * 2**20)
    answer = await rig.ask("PUT", f"/v1/blobs/{content_hash(data)}", data=io.BytesIO(data))
    assert answer.status == 201, answer.data
    assert sum(parts) == len(data)
    assert max(parts) <= READ_BYTES
    assert rig.world.core.blobs.get(content_hash(data)) == data


async def test_an_agents_outputs_and_a_users_download_go_part_by_part(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await rig.agent()
    assert agent.joined is not None
    row = await placed(rig, agent.joined.member, outputs=["*"])
    data = b"\x1f\x8b" + bytes(2**20)
    assert (await agent.ask("PUT", f"/agent/v1/outputs/{row.id}", data=io.BytesIO(data))).status == 201

    def whole(self: MemoryBlobs, digest: str) -> bytes:
        raise AssertionError("the blob was read whole")

    monkeypatch.setattr(MemoryBlobs, "get", whole)
    answer = await rig.ask("GET", f"/v1/jobs/{row.job}/outputs")
    assert answer.data == data
    assert answer.headers["Content-Length"] == str(len(data))


@pytest.mark.parametrize("told", [True, False])
async def test_an_upload_over_the_limit_is_refused_as_it_comes_and_leaves_nothing(
    rig: Rig, tmp_path: Path, told: bool
) -> None:
    limit(rig, blob_mib=1)
    blobs = rig.world.core.blobs = FileBlobs(tmp_path)
    data = b"\x1f\x8b" + bytes(2 * 2**20)
    answer = await rig.ask(
        "PUT", f"/v1/blobs/{content_hash(data)}", data=io.BytesIO(data) if told else chunked(data)
    )
    assert answer.status == 413
    assert answer.problem["remedy"] == "send less, or raise the limit"
    assert not blobs.has(content_hash(data))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_one_user_cannot_take_all_places_for_uploads(rig: Rig) -> None:
    transfers = Transfers(3, 2)
    rig.client.app._state[TRANSFERS] = transfers  # noqa: SLF001 - aiohttp lets nobody change an app that runs
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"\x1f\x8b"
        await go_on.wait()

    path = f"/v1/blobs/{content_hash(bytes((0x1F, 0x8B)))}"
    held = [asyncio.create_task(rig.ask("PUT", path, data=slowly())) for _ in range(2)]
    await until(lambda: transfers.present == 2, "both uploads to be under way")
    refused = await rig.ask("PUT", path, data=archive(a="b"))
    assert refused.status == 429
    assert "user ada has 2 uploads and downloads under way" in refused.problem["detail"]
    assert int(refused.headers["Retry-After"]) >= 1
    data = archive(a="b")
    other = await rig.ask("PUT", f"/v1/blobs/{content_hash(data)}", "bob", data=data)
    assert other.status == 201, "another user has places of their own"
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [201, 201]
    assert transfers.present == 0


@pytest.mark.parametrize("path", ["/agent/v1/join", "/agent/v1/key"])
@pytest.mark.parametrize("told", [True, False])
async def test_where_no_one_is_known_a_body_is_small(rig: Rig, path: str, told: bool) -> None:
    """An unknown field with a name of megabytes took seconds to be refused, and no token to send."""
    made = await rig.world.core.admission.create_token(ROOT, TokenRequest(site="north", kind="onprem"))
    data = b'{"' + b"x" * SMALL_BYTES + b'": 1}'
    headers = {"Authorization": f"Bearer {made.secret}", "Content-Type": "application/json"}
    answer = await rig.ask("POST", path, None, headers=headers, data=data if told else chunked(data))
    assert answer.status == 413
    assert answer.problem["detail"] == "the body is larger than 16 KiB"


async def test_an_agent_shows_its_token_before_its_body_is_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(self: Call, limit: int) -> bytes:
        raise AssertionError("a body was read of somebody without a token")

    monkeypatch.setattr(Call, "_read", read)
    headers = {"Authorization": "Bearer never-made"}
    assert (await rig.ask("POST", "/agent/v1/join", None, headers=headers, json={})).status == 401
    assert (await rig.ask("POST", "/agent/v1/join", None, json={})).status == 401
    assert (await rig.ask("POST", "/v1/jobs", None, json={"run": "true"})).status == 401


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "x-gzip, gzip"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/jobs"), ("PUT", "/v1/blobs/" + "0" * 64), ("POST", "/agent/v1/key")]
)
async def test_no_body_is_inflated(rig: Rig, method: str, path: str, coding: str) -> None:
    """A request of 15 KB was 16 MB when it was read."""
    body = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.secrets['ada']}\r\n"
    body += f"Content-Type: application/json\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\n{{}}"
    async with port(rig) as served:
        reader = await served.say(body.encode())
        assert b" 415 " in await reader.readline()
        answer = await reader.readuntil(b"}")
        assert b"send it as it is, without Content-Encoding" in answer


async def test_a_body_that_comes_drop_by_drop_is_refused(rig: Rig) -> None:
    head = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
    head += f"Authorization: Bearer {rig.secrets['ada']}\r\n\r\n{{"
    async with port(rig, body_s=0.1) as served:
        reader = await served.say(head.encode())
        assert b" 408 " in await reader.readline()
        answer = await reader.readuntil(b"}")
        assert b"less than 1024 bytes a second" in answer


# ---------------------------------------------------------------------------------------- archives that expand


def bomb(kind: bytes, size: int) -> bytes:
    """An archive whose one header of that kind declares so much text before its member."""
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = kind, size
    plain = head.tobuf(tarfile.GNU_FORMAT) + bytes(size) + tarfile.TarInfo("a").tobuf()
    return gzip.compress(plain + bytes(10240), 1)


class Counted(io.BytesIO):
    """What was read of the archive."""

    seen = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.seen += len(data)
        return data


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_an_archive_whose_headers_expand_is_refused_before_they_are_read(kind: bytes, tmp_path: Path) -> None:
    data = bomb(kind, 64 * HEADER_BYTES)
    assert len(data) < HEADER_BYTES
    source = Counted(data)
    with pytest.raises(Invalid, match="1 MiB of headers"):
        list(members(source))
    assert source.seen < len(data) / 2, "the rest was not even read"
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(Invalid, match="1 MiB of headers"):
        archives.unpack(tmp_path / "a.tar.gz", tmp_path / "work")


def merged(archive: Path, into: Path) -> None:
    outputs.merge([archive], into)


def checked(archive: Path, into: Path) -> None:
    del into
    outputs.check(archive)


def downloaded(archive: Path, into: Path) -> None:
    with archive.open("rb") as file:
        workdir.unpack(file, into)


READERS: list[Callable[[Path, Path], None]] = [merged, checked, downloaded]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_outputs_whose_headers_expand_are_refused_by_who_merges_and_who_downloads(
    tmp_path: Path, kind: bytes, read: Callable[[Path, Path], None]
) -> None:
    """A pod, or another member of a gang, may have written them: 64 KiB came to GiB of memory."""
    (tmp_path / "a.tar.gz").write_bytes(bomb(kind, 2 * HEADER_BYTES))
    with pytest.raises(Invalid, match="1 MiB of headers"):
        read(tmp_path / "a.tar.gz", tmp_path / "out")


@pytest.mark.parametrize("read", READERS)
def test_outputs_are_bounded_in_members_and_in_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path, Path], None]
) -> None:
    defaults = cast("dict[str, Any]", tars.members.__kwdefaults__)
    monkeypatch.setitem(defaults, "most_members", 1)
    (tmp_path / "a.tar.gz").write_bytes(archive(a="x", b="y"))
    with pytest.raises(Invalid, match="over 1 members"):
        read(tmp_path / "a.tar.gz", tmp_path / "out")
    monkeypatch.setitem(defaults, "most_members", 10)
    monkeypatch.setitem(defaults, "most_bytes", 4096)
    monkeypatch.setattr(outputs, "MAX_BYTES", 4096)
    monkeypatch.setattr(workdir, "UNPACKED_BYTES", 4096)
    (tmp_path / "a.tar.gz").write_bytes(archive(a="x" * 5000))
    with pytest.raises(Invalid, match="larger than"):
        read(tmp_path / "a.tar.gz", tmp_path / "out")


def test_ranks_together_have_no_more_outputs_than_one_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MAX_BYTES", 6000)
    for rank, name in enumerate("ab"):
        (tmp_path / f"{rank}.tar.gz").write_bytes(archive(**{name: "x" * 4000}))
    with pytest.raises(Invalid, match="larger than"):
        outputs.merge([tmp_path / "0.tar.gz", tmp_path / "1.tar.gz"], tmp_path / "all")


class Said:
    """The API server, which passes on what a pod writes, without an end."""

    def __init__(self) -> None:
        self.pieces = 0

    @asynccontextmanager
    async def run(self, *_: object, **__: object) -> AsyncIterator["Said"]:
        yield self

    async def output(self) -> AsyncIterator[bytes]:
        while True:
            self.pieces += 1
            yield bytes(2**20)

    async def send(self, data: bytes) -> None:
        pass


async def test_a_pod_that_never_ends_to_write_is_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, api = Said(), cast("Any", None)
    monkeypatch.setattr(commands, "run", said.run)
    with pytest.raises(TooLarge, match="over 64 MiB"):
        await commands.done(api, "pod", commands.LIST, "uid")
    assert said.pieces == 65

    async def listed(*_: object) -> str:
        return "./a\0"

    monkeypatch.setattr(commands, "done", listed)
    monkeypatch.setattr(outputs, "MAX_BYTES", 2**21)
    with pytest.raises(TooLarge, match="the outputs are over"):
        await outputs.fetch(api, "pod", "uid", ["*"], tmp_path / "a.tar.gz")
    assert said.pieces == 65 + 3
    assert not (tmp_path / "a.tar.gz").exists()


class Spoken(commands.Command):
    """A command that writes these pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    async def output(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def test_a_line_that_never_ends_is_refused() -> None:
    """It was kept whole, and joined anew with each piece that came."""
    numbers = itertools.count()
    with pytest.raises(TooLarge, match="a line of over 4096 bytes"):
        [line async for line in Spoken(b"x" * 1000 for _ in numbers).lines()]
    assert next(numbers) == 5
    with pytest.raises(TooLarge, match="a line of over 4096 bytes"):
        [line async for line in Spoken(iter([b"x" * 5000 + b"\n"])).lines()]
    whole = Spoken(iter([b"wa", b"nt\nsta", b"ged\n", b"x" * 4096 + b"\n"]))
    assert [line async for line in whole.lines()] == ["want", "staged", "x" * 4096]


def test_an_archive_is_bounded_in_members_and_in_size() -> None:
    with pytest.raises(Invalid, match="over 1 members"):
        list(members(io.BytesIO(archive(a="x", b="y")), most_members=1))
    with pytest.raises(Invalid, match="larger than"):
        list(members(io.BytesIO(archive(a="x" * 5000)), most_bytes=4096))


def test_reading_an_archive_keeps_no_list_of_its_members() -> None:
    kept = [len(tar.__dict__["members"]) for tar, _ in members(io.BytesIO(archive(a="x", b="y", c="z")))]
    assert max(kept) == 1

"""Inputs are brought once, whole, under their names; what cannot be had is said, and disks are not overrun."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from federator.kernel.errors import FederatorError, Forbidden, Invalid, NotFound, NotSupported, Unavailable
from federator.retry import Backoff
from federator.wire.inputs import name_of
from federator_agent import job_folders
from federator_agent.data import patience
from federator_agent.data.inputs import Inputs, NoRoom
from federator_agent.data.sources import Item, Moved, Sources, WebRules
from tests.support.data_rules import ANYWHERE
from tests.support.waiting import until

HERE = WebRules(networks=("127.0.0.0/8",))
"""A site on whose own host a web server is."""


class Disk:
    """Inputs under a directory, and what was said meanwhile."""

    def __init__(self, folder: Path, limit_bytes: int | None = None, sources: Sources | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.said, self.used = folder, "", set[Path]()
        self.inputs = Inputs(folder, sources or Sources(ANYWHERE), limit_bytes)

    async def bring(self, uri: str) -> Path:
        return await self.inputs.bring(uri, lambda: self.used, self._note, web=HERE)

    def _note(self, text: str) -> None:
        self.said += text


async def test_an_object_and_a_prefix_of_objects(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="team", Key="sets/a/one.bin", Body=b"1" * 1000)
    s3.put_object(Bucket="team", Key="sets/a/deep/two.bin", Body=b"22")
    s3.put_object(Bucket="team", Key="sets/abc.bin", Body=b"no")
    disk = Disk(tmp_path / "inputs")
    one = await disk.bring("s3://team/sets/a/one.bin")
    assert (one.name, one.read_bytes()) == ("one.bin", b"1" * 1000)
    whole = await disk.bring("s3://team/sets/a")
    files = {str(path.relative_to(whole)): path.stat().st_size for path in whole.rglob("*") if path.is_file()}
    assert files == {"one.bin": 1000, "deep/two.bin": 2}


async def test_it_is_fetched_once_for_all_and_again_when_it_has_changed(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="team", Key="data", Body=b"old")
    disk = Disk(tmp_path / "inputs")
    first, second = await asyncio.gather(disk.bring("s3://team/data"), disk.bring("s3://team/data"))
    assert first == second
    assert disk.said.count("brought") == 1
    assert disk.said.count("here already") == 1
    s3.put_object(Bucket="team", Key="data", Body=b"new")
    changed = await disk.bring("s3://team/data")
    assert (first.read_bytes(), changed.read_bytes()) == (b"old", b"new")


async def test_what_is_not_there_is_named_with_the_remedy(s3: Any, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "inputs")
    for uri in ("s3://team/nothing", "s3://nobody/at-all"):
        with pytest.raises(NotFound, match=uri.replace("/", ".")) as error:
            await disk.bring(uri)
        assert error.value.remedy
    with pytest.raises(NotFound, match="file"):
        await disk.bring(f"file://{tmp_path}/nothing")
    with pytest.raises(Invalid, match="ftp"):
        await disk.bring("ftp://somewhere/x")


async def test_no_credentials_are_said_to_be_missing(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del s3
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(Forbidden, match="no credentials"):
        await Disk(tmp_path / "inputs").bring("s3://team/x")


async def test_files_of_the_site_are_used_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "my set").mkdir()
    disk = Disk(tmp_path / "inputs")
    assert await disk.bring(f"file://{tmp_path}/my%20set") == tmp_path / "my set"
    assert list((tmp_path / "inputs").iterdir()) == []


async def test_the_least_recently_read_goes_and_what_is_in_use_stays(s3: Any, tmp_path: Path) -> None:
    for name in "abc":
        s3.put_object(Bucket="team", Key=name, Body=name.encode() * 400_000)
    disk = Disk(tmp_path / "inputs", limit_bytes=1_000_000)
    a, b = await disk.bring("s3://team/a"), await disk.bring("s3://team/b")
    disk.used = {a.parent.parent}
    c = await disk.bring("s3://team/c")
    assert (a.exists(), b.exists(), c.exists()) == (True, False, True)
    disk.used = {a.parent.parent, c.parent.parent}
    with pytest.raises(NoRoom, match=r"need 400 kB more.*room for 200 kB"):
        await disk.bring("s3://team/b")


class Slow:
    """A source that breaks off as often as it is told, and notices when nobody waits any more."""

    link = None

    def __init__(self, breaks: int) -> None:
        self.breaks, self.fetched, self.items_asked = breaks, list[str](), 0
        self.hang = asyncio.Event()

    async def items(self, uri: str) -> list[Item]:
        self.items_asked += 1
        return [Item("x", 3, "1"), Item("y", 3, "1")]

    async def fetch(self, uri: str, item: Item, into: Path, moved: Moved) -> None:
        into.write_bytes(b"12")
        if item.name == "y" and self.breaks > 0:
            self.breaks -= 1
            raise Unavailable("the wire was cut")
        if item.name == "y" and self.breaks < 0:
            await self.hang.wait()
        into.write_bytes(b"123")
        moved(3)
        self.fetched.append(item.name)


class Only(Sources):
    """Knows one source, for all addresses."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def of(self, uri: str, web: WebRules = HERE) -> Any:
        return self.source


async def test_a_broken_transfer_is_tried_again_and_never_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "BACKOFF", Backoff(0.001, 0.1))
    source = Slow(breaks=3)
    disk = Disk(tmp_path / "inputs", sources=Only(source))
    data = await disk.bring("s3://any/thing")
    assert {path.name: path.read_bytes() for path in data.iterdir()} == {"x": b"123", "y": b"123"}
    assert disk.said.count("the wire was cut; trying again") == 3
    assert source.fetched == ["x", "y"]


async def test_trouble_that_lasts_is_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "BACKOFF", Backoff(0.001, 0.002))
    calls = 0

    async def fail() -> None:
        nonlocal calls
        calls += 1
        raise Unavailable("no")

    with pytest.raises(Unavailable):
        await patience.patiently(fail, lambda _: None, patience_s=0.05)
    assert calls > 1


async def test_a_transfer_that_was_given_up_goes_on_where_it_was(tmp_path: Path) -> None:
    source = Slow(breaks=-1)
    disk = Disk(tmp_path / "inputs", sources=Only(source))
    task = asyncio.create_task(disk.bring("s3://any/thing"))
    while "x" not in source.fetched:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(path.name.startswith(".") for path in (tmp_path / "inputs").iterdir())
    source.hang.set()
    again = Disk(tmp_path / "inputs", sources=Only(source))
    data = await again.bring("s3://any/thing")
    assert sorted(path.name for path in data.iterdir()) == ["x", "y"]
    assert source.fetched == ["x", "y"]


async def test_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    class Bad(Slow):
        async def items(self, uri: str) -> list[Item]:
            return [Item("../../etc/passwd", 3, "1")]

    with pytest.raises(Invalid, match="passwd"):
        await Disk(tmp_path / "inputs", sources=Only(Bad(0))).bring("s3://any/thing")


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """A web server with one file, one that is forbidden, and one that is cut short."""

    async def whole(_: web.Request) -> web.Response:
        return web.Response(body=b"hello", headers={"ETag": '"1"'})

    async def shut(_: web.Request) -> web.Response:
        return web.Response(status=403)

    application = web.Application()
    application.router.add_get("/file.bin", whole)
    application.router.add_get("/shut", shut)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


async def test_a_file_of_a_web_server(server: str, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "inputs")
    file = await disk.bring(f"{server}/file.bin")
    assert (file.name, file.read_bytes()) == ("file.bin", b"hello")
    with pytest.raises(Forbidden, match="403"):
        await disk.bring(f"{server}/shut")
    with pytest.raises(NotFound, match="404"):
        await disk.bring(f"{server}/nothing")


async def test_nothing_is_put_to_a_web_server(tmp_path: Path) -> None:
    with pytest.raises(NotSupported) as error:
        await Sources(ANYWHERE).of("https://x/y").put(tmp_path, "https://x/y")
    assert isinstance(error.value, FederatorError)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://team/sets/imagenet", "imagenet"),
        ("s3://team", "team"),
        ("http://x/a/..%2F..%2F.ssh%2Fauthorized_keys", ".._.._.ssh_authorized_keys"),
        ("http://x/%2E%2E", "input"),
        ("http://x/.", "x"),
        ("http://x/a%00b", "a_b"),
    ],
)
def test_a_name_is_one_part_of_a_path(uri: str, name: str) -> None:
    assert name_of(uri) == name


async def test_what_is_being_dropped_is_not_taken_for_whole(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        s3.put_object(Bucket="team", Key=name, Body=name.encode() * 400_000)
    disk = Disk(tmp_path / "inputs", limit_bytes=500_000)
    await disk.bring("s3://team/a")
    removing, go_on = threading.Event(), threading.Event()
    remove = job_folders.remove

    def slow(path: Path) -> None:
        removing.set()
        go_on.wait(60)
        remove(path)

    monkeypatch.setattr("federator_agent.data.inputs.job_folders.remove", slow)
    other = asyncio.create_task(disk.bring("s3://team/b"))
    await until(removing.is_set, "the removal to begin")
    (part,) = disk.folder.glob(".*.part")
    disk.used, disk.said = {disk.folder / part.name.removeprefix(".").removesuffix(".part")}, ""
    again = asyncio.create_task(disk.bring("s3://team/a"))
    await until(lambda: len([*disk.folder.glob(".*.part")]) == 2, "it to be brought anew")
    go_on.set()
    assert (await other).read_bytes() == b"b" * 400_000
    with pytest.raises(NoRoom):
        await again
    assert "here already" not in disk.said

"""What a job saves at one site is there at the next, whole; what is older never replaces what is newer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import Damaged
from federator_agent.data.checkpoints import Checkpoints, JobCheckpoints, files_in
from federator_agent.data.sources import Sources
from tests.support.data_rules import ANYWHERE


class Home:
    """One site: a disk, and what its agent remembers."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.uri, self.sources = uri, Sources(ANYWHERE)
        self.folder = folder / "checkpoints"
        (folder / "saved").mkdir(parents=True)
        self.folder.mkdir()
        self.checkpoints = Checkpoints(folder / "saved", self.sources)

    def kept(self, part: int = 0) -> JobCheckpoints:
        return self.checkpoints.of(self.uri, "job", part)

    async def begin(self, epoch: int, part: int = 0) -> None:
        await self.checkpoints.bring(self.kept(part), "job", epoch, self.folder, lambda _: None)

    async def end(self, epoch: int, part: int = 0) -> bool:
        return await self.checkpoints.push(self.kept(part), "job", epoch, self.folder, last=True)

    def save(self, text: str, name: str = "step") -> None:
        (self.folder / name).write_text(text)

    def saved(self, name: str = "step") -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/shared"
    request.getfixturevalue("s3")
    return "s3://team/checkpoints"


async def test_the_next_site_goes_on_where_the_last_one_stopped(uri: str, tmp_path: Path) -> None:
    a, b = Home(tmp_path / "a", uri), Home(tmp_path / "b", uri)
    await a.begin(1)
    a.save("100")
    assert await a.end(1)
    await b.begin(2)
    assert b.saved() == "100"
    b.save("200")
    assert await b.end(2)
    await a.begin(3)
    assert a.saved() == "200"


async def test_a_site_keeps_its_own_when_nobody_has_saved_since(uri: str, tmp_path: Path) -> None:
    a, b = Home(tmp_path / "a", uri), Home(tmp_path / "b", uri)
    await a.begin(1)
    a.save("100")
    assert await a.end(1)
    a.save("150")  # a crash: this was never pushed
    await b.begin(2)  # which saves nothing
    assert not await b.end(2)
    await a.begin(3)
    assert a.saved() == "150"


async def test_what_has_gone_at_the_last_site_has_gone_at_the_next(uri: str, tmp_path: Path) -> None:
    a, b = Home(tmp_path / "a", uri), Home(tmp_path / "b", uri)
    await b.begin(1)
    b.save("old", "step-1")
    assert await b.end(1)
    await a.begin(2)
    (a.folder / "step-1").unlink()
    a.save("new", "step-2")
    assert await a.end(2)
    await b.begin(3)
    assert (b.saved("step-1"), b.saved("step-2")) == ("", "new")


async def test_nothing_is_pushed_twice_and_old_archives_go(uri: str, tmp_path: Path) -> None:
    a = Home(tmp_path / "a", uri)
    await a.begin(1)
    for step in range(5):
        a.save(str(step) * (step + 1))
        assert await a.end(1)
        assert not await a.end(1)
    names = [item.name for item in await a.sources.of(uri).items(f"{uri}/job")]
    assert names == ["000001-000004-0.tar.gz", "000001-000005-0.tar.gz", "latest-000001-0.json"]


async def test_an_earlier_attempt_never_replaces_a_later_one(uri: str, tmp_path: Path) -> None:
    """It was cut off, and comes back after the job has gone on elsewhere."""
    a, b, c = (Home(tmp_path / name, uri) for name in "abc")
    await a.begin(1)
    await b.begin(2)
    b.save("later")
    assert await b.end(2)
    a.save("earlier")
    await a.end(1)
    await c.begin(3)
    assert c.saved() == "later"


async def test_the_ranks_of_several_members_come_together(uri: str, tmp_path: Path) -> None:
    a, b, c = (Home(tmp_path / name, uri) for name in "abc")
    await a.begin(1, part=0)
    await b.begin(1, part=2)
    a.save("of rank 0", "rank-0")
    b.save("of rank 2", "rank-2")
    assert await a.end(1, part=0)
    assert await b.end(1, part=2)
    await c.begin(2)
    assert (c.saved("rank-0"), c.saved("rank-2")) == ("of rank 0", "of rank 2")


async def test_a_checkpoint_that_is_being_written_is_not_pushed(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Home(tmp_path / "a", uri)
    await a.begin(1)
    a.save("half")
    count = 0

    def busy(folder: Path) -> Any:
        nonlocal count
        count += 1
        return (*files_in(folder), ("more", count, 0))

    monkeypatch.setattr("federator_agent.data.checkpoints.files_in", busy)
    assert not await a.checkpoints.push(a.kept(), "job", 1, a.folder, last=False)
    assert await a.kept().pointers() == []
    monkeypatch.undo()


async def test_a_damaged_archive_is_not_unpacked(uri: str, tmp_path: Path) -> None:
    a, b = Home(tmp_path / "a", uri), Home(tmp_path / "b", uri)
    await a.begin(1)
    a.save("100")
    await a.end(1)
    other = tmp_path / "other"
    other.write_bytes(b"nonsense")
    await a.sources.of(uri).put(other, f"{uri}/job/000001-000001-0.tar.gz")
    with pytest.raises(Damaged, match="is not the checkpoint"):
        await b.begin(2)
    assert files_in(b.folder) == ()


async def test_two_pushes_at_once_leave_the_pointer_at_a_whole_one(uri: str, tmp_path: Path) -> None:
    a, b, c = (Home(tmp_path / name, uri) for name in "abc")
    await a.begin(1, part=0)
    await b.begin(1, part=1)
    a.save("x", "rank-0")
    b.save("y", "rank-1")
    await asyncio.gather(a.end(1, part=0), b.end(1, part=1))
    await c.begin(2)
    assert (c.saved("rank-0"), c.saved("rank-1")) == ("x", "y")


async def test_a_push_that_took_long_takes_nothing_back(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before the job went on elsewhere, and ended after that had saved."""
    a, b, c = (Home(tmp_path / name, uri) for name in "abc")
    await a.begin(1)
    a.save("earlier")
    gate, source = asyncio.Event(), a.sources.of(uri)
    put = source.put

    async def slow(file: Path, address: str) -> None:
        await gate.wait()
        await put(file, address)

    monkeypatch.setattr(source, "put", slow)
    late = asyncio.create_task(a.end(1))
    await b.begin(2)
    b.save("later")
    assert await b.end(2)
    gate.set()
    await late
    await c.begin(3)
    assert c.saved() == "later"


async def test_pointers_that_others_wrote_are_not_followed(uri: str, tmp_path: Path) -> None:
    a, b = Home(tmp_path / "a", uri), Home(tmp_path / "b", uri)
    await a.begin(1)
    a.save("mine")
    await a.end(1)
    for words in ('{"epoch":9,"number":1,"archive":"../../x","size_bytes":1,"sha256":""}', "nonsense"):
        (tmp_path / "pointer").write_text(words)
        await a.sources.of(uri).put(tmp_path / "pointer", f"{uri}/job/latest-000009-0.json")
        b.save("stays")
        with pytest.raises(Damaged, match="latest-000009-0"):
            await b.begin(2)
        assert b.saved() == "stays"


async def test_what_is_there_stays_until_the_other_has_come_whole(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = Home(tmp_path / "a", uri), Home(tmp_path / "b", uri)
    await a.begin(1)
    a.save("new")
    await a.end(1)
    b.save("old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("federator_agent.archives.unpack", fail)
    with pytest.raises(OSError, match="full"):
        await b.begin(2)
    assert b.saved() == "old"

"""Where checkpoints and inputs lie at a site, its users may write too: folders of any depth and number, links, pipes, and more than was put there."""

import asyncio
import os
from pathlib import Path

import pytest

from federator.kernel.errors import Damaged, Invalid, NotFound, TooLarge
from federator_agent import clearing
from federator_agent.data import sources
from federator_agent.data.checkpoints import Kept, Pointer
from federator_agent.data.files import FileSource
from federator_agent.data.inputs import Inputs
from federator_agent.data.sources import READ_BYTES, Item, Sources
from tests.attacks.test_hostile_trees import nest


async def test_a_folder_that_is_too_deep_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    nest(tmp_path / "kept", clearing.MOST_LEVELS + 1)
    with pytest.raises(Invalid, match="nested more than 256 deep"):
        await FileSource().items(f"file://{tmp_path}/kept")


async def test_a_folder_with_too_many_files_is_refused_before_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_ITEMS", 3)
    for number in range(5):
        (tmp_path / f"kept-{number}").touch()
    looked = []

    def counted(*args: object, **kwargs: object) -> os.stat_result:
        looked.append(args)
        return stat(*args, **kwargs)  # type: ignore[arg-type]

    stat = os.stat
    monkeypatch.setattr(os, "stat", counted)
    with pytest.raises(TooLarge, match="over 3 files") as refused:
        await FileSource().items(f"file://{tmp_path}")
    assert "archives" in (refused.value.remedy or "")
    assert len([each for each in looked if str(each[0]).startswith("kept-")]) == 4


async def test_a_folder_that_jobs_read_where_it_lies_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million files are an honest input; and each start of a job would have counted them."""
    nest(tmp_path / "data", clearing.MOST_LEVELS + 1)
    (tmp_path / "inputs").mkdir()
    monkeypatch.setattr(clearing, "walk", None)
    uri = f"file://{tmp_path}/data"
    found = await Inputs(tmp_path / "inputs", Sources(), None).bring(uri, set, lambda _: None)
    assert found == tmp_path / "data"


async def test_links_lead_nowhere_and_pipes_are_not_there(tmp_path: Path) -> None:
    """The agent may be root: a link would have it copy what the job may not read. A pipe would keep its thread for ever."""
    (tmp_path / "secret").write_text("of root")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "file").touch()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "plain").write_text("x")
    (kept / "link").symlink_to(tmp_path / "secret")
    (kept / "folder").symlink_to(tmp_path / "private")
    os.mkfifo(kept / "pipe")
    source = FileSource()
    assert [item.name for item in await source.items(f"file://{kept}")] == ["plain"]
    for name in ("link", "pipe"):
        with pytest.raises(NotFound, match="no plain file"):
            await source.read(f"file://{kept}/{name}")
        with pytest.raises(NotFound, match="no plain file"):
            await source.fetch(f"file://{kept}", Item(name, 0, ""), tmp_path / "copy", lambda _: None)
    assert not (tmp_path / "copy").exists()


async def test_what_is_read_at_once_is_small(tmp_path: Path) -> None:
    with (tmp_path / "latest").open("wb") as file:
        file.truncate(READ_BYTES * 1000)
    with pytest.raises(Invalid, match="longer than"):
        await FileSource().read(f"file://{tmp_path}/latest")


async def test_a_folder_in_the_place_of_a_checkpoint_is_called_damaged(tmp_path: Path) -> None:
    pointer = Pointer(1, 1, "000001-000001-0.tar.gz", 1, "0" * 64)
    nest(tmp_path / "job" / pointer.archive, 2)
    with pytest.raises(Damaged, match="is a folder"):
        await Kept(Sources(), f"file://{tmp_path}", "job", 0).fetch(pointer, tmp_path / "into")


async def test_many_files_of_an_input_make_few_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for each of two million files takes GBs before the first has come."""
    most, got = 0, 0

    class Many:
        async def items(self, uri: str) -> list[Item]:
            return [Item(f"{number}", 0, "") for number in range(100)]

        async def fetch(self, uri: str, item: Item, into: Path, moved: object) -> None:
            nonlocal most, got
            most, got = max(most, len(asyncio.all_tasks())), got + 1
            await asyncio.sleep(0)
            into.touch()

    (tmp_path / "inputs").mkdir()
    kinds = Sources()
    monkeypatch.setattr(kinds, "of", lambda *_: Many())
    await Inputs(tmp_path / "inputs", kinds, None).bring("s3://b/many", set, lambda _: None)
    assert got == 100
    assert most <= 10

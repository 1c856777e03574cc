"""Where checkpoints and inputs lie at a site, its users may write too: folders of any depth and number, links, pipes, and more than was put there."""

import asyncio
import os
from pathlib import Path

import pytest

from federator.kernel.errors import Damaged, FederatorError, Forbidden, Invalid, NotFound, TooLarge
from federator_agent import job_folders
from federator_agent.data import sources
from federator_agent.data.allowed import Allowed, DataRules
from federator_agent.data.checkpoints import JobCheckpoints, Pointer
from federator_agent.data.files import FileSource
from federator_agent.data.inputs import Inputs
from federator_agent.data.sources import READ_BYTES, Item, Sources
from tests.attacks.test_hostile_trees import nest
from tests.support.data_rules import ANYWHERE


async def test_a_folder_that_is_too_deep_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    nest(tmp_path / "kept", job_folders.MOST_LEVELS + 1)
    with pytest.raises(Invalid, match="nested more than 256 deep"):
        await FileSource(ANYWHERE).items(f"file://{tmp_path}/kept")


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
        await FileSource(ANYWHERE).items(f"file://{tmp_path}")
    assert "archives" in (refused.value.remedy or "")
    assert len([each for each in looked if str(each[0]).startswith("kept-")]) == 4


async def test_a_folder_that_jobs_read_where_it_lies_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million files are an honest input; and each start of a job would have counted them."""
    nest(tmp_path / "data", job_folders.MOST_LEVELS + 1)
    (tmp_path / "inputs").mkdir()
    monkeypatch.setattr(job_folders, "walk", None)
    uri = f"file://{tmp_path}/data"
    found = await Inputs(tmp_path / "inputs", Sources(ANYWHERE), None).bring(uri, set, lambda _: None)
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
    source = FileSource(ANYWHERE)
    assert [item.name for item in await source.items(f"file://{kept}")] == ["plain"]
    for name in ("link", "pipe"):
        with pytest.raises(NotFound, match="not a regular file"):
            await source.read(f"file://{kept}/{name}")
        with pytest.raises(NotFound, match="not a regular file"):
            await source.fetch(f"file://{kept}", Item(name, 0, ""), tmp_path / "copy", lambda _: None)
    assert not (tmp_path / "copy").exists()


async def test_what_is_read_at_once_is_small(tmp_path: Path) -> None:
    with (tmp_path / "latest").open("wb") as file:
        file.truncate(READ_BYTES * 1000)
    with pytest.raises(Invalid, match="longer than"):
        await FileSource(ANYWHERE).read(f"file://{tmp_path}/latest")


async def test_a_folder_in_the_place_of_a_checkpoint_is_called_damaged(tmp_path: Path) -> None:
    pointer = Pointer(1, 1, "000001-000001-0.tar.gz", 1, "0" * 64)
    nest(tmp_path / "job" / pointer.archive, 2)
    with pytest.raises(Damaged, match="is a folder"):
        await JobCheckpoints(Sources(ANYWHERE), f"file://{tmp_path}", "job", 0).fetch(
            pointer, tmp_path / "into", lambda _: None
        )


async def test_many_files_of_an_input_make_few_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task for each of two million files takes GBs before the first has come."""
    most, got = 0, 0

    class Many:
        link = None

        async def items(self, uri: str) -> list[Item]:
            return [Item(f"{number}", 0, "") for number in range(100)]

        async def fetch(self, uri: str, item: Item, into: Path, moved: object) -> None:
            nonlocal most, got
            most, got = max(most, len(asyncio.all_tasks())), got + 1
            await asyncio.sleep(0)
            into.touch()

    (tmp_path / "inputs").mkdir()
    kinds = Sources(ANYWHERE)
    monkeypatch.setattr(kinds, "of", lambda *_: Many())
    await Inputs(tmp_path / "inputs", kinds, None).bring("s3://b/many", set, lambda _: None)
    assert got == 100
    assert most <= 10


# ------------------------------------------------------------------------------------------- the folder of a job


EPOCH = Pointer(epoch=1, number=1, archive="000001-000001-0.tar.gz", size_bytes=1, sha256="")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where checkpoints are kept, with something beside it that is none of the job's."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "others").mkdir()
    for name in ("latest-000001-0.json", "000001-000001-0.tar.gz", "000001-000002-0.tar.gz"):
        (tmp_path / "others" / name).write_text("of others")
    (tmp_path / "archive.tar.gz").write_text("mine")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def untouched(place: Path) -> bool:
    return names(place / "others") == [
        "000001-000001-0.tar.gz", "000001-000002-0.tar.gz", "latest-000001-0.json",
    ] and {file.read_text() for file in (place / "others").iterdir()} == {"of others"}  # fmt: skip


async def every_use(kept: JobCheckpoints, place: Path) -> None:
    """Whatever an agent does with a job's checkpoints is refused."""
    for use in (
        kept.pointers,
        lambda: kept.push(place / "archive.tar.gz", 9, 1),
        lambda: FileSource(ANYWHERE).read(kept.at("latest-000001-0.json")),
        lambda: FileSource(ANYWHERE).remove(kept.at("latest-000001-0.json")),
    ):
        with pytest.raises(Forbidden, match="is a link"):
            await use()
    with pytest.raises(FederatorError):
        await kept.fetch(EPOCH, place / "copy", lambda _: None)
    assert not (place / "copy").exists()


@pytest.mark.parametrize("target", ["others", "nowhere", "kept"])
async def test_a_link_in_the_place_of_a_jobs_checkpoints_is_not_followed(place: Path, target: str) -> None:
    """Whoever may write there knows the job's id while it waits. The agent, maybe root, wrote and removed files where the link led."""
    (place / "kept" / "j-1").symlink_to(place / target)
    await every_use(JobCheckpoints(Sources(ANYWHERE), f"file://{place}/kept", "j-1", 0), place)
    assert untouched(place)
    assert names(place) == ["archive.tar.gz", "kept", "others"]
    assert names(place / "kept") == ["j-1"]


async def test_a_link_in_the_place_of_an_archive_is_replaced_and_not_written_through(place: Path) -> None:
    """A link to a folder had the new file put into that folder."""
    kept = JobCheckpoints(Sources(ANYWHERE), f"file://{place}/kept", "j-1", 0)
    (place / "kept" / "j-1").mkdir()
    (place / "kept" / "j-1" / "000002-000001-0.tar.gz").symlink_to(place / "others")
    (place / "kept" / "j-1" / "latest-000002-0.json").symlink_to(place / "others" / "latest-000001-0.json")
    await kept.push(place / "archive.tar.gz", 2, 1)
    assert untouched(place)
    (pointer,) = await kept.pointers()
    await kept.fetch(pointer, place / "copy", lambda _: None)
    assert (place / "copy").read_text() == "mine"
    assert not any(file.is_symlink() for file in (place / "kept" / "j-1").iterdir())


def ruled(place: Path, *addresses: str) -> Sources:
    allowed = tuple(Allowed(address) for address in addresses)
    return Sources(DataRules(allowed, (place / "state",), apart=True).check_folder)


async def test_a_folder_that_became_a_link_after_the_job_was_checked_is_refused(place: Path) -> None:
    """The address is checked before a job starts; hours later it may lead elsewhere."""
    (place / "kept" / "ada").mkdir()
    sources = ruled(place, f"file://{place}/kept")
    kept = JobCheckpoints(sources, f"file://{place}/kept/ada", "j-1", 0)
    await kept.push(place / "archive.tar.gz", 1, 1)
    (place / "kept" / "ada").rename(place / "kept" / "bob")
    (place / "kept" / "ada").symlink_to(place / "others")
    with pytest.raises(Forbidden, match=r"leads to .*others"):
        await kept.push(place / "archive.tar.gz", 1, 2)
    with pytest.raises(Forbidden, match=r"leads to .*others"):
        await kept.pointers()
    below = JobCheckpoints(sources, f"file://{place}/kept/ada/deep/er", "j-1", 0)
    with pytest.raises(Forbidden, match=r"leads to .*others"):
        await below.push(place / "archive.tar.gz", 1, 2)
    assert untouched(place)
    (place / "kept" / "ada").unlink()
    (place / "kept" / "ada").symlink_to("bob")
    assert len(await kept.pointers()) == 1, "a link that stays inside is the site's business"


async def test_no_link_leads_into_the_folder_of_the_agent(place: Path) -> None:
    (place / "state").mkdir()
    (place / "kept" / "ada").symlink_to(place / "state")
    sources = Sources(DataRules(None, (place / "state",)).check_folder)
    kept = JobCheckpoints(sources, f"file://{place}/kept/ada", "j-1", 0)
    with pytest.raises(Forbidden, match=r"leads to .*state"):
        await kept.push(place / "archive.tar.gz", 1, 1)
    assert names(place / "state") == []


async def test_folders_that_lack_are_made_and_through_no_link(place: Path) -> None:
    kept = JobCheckpoints(ruled(place, f"file://{place}/kept"), f"file://{place}/kept/a/b", "j-1", 0)
    assert await kept.pointers() == []
    assert names(place / "kept") == [], "nothing is made by looking"
    await kept.push(place / "archive.tar.gz", 1, 1)
    assert (place / "kept/a/b/j-1/latest-000001-0.json").is_file()
    (place / "kept" / "c").symlink_to(place / "others" / "new")
    with pytest.raises(FederatorError):
        await JobCheckpoints(Sources(ANYWHERE), f"file://{place}/kept/c", "j-1", 0).push(
            place / "archive.tar.gz", 1, 1
        )
    assert untouched(place)

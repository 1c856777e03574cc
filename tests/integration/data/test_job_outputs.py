"""Outputs of other jobs come whole under their names, readable for the job's own user, and once for all that read them."""

import asyncio
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid, NotFound
from federator.kernel.ids import content_hash
from federator.model.jobs import InputFrom
from federator.wire.link import OutputArchive
from federator_agent.data import outputs
from federator_agent.data.outputs import JobOutputs
from federator_agent.data.sources import Sources
from tests.support.data_rules import ANYWHERE


class Dispatcher:
    """Has archives, and counts how often one is fetched."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.found: tuple[tuple[OutputArchive, ...], ...] = ()
        self.fetched = 0

    def keep(self, label: str, files: dict[str, str], below: str = "") -> OutputArchive:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(text), 0o755 if name.endswith(".sh") else 0o644
                tar.addfile(info, io.BytesIO(text.encode()))
        digest = content_hash(buffer.getvalue())
        self.blobs[digest] = buffer.getvalue()
        return OutputArchive("job-1", label, digest, len(buffer.getvalue()), below)

    async def inputs(self, placement: str) -> tuple[tuple[OutputArchive, ...], ...]:
        del placement
        return self.found

    async def input(self, placement: str, job: str, digest: str, into: Path) -> None:
        del placement, job
        self.fetched += 1
        into.write_bytes(self.blobs[digest])


class Site:
    """An agent's folder, and what a placement there sees."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dispatcher, self.said = folder, Dispatcher(), ""
        self.outputs = JobOutputs(folder / "kept", self.dispatcher, Sources(ANYWHERE), None)

    async def bring(self, wanted: InputFrom, *found: OutputArchive, placement: str = "plc-1") -> Path:
        self.dispatcher.found = (found,)
        into = self.folder / placement / "inputs"
        await self.outputs.bring(placement, [wanted], into, self._note)
        return into / wanted.name

    def _note(self, text: str) -> None:
        self.said += text


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_all_of_them_or_one_file_or_one_folder(site: Site) -> None:
    made = site.dispatcher.keep("train", {"out/model": "42", "out/run.sh": "#!", "log": "x"})
    whole = await site.bring(InputFrom("job-1", "train"), made)
    assert sorted(path.name for path in whole.rglob("*") if path.is_file()) == ["log", "model", "run.sh"]
    model = await site.bring(InputFrom("job-1", "model", "out/model"), made)
    assert model.read_text() == "42"
    folder = await site.bring(InputFrom("job-1", "start", "out"), made)
    assert sorted(path.name for path in folder.iterdir()) == ["model", "run.sh"]
    again = await site.bring(InputFrom("job-1", "start", "out"), made)
    assert again == folder, "after a restart of the agent the same is done again"
    assert site.dispatcher.fetched == 1
    assert {path.name for path in (site.folder / "plc-1/inputs").iterdir()} == {"train", "model", "start"}


async def test_another_user_may_read_them_and_run_what_may_be_run(site: Site) -> None:
    made = site.dispatcher.keep("train", {"out/model": "42", "out/run.sh": "#!"})
    folder = await site.bring(InputFrom("job-1", "out", "out"), made)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"out": 0o755, "model": 0o644, "run.sh": 0o755}


async def test_tasks_lie_below_their_indices_and_the_first_host_of_a_gang_counts(site: Site) -> None:
    keep = site.dispatcher.keep
    scores = [keep(f"sweep[{index}]", {"score": index, "x": index}, below=index) for index in ("3", "5")]
    found = await site.bring(InputFrom("job-1", "sweep", "score"), *scores)
    assert {str(path.relative_to(found)): path.read_text() for path in found.rglob("score")} == {
        "3/score": "3",
        "5/score": "5",
    }
    assert not [*found.rglob("x")]
    first, second = keep("gang", {"a": "1", "both": "first"}), keep("gang", {"b": "2", "both": "second"})
    gang = await site.bring(InputFrom("job-2", "gang"), first, second)
    assert {path.name: path.read_text() for path in gang.iterdir()} == {"a": "1", "b": "2", "both": "first"}


async def test_what_is_missing_is_told_with_what_there_is(site: Site) -> None:
    made = site.dispatcher.keep("train", {"out/model": "42"})
    with pytest.raises(
        NotFound, match=r"train \(job-1\) has collected no out/modle: it has out/model"
    ) as error:
        await site.bring(InputFrom("job-1", "m", "out/modle"), made)
    assert "did you mean out/model?" in (error.value.remedy or "")
    task = site.dispatcher.keep("sweep[1]", {"other": "x"}, below="1")
    with pytest.raises(NotFound, match="no score: it has other"):
        await site.bring(InputFrom("job-1", "sweep", "score"), task)


async def test_placements_that_read_the_same_share_one_transfer_and_have_a_copy_each(site: Site) -> None:
    made = site.dispatcher.keep("train", {"model": "42"})
    wanted = InputFrom("job-1", "train")
    found = await asyncio.gather(*(site.bring(wanted, made, placement=f"plc-{n}") for n in range(5)))
    assert site.dispatcher.fetched == 1
    (found[0] / "model").write_text("changed")
    assert [(path / "model").read_text() for path in found[1:]] == ["42"] * 4


async def test_what_was_made_here_is_not_fetched_as_long_as_it_is_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a reader of an array, too. Small outputs are not worth the room."""
    monkeypatch.setattr(outputs, "LEAST_OUTPUTS_BYTES", 150)
    keep = site.dispatcher.keep
    small, large = keep("sweep[1]", {"a": "1"}, "1"), keep("sweep[2]", {"a": os.urandom(200).hex()}, "2")
    for made in (small, large):
        archive = site.folder / "outputs.tar.gz"
        archive.write_bytes(site.dispatcher.blobs[made.digest])
        await site.outputs.keep(archive, made.digest)
        archive.unlink()
    found = await site.bring(InputFrom("job-1", "sweep"), small, large)
    assert sorted(str(path.relative_to(found)) for path in found.rglob("a")) == ["1/a", "2/a"]
    assert site.dispatcher.fetched == 1, "the small one"
    for kept in (site.folder / "kept").iterdir():
        if kept.is_dir():
            shutil.rmtree(kept)
    await site.bring(InputFrom("job-1", "sweep"), small, large, placement="plc-2")
    assert site.dispatcher.fetched == 3


async def test_a_link_in_them_is_refused(site: Site) -> None:
    """No honest agent packs any; moved to its input's name, one that stayed inside would lead to other placements."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("out/a/b/model"), io.BytesIO())
        link = tarfile.TarInfo("out/a/b/key")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../key"
        tar.addfile(link)
    digest = content_hash(buffer.getvalue())
    site.dispatcher.blobs[digest] = buffer.getvalue()
    made = OutputArchive("job-1", "train", digest, len(buffer.getvalue()))
    with pytest.raises(Invalid, match="has a link"):
        await site.bring(InputFrom("job-1", "b", "out/a/b"), made)
    assert not [*(site.folder / "plc-1").rglob("key")]

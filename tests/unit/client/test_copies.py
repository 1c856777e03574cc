"""Copies keep what they carry on the disk that it is from or for: the usual folder for such files is memory on many machines."""

import asyncio
import io
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from federator.client.copies import CopyVerbs
from federator.kernel.errors import Invalid
from federator.wire import tunnel
from federator.wire.tunnel import END, STDIN, STDOUT, End


class Inside:
    """The job's end: it says this once it has heard all."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self._heard = asyncio.Event()
        self.took = b""

    async def frames(self) -> AsyncIterator[tuple[int, bytes]]:
        """Output and end."""
        await self._heard.wait()
        yield STDOUT, self._says
        yield END, tunnel.end_frame(End(exit_code=0))[1:]

    async def send(self, channel: int, data: bytes) -> None:
        """Of its input."""
        assert channel == STDIN
        self.took += data

    async def close_input(self) -> None:
        """The last of it."""
        self._heard.set()


class Copies(CopyVerbs):
    """Verbs with one tunnel."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    @asynccontextmanager
    async def tunnel(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """That one."""
        yield self._inside


def usual_folder() -> NoReturn:
    raise AssertionError("the usual folder for temporary files is used")


async def test_a_copy_goes_through_the_folder_of_what_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", usual_folder)
    (tmp_path / "a").write_text("content")
    given = Inside(b"")
    await Copies(given).copy_to("job", tmp_path / "a", "there")
    (tmp_path / "into").mkdir()
    made = await Copies(Inside(given.took)).copy_from("job", "a", tmp_path / "into")
    assert made == tmp_path / "into" / "a"
    assert made.read_text() == "content"
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "a", "into"]
    with tarfile.open(fileobj=io.BytesIO(given.took)) as tar:
        assert tar.getnames() == ["a"]


def linked(*links: tuple[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return data.getvalue()


@pytest.mark.parametrize("target", ["../mine", "..", "deep/../../mine"])
async def test_a_link_to_what_is_beside_the_copy_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Invalid, match="run/link leads out of what is copied"):
        await Copies(Inside(linked(("run/link", target)))).copy_from("job", "run", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


async def test_links_within_a_copy_and_a_link_alone_come_along(tmp_path: Path) -> None:
    links = (("run/last", "steps/9"), ("run/steps/root", ".."))
    await Copies(Inside(linked(*links))).copy_from("job", "run", tmp_path)
    await Copies(Inside(linked(("alone", "steps/9")))).copy_from("job", "alone", tmp_path)
    made = {
        str(each.relative_to(tmp_path)): str(each.readlink())
        for each in tmp_path.rglob("*")
        if each.is_symlink()
    }
    assert made == {"run/last": "steps/9", "run/steps/root": "..", "alone": "steps/9"}

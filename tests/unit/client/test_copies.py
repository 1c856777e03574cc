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

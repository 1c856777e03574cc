"""Archives of work directories at an agent: fetched once, and the least recently used go."""

import asyncio
import os
from pathlib import Path
from typing import Any

from federator_agent.work_archives import KEEP, WorkArchives


class Fetching:
    """Bulk transfers that are counted."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    async def blob(self, digest: str, into: Path) -> None:
        self.fetched.append(digest)
        await asyncio.sleep(0)
        into.write_bytes(b"packed")


async def test_what_many_want_at_once_is_fetched_once(tmp_path: Path) -> None:
    bulk: Any = Fetching()
    archives = WorkArchives(tmp_path, bulk)
    paths = await asyncio.gather(*(archives.fetch("a") for _ in range(3)))
    assert {path.read_bytes() for path in paths} == {b"packed"}
    assert bulk.fetched == ["a"]


async def test_the_least_recently_used_go(tmp_path: Path) -> None:
    bulk: Any = Fetching()
    archives = WorkArchives(tmp_path, bulk)
    for number in range(KEEP + 2):
        os.utime(await archives.fetch(f"{number}"), (number, number))
    assert (await archives.fetch("0")).exists(), "using it makes it the newest"
    archives.drop_old()
    assert {path.name for path in (tmp_path / "blobs").iterdir()} == {
        str(number) for number in range(KEEP + 2)
    } - {"1", "2"}

"""One person asks the archive for very much at once: another's question waits for one of theirs at most, and an agent's does too."""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from federator.control.record.archived_jobs import ASKING, AT_ONCE, ArchivedJobs
from federator.model.archive import ArchiveFilter, ArchivePage
from tests.integration.api.rig import Rig
from tests.support.waiting import until

MANY = 20


class Slow:
    """An archive that answers those who ask for `quick` at once, and others when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked: list[str] = []

    def page(self, _parts: Any, where: ArchiveFilter, _page: ArchivePage) -> tuple[list[Any], int]:
        self.asked.append(where.name)
        if where.name != "quick":
            assert self.let.wait(60)
        return [], 1


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.let.set()


async def asking(archived: ArchivedJobs, who: str, name: str) -> int:
    ASKING.set(who)
    return (await archived.page([], ArchiveFilter(name=name), ArchivePage()))[1]


async def test_a_person_who_asks_very_much_is_one_who_waits(slow: Slow) -> None:
    records: Any = SimpleNamespace(archive_files={"a": None})
    archive: Any = slow
    archived = ArchivedJobs(records, archive)
    flood = [asyncio.create_task(asking(archived, "user eve", "slow")) for _ in range(MANY)]
    await until(lambda: slow.asked, "the first of them to be asked")
    assert await asyncio.wait_for(asking(archived, "user ada", "quick"), 60) == 1
    assert slow.asked == ["slow", "quick"], f"of {AT_ONCE} at once one is left for others"
    slow.let.set()
    assert await asyncio.gather(*flood) == [1] * MANY
    assert not archived.turns, "nothing is kept of who has asked"


async def test_each_request_is_on_behalf_of_who_has_signed_in(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = rig.world.core.views.search.archived
    heard: list[str] = []

    async def ask(_ask: object, nothing: object) -> object:
        heard.append(ASKING.get())
        return nothing

    monkeypatch.setattr(archived, "_ask", ask)
    monkeypatch.setattr(archived, "parts", lambda: [None])
    for who in ("ada", "bob", "ada"):
        assert (await rig.ask("GET", "/v1/jobs", who)).status == 200
    assert heard == ["user ada", "user bob", "user ada"]

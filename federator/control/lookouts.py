"""Keeps a relaxed plan of the whole line at hand while the line is longer than a window.

It takes some seconds in a process of its own, and no turn waits for it: it is made of what stands now, and the next windows are chosen with it until the
next one is there. One that is old, or none, costs only quality: windows are then those of the published order.
"""

import asyncio
from typing import NamedTuple

from federator.control.observation import Observer
from federator.model.outlook import Outlook
from federator.model.snapshot import Problem
from federator.planning.outlook import expected
from federator.ports import Lookout

LOOK_S = 2.0
"""How often it is looked whether the line has become that long."""
LIMIT_S = 120.0
"""What takes longer is given up."""
MOST_CLASSES = 10_000
"""Of a line: what is asked is put together on the event loop, some 15 µs for each."""
REST = 1.0
"""It rests for so many times as long as it took: the processor is there for turns first."""


class Heads(NamedTuple):
    """A problem with one job of each class of the whole line, how many jobs each stands for, and what the line calls its class."""

    problem: Problem
    counts: list[int]
    words: list[int]


async def heads(observer: Observer, prices: dict[str, float]) -> Heads | None:
    """What a plan of the whole line is made from. None where decisions see the whole line, or it has too many classes."""
    found = await observer.line.heads()
    if found is None or len(found[0]) > MOST_CLASSES:
        return None
    names, counts, words = found
    by_name = dict(zip(names, zip(counts, words, strict=True), strict=True))
    snapshot = observer.snapshot(only=by_name)
    kept = [by_name[job.id] for job in snapshot.jobs]
    problem = Problem(snapshot=snapshot, warm_prices=prices)
    return Heads(problem, [count for count, _ in kept], [word for _, word in kept])


class Lookouts:
    """The loop that asks for outlooks."""

    def __init__(self, observer: Observer, lookout: Lookout | None) -> None:
        """`lookout` None: there is never an outlook."""
        self._observer, self._lookout = observer, lookout
        self._prices: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        if self._lookout is None:
            return
        while True:
            took_s = await self.once()
            await asyncio.sleep(max(LOOK_S, REST * took_s))

    async def once(self) -> float:
        """Ask for one, if the line is longer than a window; seconds that it took."""
        asked = await heads(self._observer, self._prices)
        if asked is None or self._lookout is None:
            self._observer.line.expect(None)
            return 0.0
        began_s = asyncio.get_running_loop().time()
        found = await self._lookout.look_ahead(asked.problem, asked.counts, limit_s=LIMIT_S)
        self._keep(found)
        self._observer.line.expect(None if found is None else expected(found, asked.words))
        return asyncio.get_running_loop().time() - began_s

    def _keep(self, found: Outlook | None) -> None:
        self._prices = {} if found is None else found.prices

    async def close(self) -> None:
        """End what makes them."""
        if self._lookout is not None:
            await self._lookout.close()

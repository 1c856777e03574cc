"""Keeps a relaxed plan of the whole line at hand while the line is longer than a window.

It takes some seconds in a process of its own, and no turn waits for it: it is made of what stands now, and the next windows are chosen with it until the
next one is there. One that is old, or none, costs only quality: windows are then those of the published order.
"""

import asyncio
import logging
import os
from typing import NamedTuple

from federator.control.record.decisions import DecisionLog
from federator.control.turns.observation import Observer
from federator.control.turns.turn import Turn
from federator.model.outlook import Outlook, Proof
from federator.model.snapshot import Problem
from federator.planning.world.outlook import OutlookArrays
from federator.ports import Lookout
from federator.telemetry import METRICS

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often it is looked whether the line has become that long."""
LIMIT_S = 120.0
"""What takes longer is given up."""
MOST_CLASSES = 10_000
"""Of a line: what is asked is put together on the event loop, some 15 µs for each."""
LIKE = 0.1
"""While the number of classes of a line is within this share of one that there was no outlook for, none is asked for,"""
CERTIFY_LIMIT_S = 30.0
"""So long a certificate may take: an outlook may wait for it."""
AGAIN_S = 600.0
"""unless so many seconds have passed: sites may have gone meanwhile, or what failed may work again."""
REST = 1.0
"""It rests for so many times as long as it took: the processor is there for turns first."""


class Heads(NamedTuple):
    """A problem with one job of each class of the whole line, how many jobs each stands for, and what the line calls its class."""

    problem: Problem
    counts: list[int]
    words: list[int]


Line = tuple[list[str], list[int], list[int]]
"""As `WaitingLine.heads` has it."""


class _Vain(NamedTuple):
    """A line that there was no outlook for."""

    classes: int
    at_s: float


def _heads(observer: Observer, prices: dict[str, float], line: Line) -> Heads:
    """What a plan of the whole line is made from."""
    names, counts, words = line
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
        self._vain: _Vain | None = None

    async def run(self) -> None:
        """Until cancelled."""
        if self._lookout is None:
            return
        while True:
            took_s = await self.once()
            await asyncio.sleep(max(LOOK_S, REST * took_s))

    async def once(self) -> float:
        """Ask for one, if the line is longer than a window; seconds that it took."""
        line = await self._observer.line.heads()
        if line is None or self._lookout is None:
            self._vain = None
            self._observer.line.expect(None)
            return 0.0
        classes = len(line[0])
        if self._in_vain(classes):
            return 0.0
        if classes > MOST_CLASSES:
            self._keep(None, classes, f"has more than {MOST_CLASSES} classes")
            return 0.0
        began_s = _now_s()
        asked = _heads(self._observer, self._prices, line)
        found = await self._lookout.look_ahead(asked.problem, asked.counts, limit_s=LIMIT_S)
        took_s = _now_s() - began_s
        known = None if found is None else OutlookArrays(found, asked.words)
        self._keep(
            found,
            classes,
            f"has {sum(asked.counts)} jobs of {classes} classes: too many for its places, or it took too long",
        )
        self._observer.line.expect(known)
        return took_s

    def _in_vain(self, classes: int) -> bool:
        """Whether there was none for a line much like this one."""
        vain = self._vain
        if vain is None or _now_s() - vain.at_s >= AGAIN_S:
            return False
        return abs(classes - vain.classes) <= LIKE * vain.classes

    def _keep(self, found: Outlook | None, classes: int, why: str) -> None:
        METRICS.count("federator_outlooks_total", result="none" if found is None else "made")
        self._prices = {} if found is None else found.prices
        if found is not None:
            self._vain = None
            return
        log.warning(
            "no outlook of the line, which %s: windows are chosen in the published order; it is asked for again once that"
            " changes by %.0f %%, or in %.0f min",
            why,
            100 * LIKE,
            AGAIN_S / 60,
        )
        self._vain = _Vain(classes, _now_s())
        self._observer.line.expect(None)

    async def close(self) -> None:
        """End what makes them."""
        if self._lookout is not None:
            await self._lookout.close()


class Certificates:
    """The loop that has a decision certified now and then, beside the turns: nothing waits for it, and nothing is decided by it."""

    def __init__(self, turn: Turn, decisions: DecisionLog, lookout: Lookout | None, every: int) -> None:
        """Once in so many turns; with 0, or `lookout` None, never. `lookout` is closed by `Lookouts`."""
        self._turn, self._decisions, self._lookout, self._every = turn, decisions, lookout, every
        self._since = turn.turns

    async def run(self) -> None:
        """Until cancelled."""
        while self._lookout is not None and self._every > 0:
            await asyncio.sleep(LOOK_S)
            if _a_core_idles():
                await self.once()

    async def once(self) -> Proof | None:
        """Certify the last decision if there were so many since the last that was; what takes too long is tried half as often from then on."""
        last = self._turn.last
        if self._lookout is None or last is None or self._turn.turns - self._since < self._every:
            return None
        problem, plan = last
        if not problem.snapshot.jobs:
            return None
        self._since = self._turn.turns
        proof = await self._lookout.certify(problem, plan, limit_s=CERTIFY_LIMIT_S)
        if proof is None:
            self._every *= 2
            return None
        await self._decisions.certified(problem, plan, proof)
        METRICS.set("federator_decision_gap_ratio", proof.gap)
        METRICS.set("federator_decision_bound_usd", proof.bound_usd)
        log.info(
            "decision %s is within %.2f %% of the bound of the linear model", plan.decision, 100.0 * proof.gap
        )
        return proof


def _a_core_idles() -> bool:
    """By the last minute; of one core none is left beside turns."""
    cores = os.cpu_count() or 1
    return cores > 1 and os.getloadavg()[0] <= cores - 1


def _now_s() -> float:
    return asyncio.get_running_loop().time()

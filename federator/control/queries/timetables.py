"""The plan for people: what the newest decision foresees, or what a recorded one did, with what had ended before it.

A timetable is made once for a decision when somebody first asks, and the page that a caller is shown is cut from it: both in a thread, and one at a time.
No turn does anything for it.
"""

import asyncio
import math
import secrets
from bisect import bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from federator.control.administration.visibility import ANOTHERS, Sight
from federator.control.record.decisions import DecisionLog
from federator.control.record.records import Changes, Records
from federator.control.turns.turn import Turn
from federator.kernel.errors import Invalid
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Placement
from federator.model.queues import under
from federator.model.timetable import Bar, BarState, Lane, Timetable
from federator.planning.explanations.timetable import timetable
from federator.planning.wording.told import because_of
from federator.wire.timetable import PlanPage

MOST_ENDED = 100_000
"""Attempts that have ended and can be drawn: the newest."""
KEPT = 4
"""Timetables of recorded decisions that are kept at hand."""
CUTS = 4
"""Answers of several pages whose other pages are kept at hand."""
TOGETHER_S = 60.0
"""Tasks of an array that start, and end, within the same minute are one bar where that is asked for."""
NOTHING_YET = Timetable(decision="", taken_at=0.0, winner="")
WAITS = frozenset({BarState.PLANNED, BarState.RESERVED})
_RANK = {state: 1 if state in WAITS else 0 for state in BarState} | {BarState.ENDED: 2}


@dataclass(frozen=True, kw_only=True)
class PlanFilter:
    """What of a plan is wanted; empty: all."""

    since_at: float
    until_at: float
    site: str = ""
    queue: str = ""
    owner: str = ""
    collapse: bool = False

    def takes(self, bar: Bar, lane: Lane | None) -> bool:
        """Whether a bar is wanted."""
        return (
            bar.start_at < self.until_at
            and bar.end_at > self.since_at
            and (not self.site or (lane is not None and lane.site == self.site))
            and (not self.queue or under(bar.queue, self.queue))
            and (not self.owner or bar.owner == self.owner)
        )


class _Cut(NamedTuple):
    """What somebody is shown of a plan, in order."""

    lanes: tuple[Lane, ...]
    bars: list[Bar]


class Timetables:
    """Makes timetables when they are asked for, and cuts pages from them."""

    def __init__(self, records: Records, turn: Turn, decisions: DecisionLog) -> None:
        self._records, self._turn, self._decisions = records, turn, decisions
        self._making = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._cutting = asyncio.Lock()
        self._cuts: OrderedDict[object, _Cut] = OrderedDict()
        self._secret = secrets.token_bytes(16)
        self._newest: tuple[object, Timetable] = (None, NOTHING_YET)
        self._recorded: OrderedDict[str, Timetable] = OrderedDict()
        self._ended: list[tuple[float, str]] | None = None
        """When each placement ended, in that order; None until somebody asks."""

    async def newest(self) -> Timetable:
        """What the newest decision foresees, as far as it still holds."""
        async with self._making:
            last = self._turn.last
            if last is not None and self._newest[0] is not last:
                self._newest = (last, await asyncio.to_thread(timetable, *last))
            return await asyncio.to_thread(self._as_all_stands, self._newest[1])

    async def recorded(self, decision: str) -> Timetable:
        """What a recorded decision foresaw. Raises `NotFound`, `Damaged`."""
        async with self._reading:
            if decision not in self._recorded:
                problem, plan = await self._decisions.load(decision)
                self._recorded[decision] = await asyncio.to_thread(timetable, problem, plan)
            self._recorded.move_to_end(decision)
            while len(self._recorded) > KEPT:
                self._recorded.popitem(last=False)
            return self._recorded[decision]

    async def page(
        self, found: Timetable, wanted: PlanFilter, sight: Sight, *, after: str | None, limit: int
    ) -> PlanPage:
        """A page of it, as far as the caller may see. Raises `Invalid` where the bar after which the page begins is gone."""
        newest = found is not self._recorded.get(found.decision)
        waiting = self._records.index.counts().get(JobStatus.PENDING, 0) if newest else 0
        async with self._cutting:
            key = (found.decision, newest, wanted, sight.key)
            cut = self._cuts.pop(key, None)
            if cut is None or after is None or all(bar.id != after for bar in cut.bars):
                ended = self._ended_within(wanted.since_at, found.taken_at or math.inf)
                cut = await asyncio.to_thread(self._cut, found, wanted, sight, ended)
            page, more = await asyncio.to_thread(self._page_of, cut.bars, found.taken_at, after, limit)
            if more:
                self._cuts[key] = cut
                while len(self._cuts) > CUTS:
                    self._cuts.popitem(last=False)
        looked_at = found.unplanned + sum(bar.state in WAITS for bar in found.bars)
        return PlanPage(
            decision=found.decision,
            taken_at=found.taken_at,
            recorded=self._decisions.kept(found.decision),
            winner=found.winner,
            since_at=wanted.since_at,
            until_at=wanted.until_at,
            lanes=cut.lanes,
            bars=page,
            total=len(cut.bars),
            next_after=page[-1].id if more else None,
            unplanned=found.unplanned,
            outside=max(0, waiting - looked_at),
        )

    def _cut(
        self, found: Timetable, wanted: PlanFilter, sight: Sight, ended: list[tuple[float, str]]
    ) -> _Cut:
        lanes = {lane.key: lane for lane in found.lanes}
        there = {bar.id for bar in found.bars}
        history = list(self._history(lanes, ended, there))
        bars = [
            bar
            for each in (*found.bars, *history)
            if wanted.takes(bar := self._shown(each, sight), lanes.get(bar.lane))
        ]
        bars = sorted(self._together(bars) if wanted.collapse else bars, key=sort_key)
        return _Cut(tuple(lane for lane in lanes.values() if wanted.site in ("", lane.site)), bars)

    def _page_of(
        self, bars: list[Bar], now: float, after: str | None, limit: int
    ) -> tuple[tuple[Bar, ...], bool]:
        """The bars of a page, and whether more come after it."""
        start = _first_after(bars, after)
        end = start + limit
        while 0 < end < len(bars) and bars[end].id == bars[end - 1].id:  # a gang on several lanes is not cut
            end += 1
        return tuple(self._told(bar, now) for bar in bars[start:end]), end < len(bars)

    def _as_all_stands(self, found: Timetable) -> Timetable:
        """The newest decision by what has become of it since."""
        bars = (self._as_it_stands(bar, found.decision) for bar in found.bars)
        return replace(found, bars=tuple(filter(None, bars)))

    def _as_it_stands(self, bar: Bar, decision: str) -> Bar | None:
        """A bar of the newest decision by what has become of it since; None: it is over, or does not wait any more."""
        placement = self._records.placements.get(bar.id)
        job = self._records.jobs.get(bar.job)
        if bar.state is BarState.STARTING and placement is None and job is not None:
            own = self._records.placements.get(job.placement or "")
            placement = own if own is not None and own.decision == decision else None
            bar = replace(bar, id=placement.id) if placement is not None else bar
        if placement is not None:
            if placement.ended:
                return None
            begun = placement.started_at is not None
            return replace(bar, state=BarState.RUNNING if begun else BarState.STARTING)
        if bar.state in WAITS or bar.state is BarState.STARTING:
            return bar if job is not None and job.status is JobStatus.PENDING else None
        if bar.state is BarState.BOOTING and (lease := self._records.leases.get(bar.id)) is not None:
            return replace(bar, start_at=lease.requested_at)
        return bar

    def _shown(self, bar: Bar, sight: Sight) -> Bar:
        """With what is on record of its job; of one that the caller is not shown, where and when alone."""
        if not bar.job:
            return bar
        job = self._records.jobs.get(bar.job)
        if not sight.named(bar.job):
            told = blake2b(bar.id.encode(), key=self._secret, digest_size=12).hexdigest()
            return replace(
                bar, id=f"hidden-{told}", job="", name=ANOTHERS, owner="", queue="",
                deadline_at=None, status="", because="",
            )  # fmt: skip
        return bar if job is None else _with_job(bar, job)

    def _told(self, bar: Bar, now: float) -> Bar:
        """With the reason of a placement in words: only of what is on the page."""
        placement = self._records.placements.get(bar.id)
        if placement is None or bar.because or not bar.job:
            return bar
        return replace(bar, because=because_of(placement, now))

    def _together(self, bars: Iterable[Bar]) -> Iterator[Bar]:
        """Tasks of an array that start and end together as one bar."""
        groups: dict[object, tuple[Job | None, list[Bar]]] = {}
        for bar in bars:
            job = self._records.jobs.get(bar.job)
            minutes = (bar.start_at // TOGETHER_S, bar.end_at // TOGETHER_S)
            alike = bar.id if job is None or job.array is None else (job.array, *minutes)
            groups.setdefault((bar.lane, bar.state, bar.status, alike), (job, []))[1].append(bar)
        for job, group in groups.values():
            yield group[0] if len(group) == 1 or job is None else _as_one(group, job)

    def _history(
        self, lanes: dict[str, Lane], ended: list[tuple[float, str]], there: set[str]
    ) -> Iterator[Bar]:
        """What ended then, on its lane; a lane that is no more is added."""
        at = {(lane.site, lane.pool, member): lane.key for lane in lanes.values() for member in lane.members}
        for ended_at, name in ended:
            placement = self._records.placements.get(name)
            if placement is None or placement.started_at is None or placement.ended_at != ended_at:
                continue
            if placement.id in there:
                continue
            there.add(placement.id)
            where = (placement.site, placement.pool, placement.members[0])
            if where not in at:
                lane = _lane_of(placement)
                lanes[lane.key] = lane
                at |= {(lane.site, lane.pool, member): lane.key for member in lane.members}
            job = self._records.jobs.get(placement.job)
            yield _ended_bar(placement, job, at[where])

    def _ended_within(self, since_at: float, until_at: float) -> list[tuple[float, str]]:
        """Which placements ended in that time, and when."""
        if self._ended is None:
            placements = self._records.placements.values()
            over = sorted((each.ended_at, each.id) for each in placements if each.ended_at is not None)
            self._ended = over[-MOST_ENDED:]
            self._records.subscribe(self._note)
        begin, end = (bisect_right(self._ended, (at, "~")) for at in (since_at, until_at))
        return self._ended[begin:end]

    def _note(self, changes: Changes) -> None:
        """Placements have changed in the store; of one that changes after its end, the last end counts."""
        assert self._ended is not None
        for row in changes.rows.values():
            if isinstance(row, Placement) and row.ended_at is not None:
                insort(self._ended, (row.ended_at, row.id))
        del self._ended[:-MOST_ENDED]


def sort_key(bar: Bar) -> tuple[int, float, str]:
    """What is there now, then what is planned, then what has ended, the newest first."""
    rank = _RANK[bar.state]
    return rank, -bar.end_at if bar.state is BarState.ENDED else bar.start_at, bar.id


def _first_after(bars: list[Bar], after: str | None) -> int:
    if after is None:
        return 0
    for number in range(len(bars), 0, -1):
        if bars[number - 1].id == after:
            return number
    raise Invalid(
        "the plan has changed since, and has no such bar now",
        field="?after",
        remedy="ask again without after, or for a recorded decision",
    )


def _with_job(bar: Bar, job: Job) -> Bar:
    deadline_at = bar.deadline_at or job.deadline_at
    return replace(bar, name=job.label, owner=job.owner, queue=job.queue, deadline_at=deadline_at)


def _as_one(group: list[Bar], job: Job) -> Bar:
    return replace(
        group[0],
        name=job.name,
        start_at=min(bar.start_at for bar in group),
        end_at=max(bar.end_at for bar in group),
        gpus=sum(bar.gpus for bar in group),
        members=tuple(member for bar in group for member in bar.members),
        tasks=len(group),
    )


def _lane_of(placement: Placement) -> Lane:
    """Of a place that the decision did not see: a rental that has ended, a member that is gone."""
    return Lane(
        key=f"{placement.site}/{placement.members[0]}/{placement.pool}",
        site=placement.site,
        pool=placement.pool,
        model=placement.model,
        market=placement.market,
        shared=placement.shared,
        gpus_per_node=1 if placement.shared else placement.gpus_per_node,
        members=dict(Counter(placement.members)),
        lease=placement.lease or "",
        closed="it is gone",
    )


def _ended_bar(placement: Placement, job: Job | None, lane: str) -> Bar:
    return Bar(
        id=placement.id,
        lane=lane,
        state=BarState.ENDED,
        start_at=placement.started_at or placement.assigned_at,
        end_at=placement.ended_at or placement.assigned_at,
        gpus=placement.gpus,
        members=placement.members,
        job=placement.job,
        owner=job.owner if job is not None else "",
        queue=job.queue if job is not None else "",
        status=placement.status,
    )

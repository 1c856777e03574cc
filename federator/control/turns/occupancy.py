"""What placements hold at each member, as planning sees it.

With ten thousand placements running, making their views anew for every look at the world cost more than all other work of a turn together, and even
asking each whether it has changed cost more than a small turn does. Every change of the records is told to whoever listens, so a look takes up what has
changed since the last one, and nothing else.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from federator.control.record.records import Changes, Records
from federator.control.turns.job_views import OVERDUE_SHARE, left_s
from federator.model.jobs import ON_ONE_HOST, Job, JobSpec
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.snapshot import BusyView, JobView
from federator.planning.scheduling.forecast import RunForecast, lasts_s

OVERDUE_S = 60.0
"""Work that has outrun its forecast is expected to end this much later than now, or by `OVERDUE_SHARE` of its run, again and again."""
STEPS = 16
"""What runs is forecast anew each time that it has run longer by one in so many, or in twice as many, and at most once a minute."""
RUN_TIMES = ("run_s", "run_low_s", "run_high_s")
PLACEMENT_KEYS = "placement/"
"""What the key of a placement's row begins with."""


def _in_one(part: Placement) -> Placement:
    """Ranks that are all on one host, as one that has all of them."""
    return replace(
        part,
        nodes=1,
        gpus_per_node=part.gpus_per_node * part.nodes,
        cpus_milli=part.cpus_milli * part.nodes,
        memory_mib=part.memory_mib * part.nodes,
    )


class _Runs(NamedTuple):
    """A run that is forecast anew, in steps, by how long it has lasted."""

    started_at: float
    saved_s: float
    """Of its work, what it had done before, in seconds of form 0 at speed 1."""
    pace: float
    limit_s: float | None
    """Nothing runs longer."""
    whole: Callable[[], RunForecast | None]

    def next_at(self, now: float) -> float:
        """When it is forecast again."""
        return self._step(now)[1]

    def ends_at(self, now: float) -> float:
        """When it is expected to end, by what is known now."""
        begins_at, next_at = self._step(now)
        forecast = self.whole()
        if forecast is None:
            return next_at
        whole_s = lasts_s(forecast, self.saved_s + (begins_at - self.started_at) * self.pace)
        left_s = max(0.0, whole_s - self.saved_s) / self.pace
        return max(next_at, self.started_at + (left_s if self.limit_s is None else min(left_s, self.limit_s)))

    def _step(self, now: float) -> tuple[float, float]:
        """When the present step has begun and ends: a minute, and doubled whenever that has become short beside what has been run."""
        step_s = OVERDUE_S
        while now - self.started_at >= 2.0 * STEPS * step_s:
            step_s *= 2.0
        number = math.floor((now - self.started_at) / step_s)
        return self.started_at + number * step_s, self.started_at + (number + 1) * step_s


class Holding(NamedTuple):
    """The ranks of a placement at one member: `placement` has only those, `view` is as planning sees it unless its end has moved."""

    member: str
    placement: Placement
    view: BusyView
    pace: float = 1.0
    """Of its job's work, seconds of form 0 at speed 1 in one second here."""
    runs: "_Runs | None" = None
    """How long it is expected to run, once it does and where that is forecast; else it is to end as planned."""

    def settled_until_at(self, now: float) -> float:
        """Up to when `seen` is the same as now, whenever it is asked for."""
        if self.placement.order is Order.STOP or self.view.waits_as is not None:
            return -math.inf
        if self.runs is None:
            return self.view.ends_at
        next_at = self.runs.next_at(now)
        return min(next_at, self.view.ends_at) if now <= self.view.ends_at else next_at

    def seen(self, now: float) -> BusyView:
        """The view at that moment: ended as planned; a while from now, once that is past; after its grace, once it is told to stop."""
        if self.placement.order is Order.STOP:
            return replace(self.view, ends_at=now + self.view.grace_s, waits_as=None, stopping=True)
        if self.view.waits_as is not None and now > self.view.started_at:
            return self._elastic(self.view.waits_as, now)
        return self._rigid(now)

    def _elastic(self, waits_as: JobView, now: float) -> BusyView:
        """With what is left of its work by then."""
        done_s = self.pace * (now - self.view.started_at)
        times = {name: left_s(getattr(waits_as, name), done_s) for name in RUN_TIMES}
        return replace(self._rigid(now), waits_as=replace(waits_as, **times))

    def _rigid(self, now: float) -> BusyView:
        if self.runs is not None and now > self.view.started_at:
            return replace(self.view, ends_at=self.runs.ends_at(now), overdue=self.view.ends_at < now)
        if self.view.ends_at < now:
            more_s = (
                max(OVERDUE_S, OVERDUE_SHARE * (now - self.view.started_at))
                if self.view.started_at
                else OVERDUE_S
            )
            return replace(self.view, ends_at=now + more_s, overdue=True)
        return self.view


class _Where(NamedTuple):
    """The members at which a placement of that job holds something."""

    job: str
    members: tuple[str, ...]


class Occupancy:
    """Knows what is held where, and makes anew only what has changed."""

    def __init__(
        self,
        records: Records,
        view_of: Callable[[Job, JobSpec], JobView],
        whole_run: Callable[[Job, JobSpec, str], RunForecast | None],
    ) -> None:
        """`view_of` says how a job would wait, `whole_run` how long it runs in all on a GPU model."""
        self._records = records
        self._view_of, self._whole_run = view_of, whole_run
        self._changed: dict[str, None] | None = None
        """Placements to look at again, in the order in which they changed; None: all, for nothing was read yet."""
        self._at: dict[str, _Where] = {}
        """By placement."""
        self._of: dict[str, dict[str, None]] = {}
        """Those placements, by job."""
        self._held: dict[str, dict[str, Holding]] = {}
        self._shown: dict[str, tuple[Holding, ...]] = {}
        records.subscribe(self._note)

    def by_member(self) -> dict[str, tuple[Holding, ...]]:
        """What each member's hosts are held by: the very same tuple as long as that is the same."""
        if self._changed is None:
            self._changed = dict.fromkeys(self._records.open_placements)
        changed, self._changed = self._changed, {}
        for member in dict.fromkeys(member for name in changed for member in self._take_up(name)):
            held = self._held.get(member)
            if held:
                self._shown[member] = tuple(held.values())
            else:
                self._held.pop(member, None)
                self._shown.pop(member, None)
        return self._shown

    def _note(self, changes: Changes) -> None:
        """Rows have changed in the store."""
        if self._changed is None:
            return
        for row in changes.rows.values():
            if isinstance(row, Placement):
                self._changed[row.id] = None
            elif isinstance(row, Job):
                self._changed.update(self._of.get(row.id, {}))
        for key in changes.deletes:
            if key.startswith(PLACEMENT_KEYS):
                self._changed[key.removeprefix(PLACEMENT_KEYS)] = None

    def _take_up(self, name: str) -> tuple[str, ...]:
        """Note what the placement holds now; the members of which something else is true than before."""
        placement = self._records.open_placements.get(name)
        if placement is None or placement.ended:
            return self._let_go(name)
        job = self._records.jobs[placement.job]
        holdings = self._look(placement, job)
        members = tuple(holding.member for holding in holdings)
        left = [member for member in self._members(name) if member not in members]
        for member in left:
            del self._held[member][name]
        for holding in holdings:
            self._held.setdefault(holding.member, {})[name] = holding
        self._at[name] = _Where(job.id, members)
        self._of.setdefault(job.id, {})[name] = None
        return (*left, *members)

    def _members(self, name: str) -> tuple[str, ...]:
        return self._at[name].members if name in self._at else ()

    def _let_go(self, name: str) -> tuple[str, ...]:
        """It holds nothing any more."""
        where = self._at.pop(name, None)
        if where is None:
            return ()
        for member in where.members:
            del self._held[member][name]
        del self._of[where.job][name]
        if not self._of[where.job]:
            del self._of[where.job]
        return where.members

    def _look(self, placement: Placement, job: Job) -> tuple[Holding, ...]:
        """Its ranks at each member, in their order; without those whose part is over."""
        over = {part.member for part in placement.parts if part.ended}
        ranks = Counter(member for member in placement.members if member not in over)
        return tuple(
            self._hold(member, placement, job, count, leads=number == 0)
            for number, (member, count) in enumerate(ranks.items())
        )

    def _hold(self, member: str, placement: Placement, job: Job, ranks: int, *, leads: bool) -> Holding:
        part = placement if ranks == placement.nodes else replace(placement, nodes=ranks)
        spec = self._records.spec(job.spec_hash)
        if spec.placement.together == ON_ONE_HOST:
            part = _in_one(part)
        grace_s = self._records.spec(placement.spec_hash).grace_s
        view = BusyView(
            nodes=part.nodes,
            gpus=part.gpus_per_node,
            cpus_milli=part.cpus_milli,
            memory_mib=part.memory_mib,
            ends_at=part.expected_end_at or 0.0,
            placement=part.id,
            leads=leads,
            job=job.id,
            revision=self._records.revision_of(job),
            queue=job.queue,
            owner=job.owner,
            labels=spec.labels,
            licenses=spec.licenses or {},
            priority=job.priority,
            started_at=part.started_at or part.assigned_at,
            usd_per_h=part.price_usd_gpu_h * part.gpus,
            saves=spec.checkpoint is not None,
            saves_every_s=spec.checkpoint.every_s if spec.checkpoint else None,
            startup_s=max(0.0, part.started_at - part.assigned_at) if part.started_at else 0.0,
            grace_s=grace_s if part.grace_s is None else min(grace_s, part.grace_s),
            displaced_at=job.displaced_at,
            shared=part.shared,
            form=part.form,
            waits_as=self._waits_as(placement, job, spec) if leads else None,
        )
        pace = spec.pace(part.form, part.model)
        return Holding(member, part, view, pace, self._runs(placement, job, spec, pace))

    def _runs(self, placement: Placement, job: Job, spec: JobSpec, pace: float) -> _Runs | None:
        """The forecast of a job that runs: not of one whose data is still on its way, or whose machine boots."""
        whole = partial(self._whole_run, job, spec, placement.model)
        if placement.started_at is None or whole() is None:
            return None
        limit_s = spec.limit_s(job.max_duration_s, placement.form)
        return _Runs(placement.started_at, job.saved_s, pace, limit_s, whole)

    def _waits_as(self, placement: Placement, job: Job, spec: JobSpec) -> JobView | None:
        """An elastic job that runs and can save itself, as it would wait if it were stopped, where it has saved itself."""
        runs = placement.status is PlacementStatus.RUNNING and job.placement == placement.id
        if not (runs and spec.elastic and spec.checkpoint):
            return None
        if not spec.checkpoint.uri:
            if placement.lease is not None:
                return None  # what it saves there is gone with the machine
            job = replace(job, resume_site=placement.site, resume_members=placement.members)
        return self._view_of(job, spec)

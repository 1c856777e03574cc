"""What placements hold at each member, as planning sees it.

With ten thousand placements running, making their views anew for every look at the world cost more than all other work of a turn together. Nearly all of
them are as they were: so a view is kept as long as the very records that it was made of are still the current ones. Records are immutable and a change
replaces them, so that comparing identities misses nothing, whoever has changed what.
"""

from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from federator.control.records import Records
from federator.model.jobs import Job
from federator.model.placements import Order, Placement
from federator.model.snapshot import BusyView

OVERDUE_S = 60.0
"""Work that has outrun its forecast is expected to end this much later than now, again and again,"""
OVERDUE_SHARE = 0.15
"""or later by this share of the time it has run, if that is more: about the middle of what is left, where runs err by e^±0.4."""


class Holding(NamedTuple):
    """The ranks of a placement at one member: `placement` has only those, `view` is as planning sees it unless its end has moved."""

    member: str
    placement: Placement
    view: BusyView
    grace_s: float

    def seen(self, now: float) -> BusyView:
        """The view at that moment: ended as planned; a while from now, once that is past; after its grace, once it is told to stop."""
        if self.placement.order is Order.STOP:
            return replace(self.view, ends_at=now + self.grace_s)
        if self.view.ends_at < now:
            more_s = (
                max(OVERDUE_S, OVERDUE_SHARE * (now - self.view.started_at))
                if self.view.started_at
                else OVERDUE_S
            )
            return replace(self.view, ends_at=now + more_s)
        return self.view


class _Kept(NamedTuple):
    placement: Placement
    job: Job
    holdings: tuple[Holding, ...]


class Holdings:
    """Knows what is held where; asks the records at every look, and makes anew only what has changed."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._kept: dict[str, _Kept] = {}

    def by_member(self) -> dict[str, list[Holding]]:
        """What each member's hosts are held by."""
        found: dict[str, list[Holding]] = {}
        former, self._kept = self._kept, {}
        for name, placement in self._records.open_placements.items():
            if placement.ended:
                continue
            job = self._records.jobs[placement.job]
            kept = former.get(name)
            if kept is None or kept.placement is not placement or kept.job is not job:
                kept = _Kept(placement, job, self._look(placement, job))
            self._kept[name] = kept
            for holding in kept.holdings:
                found.setdefault(holding.member, []).append(holding)
        return found

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
            priority=job.priority,
            started_at=part.started_at or part.assigned_at,
            usd_per_h=part.price_usd_gpu_h * part.gpus,
        )
        return Holding(member, part, view, grace_s if part.grace_s is None else min(grace_s, part.grace_s))

"""How busy each GPU is, as members have told it last, and of those that jobs hold as a curve over time. In memory, as all telemetry is.

A curve keeps so many points however long the job runs: when it is full, each two become one, and from then on each point is of twice the time.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from federator.control.record.records import Changes, Records
from federator.kernel.clock import Clock
from federator.model.placements import Placement
from federator.model.sites import GpuUse

MOST_POINTS = 64
MOST_CURVES = 20_000
"""Some 40 MB. The curves of what is over longest are forgotten first; where more GPUs than these are held at once, the others have none."""
_WIDTH = 4
UNKNOWN = -1.0
"""Watts of a GPU that does not say."""


@dataclass
class Curve:
    """Use of one GPU while a placement holds it: time, percent busy, MiB and watts of each point, one after the other."""

    values: "array[float]" = field(default_factory=lambda: array("d"))
    each: int = 1
    """Samples in a point."""
    last: int = 0
    """Samples in the last one."""

    def add(self, at: float, use: GpuUse) -> None:
        """One more sample."""
        watts = UNKNOWN if use.power_w is None else float(use.power_w)
        sample = (at, float(use.busy_percent or 0), float(use.memory_mib), watts)
        if self.values and self.last < self.each:
            begin = len(self.values) - _WIDTH
            for column in range(1, _WIDTH):
                before = self.values[begin + column]
                self.values[begin + column] = (before * self.last + sample[column]) / (self.last + 1)
            self.last += 1
            return
        self.values.extend(sample)
        self.last = 1
        if len(self.values) > MOST_POINTS * _WIDTH:
            self._halve()

    def points(self) -> list[tuple[float, float, float, float | None]]:
        """When each began (seconds since the epoch), percent busy, MiB, and watts where they are known; oldest first."""
        found = [tuple(self.values[begin : begin + _WIDTH]) for begin in range(0, len(self.values), _WIDTH)]
        return [(at, busy, mib, watts if watts >= 0 else None) for at, busy, mib, watts in found]

    def _halve(self) -> None:
        *old, newest = [self.values[begin : begin + _WIDTH] for begin in range(0, len(self.values), _WIDTH)]
        self.values = array("d")
        for one, other in zip(old[::2], old[1::2], strict=True):
            self.values.extend([one[0], *((a + b) / 2 for a, b in zip(one[1:], other[1:], strict=True))])
        self.values.extend(newest)
        self.each *= 2


class GpuUses:
    """The newest word of each member, and the curves."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._now: dict[str, tuple[float, tuple[GpuUse, ...]]] = {}
        self.curves: OrderedDict[str, dict[str, dict[int, Curve]]] = OrderedDict()
        """By placement, then by member, then by number."""
        self._count = 0
        self._all_run = False
        """There are as many as there can be, and since that was seen none of their placements has ended."""
        records.subscribe(self._note)

    def hear(self, member: str, uses: Sequence[GpuUse]) -> None:
        """What a member says. Of placements that are not open, or not its own, it says nothing."""
        if not uses:
            return
        at = self._clock.now()
        self._now[member] = at, tuple(uses)
        held: dict[str, dict[int, GpuUse]] = {}
        for use in uses:
            for name in use.placements if use.busy_percent is not None else ():
                held.setdefault(name, {})[use.gpu] = use
        for name, its in held.items():
            placement = self._records.open_placements.get(name)
            if placement is not None and not placement.ended and member in placement.members:
                self._add(placement, member, at, its)

    def of_members(self, members: Iterable[str]) -> list[tuple[str, float, GpuUse]]:
        """The newest of each of these: who says it, when, and what."""
        told = [(member, *self._now[member]) for member in members if member in self._now]
        return [(member, at, use) for member, at, uses in told for use in uses]

    def busy(self, placement: Placement) -> list[int]:
        """How busy each of its GPUs is, in percent, as told last; of those that say."""
        told = self.of_members(dict.fromkeys(placement.members))
        return [
            use.busy_percent
            for _, _, use in told
            if use.busy_percent is not None and placement.id in use.placements
        ]

    def of(self, placement: Placement) -> list[tuple[str, int, Curve]]:
        """The curves of its GPUs, by member and number; none where nobody has said, or it is long over."""
        curves = self.curves.get(placement.id, {})
        return [(member, *each) for member in sorted(curves) for each in sorted(curves[member].items())]

    def forget(self, member: str) -> None:
        """It is gone for good."""
        self._now.pop(member, None)

    def _add(self, placement: Placement, member: str, at: float, uses: dict[int, GpuUse]) -> None:
        """Go on with the curves of its GPUs at that member: at most as many as its ranks there can have, whatever numbers are said."""
        most = placement.members.count(member) * (1 if placement.shared else placement.gpus_per_node)
        curves = self.curves.get(placement.id, {}).get(member, {})
        for gpu, use in uses.items():
            curve = curves.get(gpu)
            if curve is None:
                if len(curves) >= most or not self._has_room():
                    continue
                curves = self.curves.setdefault(placement.id, {}).setdefault(member, {})
                curve = curves[gpu] = Curve()
                self._count += 1
            curve.add(at, use)

    def _has_room(self) -> bool:
        """For one curve more; where there is none, what is over is forgotten, the oldest first. False: all of it runs."""
        if self._count < MOST_CURVES or self._all_run:
            return self._count < MOST_CURVES
        open_placements = self._records.open_placements
        for name in self.curves:
            if name not in open_placements or open_placements[name].ended:
                self._count -= sum(map(len, self.curves.pop(name).values()))
                return True
        self._all_run = True
        return False

    def _note(self, changes: Changes) -> None:
        if self._all_run:
            self._all_run = not any(isinstance(row, Placement) and row.ended for row in changes.rows.values())

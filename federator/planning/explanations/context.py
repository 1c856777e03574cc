"""One waiting job and the world after a plan as it concerns that job: what advice is reckoned from; and the caps that stop it, raised."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from federator.kernel.quantities import cents_up
from federator.model.changes import RaiseCap, Remedy
from federator.model.plans import Waiting
from federator.model.rules import CapRow, CapUnit
from federator.model.snapshot import JobView, Problem
from federator.planning.explanations.reasons import DecidedWorld
from federator.planning.explanations.remedies import all_of
from federator.planning.rules.caps import EPSILON, QUEUE_UNITS
from federator.planning.wording import gpus, money
from federator.planning.world.problem import World


@dataclass(frozen=True)
class ExplanationContext:
    """One job, what the plan says of it, and the world after the plan as it concerns that job. `before`: who waits before it, in order."""

    problem: Problem
    job: JobView
    waiting: Waiting
    standing: DecidedWorld
    before: Sequence[tuple[JobView, Waiting]]

    @property
    def world(self) -> World:
        """The world of this job alone."""
        return self.standing.world


def caps_at(found: ExplanationContext, place: int) -> Remedy:
    """All caps that stop the job at a place, raised."""
    at, caps = found.world.places[place], found.standing.caps
    adds = caps.adds(found.world.as_form(found.job, place), at)
    lifted: list[Remedy] = []
    for number, row in enumerate(caps.rows):
        if not adds[number] or caps.used[number] + adds[number] <= row.limit + EPSILON:
            continue
        rivals = [caps.adds(other, at)[number] for other, _ in found.before]
        needed = caps.used[number] + adds[number] + sum(rivals)
        limit = (
            math.ceil(needed - EPSILON)
            if row.unit in QUEUE_UNITS or row.unit is CapUnit.INSTANCES
            else cents_up(needed)
        )
        whose = f", for it and {sum(map(bool, rivals))} before it" if any(rivals) else ""
        text = (
            f"a higher cap in {row.policy}: {_amount(row, limit)} instead of {_amount(row, row.limit)}{whose}"
        )
        lifted.append(Remedy(text, (RaiseCap(row, float(limit)),)))
    return all_of(lifted)


def _amount(row: CapRow, amount: float) -> str:
    if row.unit is CapUnit.USD:
        return money(amount)
    if row.unit is CapUnit.USD_PER_H:
        return f"{money(amount)} per hour"
    what = f"licences {row.license}" if row.license else row.unit.value
    return gpus(amount) if row.unit is CapUnit.GPUS else f"{amount:g} {what}"

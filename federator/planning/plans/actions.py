"""What a decision does: which jobs start and are rented for, whom that stops, who goes on in another form, and what is proposed to people.

A schedule says only who starts where. All else that is done follows from it here, in one place, before anything is written: so whoever asks whom a turn
stops, and for whom, looks nowhere else.
"""

from typing import NamedTuple

from federator.model.plans import Preempt, Proposal
from federator.planning.plans.preference import keep_order
from federator.planning.plans.proposals import proposals
from federator.planning.plans.reclaim import Reclaim, reclaim
from federator.planning.plans.resizes import resizes
from federator.planning.scheduling.objective import Evaluator, Scored


class Decided(NamedTuple):
    """All that is done: the starts and rentals of `scored`, and what follows from them."""

    scored: Scored
    reclaims: dict[str, Reclaim]
    """What has to stop, by the job that it stops for."""
    resized: tuple[Preempt, ...]
    """Elastic jobs that are to go on in another form."""
    proposals: tuple[Proposal, ...]
    """Rentals that policies leave to people."""

    @property
    def stops(self) -> list[Preempt]:
        """All placements that stop: for whom others are entitled to, and to change their form."""
        return [*(stop for found in self.reclaims.values() for stop in found.stops), *self.resized]


def decide_actions(evaluator: Evaluator, scored: Scored) -> Decided:
    """What comes of these starts."""
    scored = keep_order(evaluator, scored)
    reclaims = reclaim(evaluator.world, scored)
    stops = frozenset(stop.placement for found in reclaims.values() for stop in found.stops)
    resized = resizes(evaluator.world, scored, stops)
    return Decided(scored, reclaims, resized, proposals(evaluator, scored))

"""The rentals that a plan of the whole line leads to, as whole jobs; and by its prices those for work that it did not know yet.

A window's own model cannot see most of what competes with it, and its evaluator neither: both take the GPUs of the next hours for freer than they are, so both
put off what should be rented for. The plan of the whole line was made of all of it. It is two or three turns old, but only few classes have come since; whether
something should be rented for these is asked of its prices: a start at home costs what it uses of others' hours, too, and a machine what others would have
paid for it. Parts of jobs are rounded, the largest first. Who starts on what is there is not taken from that plan: it puts off whatever a fluid can make up for,
and by the time that it is used others stand where it had room.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

import numpy as np

from federator.model.snapshot import JobView, Lead
from federator.planning.kernels.tables import OWNED
from federator.planning.linear.hours import asked_by
from federator.planning.linear.starts import starts_of
from federator.planning.places.candidates import machines
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.scheduling.model_arrays import numbers_of
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.buckets import BUCKETS, hours_row
from federator.planning.world.prices import cost, never_usd
from federator.planning.world.problem import ClassKey

WHOLE = 1e-6
ROUNDED = 0.2
"""A smaller part of a job is not rented for."""
DEARER = 0.01
"""By such a share waiting has to be dearer than renting: prices are near, not exact."""
STEPS = (1, 2, 4, 8)


def lead_starts(evaluator: Evaluator) -> dict[str, int]:
    """What the problem's leads come to: job to choice of an offer."""
    return _Leading(evaluator).starts()


class _Rental(NamedTuple):
    """What renting one saves by the prices, in USD."""

    saves_usd: float
    job: JobView
    choice: int


class _Leading:
    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self._world = evaluator, evaluator.world
        self._stocks = self._world.stocks.copy()
        self._place = {at.key: number for number, at in enumerate(self._world.places)}
        self._starts: dict[str, int] = {}

    def starts(self) -> dict[str, int]:
        """The plan's, whole and rounded; then those of work that it has none for."""
        leads = [each for each in self._world.problem.leads if self._known(each)]
        self._follow(leads)
        self._rent_by_prices({self._world.key(self._world.by_id[each.job]) for each in leads})
        return self._starts

    def _known(self, lead: Lead) -> bool:
        """Whether job, offer and form are still there, and the offer is open to it."""
        job = self._world.by_id.get(lead.job)
        return (
            job is not None and lead.place in self._place and self._choice(lead) in self._world.open_to(job)
        )

    def _choice(self, lead: Lead) -> int:
        return self._place[lead.place] + lead.form * len(self._world.places)

    def _follow(self, leads: list[Lead]) -> None:
        """So many whole jobs of each; then of what is left the largest parts as whole ones."""
        left = [
            (self._give(lead, int(lead.jobs + WHOLE)) - lead.jobs, number)
            for number, lead in enumerate(leads)
        ]
        for short, number in sorted(left):
            if -short >= ROUNDED:
                self._give(leads[number], int(np.ceil(-short - WHOLE)))

    def _give(self, lead: Lead, count: int) -> int:
        """Rent for so many of its class, as far as they have a case and there is one to be had; for how many it is."""
        choice, given = self._choice(lead), 0
        for job in self._world.alike[self._world.key(self._world.by_id[lead.job])] if count else ():
            if given >= count:
                break
            if job.id not in self._starts and self._may(job, choice):
                if not self._take(job, choice):
                    break
                self._starts[job.id] = choice
                given += 1
        return given

    def _may(self, job: JobView, choice: int) -> bool:
        case = self._evaluator.bursting.case(job, choice)
        return isinstance(case, BurstCandidate) and case.is_now(self._world.now)

    def _take(self, job: JobView, choice: int) -> bool:
        """Whether so many machines are still to be had."""
        place, world = self._world.place_of(choice), self._world
        needed = machines(world.as_form(job, choice), world.places[place])
        if needed > self._stocks.room(place):
            return False
        self._stocks.take(place, needed)
        return True

    # -- what the plan does not know ----------------------------------------------------------------------------------

    def _rent_by_prices(self, led: set[ClassKey]) -> None:
        prices = _Prices(self._evaluator)
        unknown = ((key, members) for key, members in self._world.alike.items() if key not in led)
        rented = {key: each for key, members in unknown if (each := self._rented(members, prices))}
        waiting_usd = prices.waiting_usd(rented)
        found = [
            _Rental(waiting_usd[key] - usd, job, choice)
            for key, each in rented.items()
            for usd, job, choice in each
            if usd < (1.0 - DEARER) * waiting_usd[key]
        ]
        for rental in sorted(found, key=lambda each: (-each.saves_usd, each.job.id)):
            if self._take(rental.job, rental.choice):
                self._starts[rental.job.id] = rental.choice

    def _rented(self, members: list[JobView], prices: "_Prices") -> list[tuple[float, JobView, int]]:
        """What renting for each of a class costs where it is cheapest, and the choice. Of those whose cases are the same one is asked about."""
        bursting = self._evaluator.bursting
        known: dict[int, tuple[float, int]] = {}
        found = []
        for job in members:
            equivalence_class = bursting.equivalence_class(job)
            best = known.get(equivalence_class) if equivalence_class is not None else None
            if best is None:
                cases = [each for each in bursting.cases(job) if each.is_now(self._world.now)]
                best = min(
                    ((prices.rented_usd(job, each), each.place) for each in cases), default=(np.inf, -1)
                )
            if equivalence_class is not None:
                known[equivalence_class] = best
            if best[1] >= 0:
                found.append((best[0], job, best[1]))
        return found


class _Prices:
    """What starts cost with what they take from others."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._world = evaluator.world
        self._usd: Mapping[str, float] = self._world.problem.warm_prices

    def rented_usd(self, job: JobView, case: BurstCandidate) -> float:
        """A machine for it now: the bill, and what others would have paid for the machine."""
        world = self._world
        place = world.place_of(case.place)
        view, at = world.as_form(job, case.place), world.places[place]
        usd = cost(world.book, view, at, case.start_at, rents=True).total
        count = machines(view, at)
        spare = at.gpus * count - view.gpus_total
        stocks = world.stocks
        taken_usd = sum(
            each * self._usd.get(stocks.sources[source].row, 0.0) for source, each in stocks.draws[place]
        )
        return usd + count * taken_usd - spare * self._usd.get(f"spare/{at.key}", 0.0)

    def waiting_usd(self, classes: Container[ClassKey]) -> dict[ClassKey, float]:
        """The best that each of these classes can hope for on what is there: its cheapest start on owned capacity, with what that takes from others, or none at all."""
        world, numbers = self._world, numbers_of(self._world)
        asked = np.array([key in classes for key in world.alike], dtype=bool)[numbers.class_of_way]
        owned = numbers.places["kind"][numbers.ways["place"]] == OWNED
        starts = starts_of(numbers, world.host_sets(), (owned & asked).astype(np.float64))
        gpus = asked_by(numbers)[:, 0][starts.way]
        keys = [at.key for at in world.places]
        of_hours = np.array(
            [self._usd.get(hours_row(key, bucket), 0.0) for key in keys for bucket in range(BUCKETS)]
        )
        paid = starts.hours * of_hours[starts.hours_row] * gpus[starts.hours_column]
        usd = starts.cost + np.bincount(starts.hours_column, paid, len(starts.cost))
        way = numbers.ways[starts.way]
        for step in STEPS:
            of_room = np.array([self._usd.get(f"fit/{key}/{step}", 0.0) for key in keys])
            usd += np.where(starts.now, of_room[starts.at] * way["nodes"] * (way["gpus"] // step), 0.0)
        best = starts.home_usd + [never_usd(world.book, job).total for job in numbers.heads]
        np.minimum.at(best, starts.klass, usd)
        return dict(zip(world.alike, best.tolist(), strict=True))

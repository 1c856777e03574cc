"""What a decision is worth, in plain Python on objects: the oracle that `Evaluator.score` is held to. For tests only."""

from collections.abc import Mapping

import numpy as np

from federator.model.queues import under
from federator.model.snapshot import JobView
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.caps import Caps
from federator.planning.scheduling.list_schedule import Booking
from federator.planning.scheduling.objective import DISPLACED, REQUIRED_USD, SHORTFALL_H, Evaluator, Scored
from federator.planning.scheduling.opportunity_cost import Displacing
from federator.planning.world.chances import late_share
from federator.planning.world.prices import Cost, cost, longer_s, never_usd
from tests.support.plain_schedule import later_case, schedule


def score_plainly(evaluator: Evaluator, starts: Mapping[str, int]) -> Scored:
    """Carry out `starts`, fill what is left free, schedule the rest, and add up."""
    world = evaluator.world
    plan = schedule(world, evaluator.bursting, starts, evaluator.order)
    assert plan.caps is not None, "the schedule has passed its first moment"
    costs: dict[str, Cost] = {}
    later: dict[str, BurstCandidate] = {}
    for job in world.jobs:
        costs[job.id] = _cost(evaluator, job, plan.bookings.get(job.id), plan.caps, later)
    now = {job: b.place for job, b in plan.bookings.items() if _starts(evaluator, b)}
    terms = {
        name: sum(getattr(each, name) for each in costs.values())
        for name in ("miss", "rent", "run", "egress", "wait")
    }
    terms["shortfall"] = _shortfall(evaluator, now)
    terms["policy"] = sum(_unmet(evaluator, job, plan.bookings.get(job.id), plan.caps) for job in world.jobs)
    if evaluator.displacing is not None:
        here = {job: booking for job, booking in plan.bookings.items() if job not in later}
        terms[DISPLACED] = _displaced(evaluator.displacing, evaluator, here)
    terms = {name: round(value, 6) for name, value in terms.items()}
    rents = tuple(job for job in now if plan.bookings[job].rents)
    return Scored(
        starts=now,
        bookings=plan.bookings,
        blocks=plan.blocks,
        attempts=plan.attempts,
        caps=plan.caps,
        total=round(sum(terms.values()), 6),
        terms=terms,
        costs=costs,
        later=later,
        rents=rents,
    )


def _starts(evaluator: Evaluator, booking: Booking) -> bool:
    """Whether the booking is a decision of now. An estimate is none, whatever its time: nobody has looked for room."""
    at = evaluator.world.places[booking.place]
    return booking.rents or (booking.exact and booking.start_at <= evaluator.world.now and at.offer is None)


def _cost(
    evaluator: Evaluator, job: JobView, booking: Booking | None, caps: Caps, later: dict[str, BurstCandidate]
) -> Cost:
    world, book = evaluator.world, evaluator.world.book
    if booking is None:
        planned = never_usd(book, job)
    else:
        at, job = world.places[booking.place], world.as_form(job, booking.place)
        planned = cost(
            book, job, at, booking.start_at, rents=booking.rents, committed_until=booking.committed_until
        )
        if booking.rents or booking.start_at <= world.now:
            return planned
    case = later_case(evaluator.bursting, job, caps)
    if case is None:
        return planned
    start = case.rent_at + (case.start_at - world.now)
    at, job = world.places[case.place], world.as_form(job, case.place)
    put_off = Cost(
        rent=case.cost_usd,
        wait=book.wait_usd_h(job) * (start - world.now + longer_s(job, at)) / 3600.0,
        miss=book.value_usd(job) * late_share(job, start, at.run_s(job)),
    )
    if put_off.total >= planned.total:
        return planned
    later[job.id] = case
    return put_off


def _unmet(evaluator: Evaluator, job: JobView, booking: Booking | None, caps: Caps) -> float:
    """What a policy requires to be rented now, and this decision does not."""
    if booking is not None and (_starts(evaluator, booking) or evaluator.world.places[booking.place].rented):
        return 0.0
    wanted = [case.cost_usd for case in evaluator.bursting.required(job, caps)]
    return min(wanted) + REQUIRED_USD if wanted else 0.0


def _shortfall(evaluator: Evaluator, starts: Mapping[str, int]) -> float:
    """What guarantees are short of after this decision, as far as there is work that wants it."""
    total, world = 0.0, evaluator.world
    for row, counted in world.shortfalls.items():
        used, wanted = counted.used, 0.0
        for job in world.jobs:
            if not under(job.queue, row.queue):
                continue
            place, home = starts.get(job.id), world.home(job)
            if place is None:
                wanted += counted.of(world.as_form(job, home[0])) if home else 0.0
            elif not world.places[place].rented and row.model in ("", world.places[place].model):
                used += counted.of(world.as_form(job, place))
        short = min(counted.due, used + wanted) - used
        total += max(0.0, short) * row.shortfall_usd_gpu_h * SHORTFALL_H
    return total


def _displaced(displacing: Displacing, evaluator: Evaluator, bookings: Mapping[str, Booking]) -> float:
    """What these bookings take from work outside the window."""
    world = evaluator.world
    jobs = [(job, b) for job in world.jobs if (b := bookings.get(job.id)) is not None]
    views = [world.as_form(job, booking.place) for job, booking in jobs]
    return displacing.usd(
        np.array([world.place_of(b.place) for _, b in jobs], dtype=np.int64),
        np.array([view.nodes * view.gpus for view in views], dtype=np.float64),
        np.array([b.start_at for _, b in jobs], dtype=np.float64),
        np.array([b.finish_at for _, b in jobs], dtype=np.float64),
    )

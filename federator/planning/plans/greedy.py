"""The plan that is always there: jobs in the published order, each at its cheapest place that fits, and rentals that pay.

Its starts are the first moment of the list schedule. A rental is tried for each job that would miss its deadline (or that a policy
wants rented), in order, and kept if the evaluator finds the whole decision cheaper with it. At the end every rental is taken back
once: what later ones have made needless goes.
"""

from collections.abc import Sequence
from itertools import islice

from federator.model.plans import Plan, StageReport
from federator.model.reasons import NoneCheaper
from federator.model.snapshot import JobView, Problem
from federator.planning.plans.plan_builder import write_plan, write_starts
from federator.planning.rentals.burst import LEAST_USD
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.scheduling.list_schedule import ListSchedule
from federator.planning.scheduling.objective import EPSILON_USD, Evaluator, Scored
from federator.planning.world.prices import cost
from federator.planning.world.problem import World

QUICK = "quick"
"""The stage of a plan that says only what starts now."""
WORK = 500_000
"""Attempts to start a job at a place that may be made while rentals are tried, and as many while they are taken back: some 20 ms."""
TRIALS = 64
"""Rentals tried in one decision: each costs one schedule."""
OFFERS_PER_JOB = 3
"""Of the offers that would do, so many of the cheapest are tried for a job."""
TAKEN_BACK = 16
"""Rentals that are each tried without, everything else as it is."""


def plan_greedily(problem: Problem, seed: int = 0) -> Plan:
    """Decide by the greedy stage alone. `seed` is recorded; greedy leaves nothing to chance."""
    evaluator = Evaluator(World(problem))
    scored = with_rentals(evaluator)
    report = StageReport(stage="greedy", completed=True, objective_usd=scored.total, work=scored.attempts)
    return write_plan(
        evaluator,
        scored,
        winner="greedy",
        because=NoneCheaper(),
        stages=(report,),
        seed=seed,
    )


def plan_quickly(problem: Problem, seed: int = 0) -> Plan:
    """What greedy's order starts now on owned capacity: the first moment of its schedule, which needs no forecast.

    A job that would miss its deadline is left to a whole decision: waiting, or renting, may be better for it.
    """
    world = World(problem)
    begun = ListSchedule(world, None, {}, whole=False)
    bookings = begun.bookings()
    starts = {
        job: booking.place
        for job, booking in bookings.items()
        if not cost(
            world.book,
            world.as_form(world.by_id[job], booking.place),
            world.places[booking.place],
            world.now,
        ).late
    }
    scored = Scored(starts, bookings, begun.caps(), begun.attempts)
    return write_starts(Evaluator(world, home={}), scored, QUICK, seed)


def with_rentals(evaluator: Evaluator) -> Scored:
    """Starts in order, then rentals while they make the whole cheaper."""
    best, trials, until = evaluator.score({}), 0, evaluator.work.attempts + WORK
    for job in evaluator.world.jobs:
        if trials >= TRIALS or evaluator.work.attempts > until:
            break
        cases, found = _worth_trying(evaluator, best, job), best
        if not cases:
            continue
        rented = {other: best.starts[other] for other in best.rents}
        for case in [*cases[:OFFERS_PER_JOB], *_roomy(evaluator, best, job, cases)]:
            if trials >= TRIALS or evaluator.work.attempts > until:
                break
            if found is not best and case in cases[:OFFERS_PER_JOB]:
                continue
            trials += 1
            trial = evaluator.score({**rented, job.id: case.place})
            if job.id in trial.rents and trial.total < found.total - EPSILON_USD:
                found = trial
        best = found
    return drop_needless(evaluator, best)


def drop_needless(evaluator: Evaluator, best: Scored) -> Scored:
    """Take each rental back, everything else as it is: what later choices have made needless goes.

    What is rented against waiting alone is needless, whatever else it is good for, when the job can start at home at once.
    """
    until = evaluator.work.attempts + WORK
    if best.rents:  # what else starts is set in each trial, so it is set in what they are held against
        settled = evaluator.score(best.starts)
        best = settled if settled.total < best.total - EPSILON_USD else best
    for job in best.rents[:TAKEN_BACK]:
        if evaluator.work.attempts > until:
            break
        trial = evaluator.score({other: place for other, place in best.starts.items() if other != job})
        case = evaluator.bursting.case(evaluator.world.by_id[job], best.starts[job])
        against_waiting = isinstance(case, BurstCandidate) and (case.required or case.for_waiting)
        at_home = job in trial.starts and not evaluator.world.places[trial.starts[job]].rented
        if trial.total <= best.total + EPSILON_USD or (against_waiting and at_home):
            best = trial
    return best


def _worth_trying(evaluator: Evaluator, best: Scored, job: JobView) -> list[BurstCandidate]:
    """Rentals that begin now, for a job that this decision leaves late or waiting."""
    booking, now = best.booking(job.id), evaluator.world.now
    misses = best.costs[job.id].late or job.id in best.later
    misses = misses or (
        booking is not None and booking.start_at > now and best.costs[job.id].miss > LEAST_USD
    )
    if booking is not None and (booking.rents or (booking.start_at <= now and not misses)):
        return []
    cases = [case for case in evaluator.bursting.cases(job) if case.is_now(now)]
    return [case for case in cases if misses or case.required or case.for_waiting]


def _roomy(
    evaluator: Evaluator, best: Scored, job: JobView, cases: Sequence[BurstCandidate]
) -> list[BurstCandidate]:
    """The rental that would be the cheapest if it were shared, where others are late too and fit beside the job: alone it may not pay."""
    places = evaluator.world.places
    roomy = [case for case in cases if places[case.place].gpus >= 2 * job.gpus_total > 0]
    cheapest = min(roomy, key=lambda case: case.cost_usd / places[case.place].gpus, default=None)
    if cheapest is None or cheapest is cases[0]:
        return []
    late = (other for other in evaluator.world.jobs if best.costs[other.id].late or other.id in best.later)
    return [cheapest] if len(list(islice(late, 2))) == 2 else []

"""Simple rules that place what waits now, each with nothing but the free hosts before it: what the optimizer has to be better than.

Names and rules are those of the planning page. None of them rents: what they leave is left to the future, as for everybody.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence

from ortools.sat.python import cp_model

from federator.model.snapshot import JobView, Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.terms import Row
from federator.planning.places.host_sets import need_of
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.buckets import BUCKETS
from federator.planning.world.prices import cost
from federator.planning.world.problem import ClassKey, World

Starts = dict[str, int]
Choice = Callable[[JobView, Sequence[int]], int | None]
"""Of the places that fit now, and those that would do at all, one or none."""

MOST_BOOLEANS = 300_000
"""Beyond it a model with a variable for each job, place and time is not even built."""


def first_fit(problem: Problem, seed: int) -> Starts:
    """By arrival, whatever fits, at the first place that holds it."""
    del seed
    world = World(problem)
    return _fill(world, _by_arrival(world), lambda _, fitting: fitting[0])


def random_site(problem: Problem, seed: int) -> Starts:
    """By arrival, bound to a random eligible place, whether it is free or not."""
    world, draw = World(problem), random.Random(seed)

    def bound(job: JobView, fitting: Sequence[int]) -> int | None:
        place = draw.choice(world.home(job))
        return place if place in fitting else None

    return _fill(world, _by_arrival(world), bound)


def cheapest_first(problem: Problem, seed: int) -> Starts:
    """By arrival, at the place that costs least now."""
    del seed
    world = World(problem)
    return _fill(
        world,
        _by_arrival(world),
        lambda job, fitting: min(
            fitting, key=lambda p: cost(world.book, job, world.places[p], world.now).total
        ),
    )


def race(problem: Problem, seed: int) -> Starts:
    """By priority, then arrival; whichever place that has room now is the quickest to answer."""
    world, draw = World(problem), random.Random(seed)
    jobs = sorted(world.jobs, key=lambda job: (-job.priority, job.submitted_at))
    return _fill(world, jobs, lambda _, fitting: draw.choice(fitting))


def _by_arrival(world: World) -> list[JobView]:
    return sorted(world.jobs, key=lambda job: job.submitted_at)


def _fill(world: World, jobs: Iterable[JobView], choose: Choice) -> Starts:
    """Start each job in turn where the rule says. A class that nothing holds any more is not asked about again."""
    host_sets = {place: world.host_set(place) for place, at in enumerate(world.places) if at.offer is None}
    starts: Starts = {}
    full: set[ClassKey] = set()
    for job in jobs:
        if world.key(job) in full:
            continue
        fitting = [place for place in world.home(job) if host_sets[place].fits(need_of(job), job.nodes)]
        if not fitting:
            full.add(world.key(job))
            continue
        place = choose(job, fitting)
        if place is not None and host_sets[place].take(need_of(job), job.nodes) is not None:
            starts[job.id] = place
    return starts


def per_job_cpsat(problem: Problem, limit_s: float) -> Starts | str:
    """A variable for each job, place and time, given to CP-SAT with a limit; or why it was not."""
    world = World(problem)
    about = BUCKETS * sum(len(world.open_to(job)) for job in world.jobs)
    if about > 3 * MOST_BOOLEANS:
        return f"not built: some {about:,} variables"
    table = cut.build(Evaluator(world))
    copies = [len(table.classes[klass]) if klass >= 0 else 1 for klass in table.klass.tolist()]
    if sum(copies) > MOST_BOOLEANS:
        return f"not built: {sum(copies):,} variables"
    model = cp_model.CpModel()
    most = [1 if klass >= 0 else int(upper) for klass, upper in zip(table.klass, table.upper, strict=True)]
    variables = [
        [model.new_int_var(0, top, "") for _ in range(many)] for top, many in zip(most, copies, strict=True)
    ]
    for row in table.rows:
        _add_row(model, row, variables)
    for column, upper in enumerate(table.upper):
        if upper < copies[column]:
            model.add(sum(variables[column]) <= int(upper))
    prices = [(v, round(table.cost[c] * 100)) for c, each in enumerate(variables) for v in each]
    model.minimize(cp_model.LinearExpr.weighted_sum([v for v, _ in prices], [k for _, k in prices]))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 2
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return f"no plan within {limit_s:g} s"
    return {
        job.id: int(table.place[column])
        for column in table.committed.tolist()
        for job, variable in zip(table.classes[table.klass[column]], variables[column], strict=True)
        if solver.value(variable)
    }


def _add_row(model: cp_model.CpModel, row: Row, variables: Sequence[Sequence[cp_model.IntVar]]) -> None:
    """A class's row is one for each of its jobs; the others are sums over all of them, in thousandths."""
    if row.serves >= 0:
        for member in zip(*(variables[column] for column in row.columns), strict=True):
            model.add_exactly_one(member)
        return
    terms = [
        (variable, round(factor * 1000))
        for column, factor in zip(row.columns, row.coefficients, strict=True)
        for variable in variables[column]
    ]
    total = cp_model.LinearExpr.weighted_sum([v for v, _ in terms], [k for _, k in terms])
    if row.high < math.inf:
        model.add(total <= int(row.high * 1000))
    if row.low > -math.inf:
        model.add(total >= int(row.low * 1000))


RULES: dict[str, Callable[[Problem, int], Starts]] = {
    "first-fit": first_fit,
    "random": random_site,
    "cheapest-first": cheapest_first,
    "race": race,
}

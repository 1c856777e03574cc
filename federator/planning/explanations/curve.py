"""The price of time: when a job could be done, and what each earlier finish costs.

At home it costs what its hosts do, and is done when they are free; rented, it is done sooner, for money. What is dearer than something that is done as soon is
left out, so each step buys time. Nothing is decided here: it says what a deadline would have to be worth, also to who has none yet, and where no policy would
rent at all nothing is shown that could not be had.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from federator.model.capacity import Market
from federator.model.plans import PricePoint
from federator.model.snapshot import JobView
from federator.planning.explanations.reasons import DecidedWorld
from federator.planning.kernels.start_cost import gpus_usd
from federator.planning.places.candidates import Candidate, machines
from federator.planning.places.host_sets import need_of
from federator.planning.rules.permits import worst_usd
from federator.planning.world.prices import cost

MOST_POINTS = 6
EPSILON_USD = 0.005
"""Less than half a cent is nothing."""


def price_curve(standing: DecidedWorld, job: JobView, home_finish_at: float | None) -> tuple[PricePoint, ...]:
    """Soonest and dearest first. `home_finish_at` is the forecast on owned capacity behind all who wait before it."""
    best: list[PricePoint] = []
    found = [*_now(standing, job), *_at_home(standing, job, home_finish_at)]
    for point in sorted(found, key=lambda p: (p.finish_at, p.cost_usd, p.site, p.pool)):
        if not best or point.cost_usd < best[-1].cost_usd - EPSILON_USD:
            best.append(point)
    # The ends say most; of what lies between, what is soonest.
    return tuple(best if len(best) <= MOST_POINTS else (*best[: MOST_POINTS - 1], best[-1]))


def _now(standing: DecidedWorld, job: JobView) -> Iterator[PricePoint]:
    """Where it could begin at once, free or rented, as far as caps leave room."""
    world = standing.world
    for choice in world.open_to(job):
        at, view = world.places[choice], world.as_form(job, choice)
        if standing.caps.blocking(view, at) is not None or (job.not_before_at or 0.0) > world.now:
            continue
        if at.offer is None:
            usable = not at.rented or standing.bursting.may_use_lease(view, choice)
            if usable and standing.host_set(choice).fits(need_of(view), view.nodes):
                yield _point(standing, view, at, world.now, rents=False)
        elif standing.stocks.room(world.place_of(choice)) >= machines(view, at):
            yield _point(standing, view, at, world.now + at.offer.offer.delay_s, rents=True)


def _at_home(standing: DecidedWorld, job: JobView, finish_at: float | None) -> Iterator[PricePoint]:
    """Where it waits for its turn on owned capacity; which place that is the forecast does not say, so the price is the least of them."""
    world = standing.world
    if finish_at is None or not world.home(job):
        return
    points = []
    for choice in world.home(job):
        at, view = world.places[choice], world.as_form(job, choice)
        points.append(_point(standing, view, at, max(world.now, finish_at - at.run_s(view)), rents=False))
    least = min(points, key=lambda point: (point.cost_usd, point.site, point.pool))
    only = len({(point.site, point.pool) for point in points}) == 1
    shift = finish_at - least.finish_at
    yield replace(
        least,
        site=least.site if only else "",
        pool=least.pool if only else "",
        finish_low_at=least.finish_low_at + shift,
        finish_at=finish_at,
        finish_high_at=least.finish_high_at + shift,
        in_time=None if job.deadline_at is None else finish_at <= job.deadline_at,
    )


def _point(
    standing: DecidedWorld, job: JobView, at: Candidate, start_at: float, *, rents: bool
) -> PricePoint:
    price = cost(standing.world.book, job, at, start_at, rents=rents)
    run_s = at.run_s(job)
    low_s, high_s = (at.run_s(replace(job, run_s=each)) for each in (job.run_low_s, job.run_high_s))
    # Owned hosts at their marginal price: what a report will say that they cost.
    owned_usd = gpus_usd(at.billed_usd_gpu_h, job.gpus_total, run_s) if at.market is Market.OWNED else 0.0
    finish_at = start_at + run_s
    return PricePoint(
        site=at.site,
        pool=at.pool,
        market=at.market,
        start_at=start_at,
        finish_low_at=start_at + min(low_s, run_s),
        finish_at=finish_at,
        finish_high_at=start_at + max(high_s, run_s),
        cost_usd=round(price.rent + price.egress + owned_usd, 4),
        at_most_usd=round(worst_usd(job, at), 4) if at.rented else at.transfer(job).usd,
        in_time=None if job.deadline_at is None else finish_at <= job.deadline_at,
    )

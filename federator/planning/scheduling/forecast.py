"""When jobs will run: the forecast at home, and the run times that go into it.

Users err, but not from job to job: those of one name are wrong by nearly the same factor (in the synthetic family by e^±0.4 from name to
name, by e^±0.1 within one). So how far a run was from its estimate corrects the estimates of its namesakes, and a little those of its
owner's other work. What is planned with is always the same share of cases, so plans grow tighter as more is known.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from federator.kernel.quantities import format_duration as span
from federator.model.snapshot import Problem
from federator.planning.rentals.candidate import HomeForecast
from federator.planning.rules.calendars import next_start
from federator.planning.scheduling.list_schedule import Booking, at_home
from federator.planning.world.problem import World
from federator.planning.world.room import Room

SPREAD = 0.4
"""How far estimates are off until something is known of their kind: the standard deviation of ln(run / estimate)."""
NAMESAKES = 0.2
"""Likewise how far runs of one name are from each other, until it is seen."""
DOUBT = 4.0
"""So many runs must speak against `NAMESAKES` to count as much as it does; of an owner, as many names against `SPREAD`, times `OWNERS`."""
OWNERS = 2.5
PLANNED = 0.75
"""Plans use a run time that so many standard deviations are above the middle: 77 of 100 runs are shorter."""
SHOWN = 1.2816
"""And the range that is shown, which is also what deadlines are weighed with, holds 80 of 100."""
RUNTIME_MARGIN = 1.35
"""What that comes to over an estimate of which nothing else is known, e^(0.75 × 0.4)."""
FAR = 4.0
"""Standard deviations beyond which a normal distribution is as good as falling off exponentially."""
DEFAULT_RUN_S = 3600.0
"""The run time of a job that nothing is known about."""
HISTORY = 20
"""So many past runs count."""


class Leaning(NamedTuple):
    """How estimates turn out: ln(run / estimate) is about `shift`, give or take `spread`; learned from so many `runs` of the same name."""

    shift: float = 0.0
    spread: float = SPREAD
    runs: int = 0


UNKNOWN = Leaning()


def leaning(own: Sequence[float], owners: Sequence[float] = ()) -> Leaning:
    """What past errors, as ln(run / estimate), say of the next: `own` are those of the same name, `owners` one of each other name of its owner."""
    doubt = DOUBT * OWNERS
    shift = sum(owners) / (len(owners) + doubt)
    variance = (doubt * SPREAD**2 + sum((x - shift) ** 2 for x in owners)) / (doubt + len(owners))
    if not own:
        return Leaning(shift, math.sqrt(variance))
    count, middle = len(own), sum(own) / len(own)
    within = (DOUBT * NAMESAKES**2 + sum((x - middle) ** 2 for x in own)) / (DOUBT + count - 1)
    trust = (count / within) / (count / within + 1.0 / variance)
    left = 1.0 / (count / within + 1.0 / variance)
    return Leaning(shift + trust * (middle - shift), math.sqrt(within + left), count)


def outlasting(known: Leaning, least: float) -> Leaning:
    """The same, where a namesake that still runs has taken e^`least` times its estimate already: what is shorter is ruled out."""
    beyond = (least - known.shift) / known.spread
    tail = 0.5 * math.erfc(beyond / math.sqrt(2.0))
    if tail < 1e-6:
        return Leaning(least, known.spread / max(2.0, beyond), max(1, known.runs))
    hazard = math.exp(-0.5 * beyond * beyond) / math.sqrt(2.0 * math.pi) / tail
    kept = max(0.01, 1.0 + beyond * hazard - hazard * hazard)
    return Leaning(known.shift + known.spread * hazard, known.spread * math.sqrt(kept), max(1, known.runs))


class RunForecast(NamedTuple):
    """Run time on the reference model: what plans use, and the range that is shown."""

    run_s: float
    low_s: float
    high_s: float


def lasts_s(forecast: RunForecast, ran_s: float, share: float = 0.5) -> float:
    """How long a run takes in all, in seconds, of which so much is over: that `share` of the runs that last so long end before that, the others after.

    A run that has just begun is expected to take its typical time, without a margin, for what is free behind it is planned by this: who waits has a margin of his own.
    """
    typical_s = math.sqrt(forecast.low_s * forecast.high_s)
    if not 0.0 < forecast.low_s < forecast.high_s:
        return max(typical_s, ran_s)
    spread = math.log(forecast.high_s / forecast.low_s) / (2.0 * SHOWN)
    if ran_s <= 0.0:
        return typical_s * math.exp(spread * NormalDist().inv_cdf(share))
    beyond = math.log(ran_s / typical_s) / spread
    left = 1.0 - share
    if beyond > FAR:
        return ran_s * math.exp(spread * -math.log(left) / beyond)
    tail = 0.5 * math.erfc(beyond / math.sqrt(2.0))
    return max(ran_s, typical_s * math.exp(spread * NormalDist().inv_cdf(1.0 - left * tail)))


def runtime_quantiles(
    estimate_s: float | None,
    history: Sequence[float] = (),
    limit_s: float | None = None,
    errors: Leaning = UNKNOWN,
) -> RunForecast:
    """The user's estimate, corrected by how such estimates turn out; else the median of past runs of the same name and queue, else an hour.

    `history` are run times in seconds at speed 1, newest last; the last `HISTORY` count. Nothing runs beyond `limit_s`, the
    job's max_duration.
    """
    past = sorted(history[-HISTORY:])
    if estimate_s is not None:
        found = _about(estimate_s * math.exp(errors.shift), errors.spread)
    elif past:
        low, middle, high = (past[min(len(past) - 1, int(share * len(past)))] for share in (0.1, 0.5, 0.9))
        found = _about(middle, SPREAD)
        if len(past) >= HISTORY // 2:
            found = found._replace(low_s=low, high_s=max(high, found.run_s))
    else:
        found = _about(DEFAULT_RUN_S, SPREAD)
    return found if limit_s is None else RunForecast(*(min(each_s, limit_s) for each_s in found))


def _about(middle_s: float, spread: float) -> RunForecast:
    """Run times that are distributed so, as logarithms."""
    margin = RUNTIME_MARGIN if spread == SPREAD else math.exp(PLANNED * spread)
    return RunForecast(
        middle_s * margin, middle_s * math.exp(-SHOWN * spread), middle_s * math.exp(SHOWN * spread)
    )


def in_words(
    estimate_s: float | None, history: Sequence[float], limit_s: float | None, errors: Leaning
) -> str:
    """How long a job is planned to run, as `runtime_quantiles` has it, and how that is known: a guess is called one."""
    run_s, past = runtime_quantiles(estimate_s, history, limit_s, errors).run_s, len(history[-HISTORY:])
    about = f"about {span(run_s)}"
    if limit_s is not None and run_s >= limit_s:
        about = f"up to its max_duration of {span(limit_s)}"
    if estimate_s is None and not past:
        return f"{about}: a guess ({span(DEFAULT_RUN_S)} × {RUNTIME_MARGIN:g}), because nothing is known of it; give an estimate"
    if estimate_s is None or errors == UNKNOWN:
        known = f"the median of {_runs(past)}" if estimate_s is None else "its estimate"
        return f"{about}: {known} × {RUNTIME_MARGIN:g}"
    by = f"{_runs(errors.runs)} of that name" if errors.runs else "the owner's past runs"
    return f"{about}: its estimate × {math.exp(errors.shift):.2f}, by {by}, and a margin"


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def home_forecast_of(problem: Problem) -> dict[str, HomeForecast]:
    """Every job's forecast on owned capacity alone, by id; a job that can never run there is absent."""
    return home_forecast(World(problem))


def home_forecast(world: World) -> dict[str, HomeForecast]:
    """The counterfactual of every rental: nothing is rented, and no lease is used.

    Where prices have chosen the window, not all that stand first are in it: a job that could start now only because they are not, waits for them here.
    What the room is worth to others there is by the prices that the problem brings along. And who would have his turn at a place while a calendar has it closed, waits until it opens.
    """
    priced, room, found = bool(world.problem.outside), Room(world.problem.warm_prices), {}
    for job, booking in at_home(world).items():
        late_s = world.by_id[job].behind_s if priced and booking.start_at <= world.now else 0.0
        if world.book.openings:
            late_s = max(late_s, _closed_s(world, job, booking))
        if late_s < math.inf:
            at, start_at, finish_at = world.places[booking.place], booking.start_at, booking.finish_at
            begin_h, end_h = (start_at - world.now) / 3600.0, (finish_at - world.now) / 3600.0
            usd_gpu = at.price_usd_gpu_h * (end_h - begin_h) + room.usd(at.key, begin_h, end_h)
            usd = world.by_id[job].gpus_total * usd_gpu
            found[job] = HomeForecast(job, at.key, start_at + late_s, finish_at + late_s, usd)
    return found


def _closed_s(world: World, job: str, booking: Booking) -> float:
    """For how long calendars keep a start that was planned there."""
    view, at = world.as_form(world.by_id[job], booking.place), world.places[booking.place]
    return next_start(view, at, world.book, booking.start_at) - booking.start_at

"""When jobs will run: the forecast at home, and the run times that go into it."""

from collections.abc import Sequence
from typing import NamedTuple

from federator.model.snapshot import Problem
from federator.planning.burst import HomeForecast
from federator.planning.problem import World
from federator.planning.schedule import schedule
from federator.planning.wording import span

RUNTIME_MARGIN = 1.35
"""Plans use so much more than the expected run time: measured with the prototype, it cut missed deadlines by 29 to 35 %
(`docs/explanation/planning.md`)."""
DEFAULT_RUN_S = 3600.0
"""The run time of a job that nothing is known about."""
HISTORY = 20
"""So many past runs count."""


class RunForecast(NamedTuple):
    """Run time on the reference model: what plans use, and the range that is shown."""

    run_s: float
    low_s: float
    high_s: float
    source: str


def runtime_quantiles(
    estimate_s: float | None,
    history: Sequence[float] = (),
    margin: float = RUNTIME_MARGIN,
    limit_s: float | None = None,
) -> RunForecast:
    """The user's estimate, else the median of past runs of the same name and queue, else an hour; times the margin.

    `history` are run times in seconds at speed 1, newest last; the last `HISTORY` count. Nothing runs beyond `limit_s`, the
    job's max_duration.
    """
    past = sorted(history[-HISTORY:])
    if estimate_s is not None:
        found = RunForecast(estimate_s * margin, estimate_s / margin, estimate_s * margin, "estimate")
    elif past:
        low, middle, high = (past[min(len(past) - 1, int(share * len(past)))] for share in (0.1, 0.5, 0.9))
        found = RunForecast(
            middle * margin,
            low,
            max(high, middle * margin),
            f"the median of {len(past)} run{'s' * (len(past) > 1)}",
        )
    else:
        found = RunForecast(DEFAULT_RUN_S * margin, DEFAULT_RUN_S / margin, DEFAULT_RUN_S * margin, "default")
    if limit_s is None:
        return found
    return RunForecast(
        min(found.run_s, limit_s), min(found.low_s, limit_s), min(found.high_s, limit_s), found.source
    )


def in_words(forecast: RunForecast, limit_s: float | None) -> str:
    """How long a job is planned to run, and how that is known: a guess is called one."""
    about = f"about {span(forecast.run_s)}"
    if limit_s is not None and forecast.run_s >= limit_s:
        about = f"up to its max_duration of {span(limit_s)}"
    if forecast.source == "default":
        return f"{about}: a guess ({span(DEFAULT_RUN_S)} × {RUNTIME_MARGIN:g}), because nothing is known of it; give an estimate"
    known = "its estimate" if forecast.source == "estimate" else forecast.source
    return f"{about}: {known} × {RUNTIME_MARGIN:g}"


def list_schedule(problem: Problem) -> dict[str, HomeForecast]:
    """Every job's forecast on owned capacity alone, by id; a job that can never run there is absent."""
    return home_forecast(World(problem))


def home_forecast(world: World) -> dict[str, HomeForecast]:
    """The counterfactual of every rental: nothing is rented, and no lease is used."""
    found = schedule(world, None).bookings
    return {
        job: HomeForecast(job, world.places[b.place].key, b.start_at, b.finish_at) for job, b in found.items()
    }

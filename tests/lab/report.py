"""`python -m tests.lab report`: schedulers on one trace, with plots, and how honest their forecasts are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.contrast import put
from federator.cli.planner import ready_planner
from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_duration_s

if TYPE_CHECKING:
    from federator.simulation.loads import LoadOptions
    from federator.simulation.schedulers import Scheduler
    from federator.simulation.study import Run
    from federator.simulation.work import TraceJob
    from federator.simulation.world import WorldSpec
    from tests.lab.series import Series


def report(
    *,
    world: Path,
    trace: Path,
    policies: Path | None = None,
    scheduler: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ("ours",),
    seed: Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative="")] = (0,),
    deadline_k: float | None = None,
    sigma: float | None = None,
    load: float = 1.0,
    length: str | None = None,
    looks: str | None = None,
    out: Path = Path("report.html"),
) -> int:
    """Simulate schedulers on a trace, and write a page with plots; it opens without a network.

    Parameters
    ----------
    world:
        As of `federator simulate`, like the options up to `length`.
    trace:
        The jobs.
    policies:
        In place of the world's.
    scheduler:
        Some of those of the comparison.
    seed:
        Plots are of the first, the table is of all.
    deadline_k:
        Give every job a deadline of its submission + k × its true run time.
    sigma:
        Let users err in their estimates: true run time × e^N(0, sigma²).
    load:
        Submit each job so many times.
    length:
        Take the jobs of so long a time, such as 1d.
    looks:
        So often, such as 30m, look at what open jobs are told of their starts and ends, and say how often that was true.
    out:
        The HTML file.
    """
    from federator.cli.exit_codes import FAILED, OK
    from federator.simulation.loads import LoadOptions
    from federator.simulation.report import page
    from federator.simulation.study import study_of
    from federator.simulation.traces import read_trace
    from federator.simulation.world_files import load_world
    from tests.lab.schedulers import scheduler as named
    from tests.lab.study_page import plots_of

    where, jobs = load_world(world, policies), read_trace(trace)
    options = LoadOptions(
        length_s=_seconds(length, "--length"), load=load, deadline_k=deadline_k, sigma=sigma
    )
    chosen = [named(name) for name in scheduler]
    ready_planner()
    found = list(_runs(where, jobs, options, chosen, seed, _seconds(looks, "--looks")))
    runs = tuple(run for run, _ in found)
    study = study_of(where, trace.name, options, runs)
    put(out, page(study, plots=plots_of([series for _, series in found if series.seed == seed[0]])))
    return FAILED if any(run.figures.violations or run.figures.faults for run in runs) else OK


def _runs(
    world: "WorldSpec",
    trace: "Sequence[TraceJob]",
    options: "LoadOptions",
    schedulers: "Sequence[Scheduler]",
    seeds: Sequence[int],
    looks_s: float | None,
) -> "Iterator[tuple[Run, Series]]":
    from federator.simulation.accounting import figures
    from federator.simulation.loads import prepared
    from federator.simulation.running import simulate
    from federator.simulation.study import Run
    from tests.lab.looks import Looking, judged, show
    from tests.lab.series import series

    for seed in seeds:
        jobs = prepared(trace, options, seed, world)
        for each in schedulers:
            looking = Looking(looks_s) if looks_s else None
            outcome = simulate(world, jobs, each, seed=seed, beside=looking.beside if looking else None)
            if looking is not None:
                show(f"{each.name}, seed {seed},", judged(looking.looks, outcome.schedule))
            run = Run(figures=figures(outcome, world, jobs))
            yield run, series(outcome.schedule, world, jobs, each.name, seed)


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise Invalid(str(error), field=option) from None
    if seconds <= 0:
        raise Invalid("must be above 0", field=option, remedy="write for example 30m")
    return seconds

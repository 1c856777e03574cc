"""`federator simulate`: what would happen, with these sites, this load and these rules.

The simulation itself is `federator.simulation`; here are its options, how far it is, and where its results go.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from federator.cli.contrast import put, show_contrast, show_troubles, writable, write_contrast
from federator.cli.live import LiveOptions, WhatIf, save, take
from federator.cli.phrases import seconds_in
from federator.cli.planner import ready_planner
from federator.cli.session import HERE, Connection
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_duration

if TYPE_CHECKING:
    from federator.simulation.loads import LoadOptions
    from federator.simulation.running import Moment, Outcome
    from federator.simulation.study import Run, Study, Summary
    from federator.simulation.work import TraceJob
    from federator.simulation.world import WorldSpec

SHOW_EVERY_S = 0.5
"""Real seconds between two looks at a terminal."""
TELL_EVERY_S = 30.0
"""Real seconds between two lines where it is no terminal."""

AS_IT_IS, NOT_LIVE = WhatIf(), LiveOptions()


def simulate(
    *,
    world: Path | None = None,
    trace: Path | None = None,
    policies: Path | None = None,
    scheduler: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ("ours",),
    seed: Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative="")] = (0,),
    deadline_k: float | None = None,
    sigma: float | None = None,
    load: float = 1.0,
    capacity: float = 1.0,
    start: str | None = None,
    length: str | None = None,
    value_per_gpu_hour: float | None = None,
    schedule_out: Path | None = None,
    json: Path | None = None,
    report: Path | None = None,
    what_if: WhatIf = AS_IT_IS,
    live: LiveOptions = NOT_LIVE,
    connection: Connection = HERE,
) -> int:
    """Run the dispatcher on virtual time: with these sites, this load, and these policies, what would happen?

    Nothing is started and nobody is asked: the production dispatcher and agents run on simulated sites, links and clouds.

    Parameters
    ----------
    world:
        The sites, links and offers: a YAML file, or a table of pools; left out with --from-live.
    trace:
        The jobs: a table, plain or gzipped; left out with --from-live.
    policies:
        A folder or file of policies, in place of the world's.
    scheduler:
        One or more of ours, greedy, fifo, threshold, isolated.
    seed:
        One or more; each scheduler is run with each.
    deadline_k:
        Give every job a deadline of its submission + k × its true run time.
    sigma:
        Let users err in their estimates: true run time × e^N(0, sigma²).
    load:
        Submit each job so many times; a fraction is drawn.
    capacity:
        So many times the nodes of each pool.
    start:
        Begin so long after the trace does, such as 2d.
    length:
        Take the jobs of so long a time, such as 1d.
    value_per_gpu_hour:
        What meeting a deadline is worth, in USD per GPU-hour, where the trace does not say.
    schedule_out:
        Write one row per attempt to this CSV file, and the leases to another beside it.
    json:
        Write all figures to this file.
    report:
        Write a page of tables to this HTML file; it opens without a network.
    """
    from federator.cli.exit_codes import FAILED, OK
    from federator.simulation.loads import LoadOptions
    from federator.simulation.schedulers import scheduler as named
    from federator.simulation.study import runs, study_of
    from federator.simulation.world import scaled

    chosen = [named(name) for name in scheduler]
    writable(schedule_out, json, report)
    given = _given(world, trace, policies, live, connection)
    options = LoadOptions(
        start_s=_duration_s(start, "--start") or 0.0,
        length_s=_duration_s(length, "--length"),
        load=_above_zero(load, "--load"),
        deadline_k=None if deadline_k is None else _above_zero(deadline_k, "--deadline-k"),
        sigma=None if sigma is None else _above_zero(sigma, "--sigma"),
        value_usd_gpu_h=value_per_gpu_hour,
        limit=None if live.from_live else 4.0,
    )
    where = scaled(given.world, _above_zero(capacity, "--capacity"))
    progress = _begin()
    many = len(scheduler) * len(seed) > 1
    if what_if:
        if many:
            raise Invalid(
                "takes one scheduler and one seed", field="what if", remedy="leave out the other ones"
            )
        asked = _Asked(where, given, options, capacity, scheduler[0], seed[0])
        return _what_if(asked, what_if, progress, _Files(schedule_out, json, report))
    done: list[Run] = []
    unwritten: list[Invalid] = []
    for run, outcome in runs(where, given.jobs, options, chosen, seed, progress.watch):
        progress.end(run)
        done.append(run)
        if schedule_out is not None:
            unwritten += _unwritten(schedule_out, run, outcome, many=many)
    study = study_of(where, given.trace, options, done, capacity)
    _show(study, given.remarks)
    _write(study, json, report)
    for fault in unwritten:
        raise fault
    return FAILED if any(run.figures.violations or run.figures.faults for run in done) else OK


class _Given(NamedTuple):
    """What is simulated, before options."""

    world: "WorldSpec"
    jobs: "Sequence[TraceJob]"
    trace: str
    remarks: tuple[str, ...] = ()


class _Asked(NamedTuple):
    """A what-if question."""

    world: "WorldSpec"
    given: _Given
    options: "LoadOptions"
    capacity: float
    scheduler: str
    seed: int


class _Files(NamedTuple):
    """Where results go."""

    schedule_out: Path | None
    json: Path | None
    report: Path | None


def _given(
    world: Path | None, trace: Path | None, policies: Path | None, live: LiveOptions, connection: Connection
) -> _Given:
    """From files, or from a dispatcher."""
    from msgspec.structs import replace

    from federator.simulation.traces import read_trace
    from federator.simulation.world_files import load_world, read_policies

    if not live.from_live:
        if world is None or trace is None:
            raise Invalid(
                "is missing",
                field="--world" if world is None else "--trace",
                remedy="give both files, or --from-live",
            )
        given = _Given(load_world(world, policies), read_trace(trace), trace.name)
        save(given.world, tuple(given.jobs), live)
        return given
    if world is not None or trace is not None:
        raise Invalid(
            "cannot be combined with --from-live", field="--world", remedy="leave out --world and --trace"
        )
    found = take(live.since, connection)
    save(found.world, found.jobs, live)
    where = found.world if policies is None else replace(found.world, policies=read_policies(policies))
    return _Given(where, found.jobs, f"the last {live.since}", found.remarks)


def _what_if(asked: _Asked, what_if: WhatIf, progress: "ProgressBar", files: _Files) -> int:
    """The world as it is beside the one that is asked about."""
    from federator.cli.exit_codes import FAILED, OK
    from federator.simulation.contrast import TURNS_APART, Side, contrasted
    from federator.simulation.study import study_of
    from federator.simulation.what_if import changed

    other = changed(asked.world, add_pool=what_if.add_pool, drain=what_if.drain, price=what_if.price)
    found = contrasted(
        (Side("as it is", asked.world), Side("what if", other.world)),
        asked.given.jobs,
        asked.options,
        by=asked.scheduler,
        seed=asked.seed,
        changes=other.changes,
        progress=progress,
    )
    remarks = (*asked.given.remarks, TURNS_APART)
    show_contrast(found.contrast, remarks)
    for run, outcome in zip(found.runs, found.outcomes, strict=True):
        if files.schedule_out is not None:
            _write_schedule(files.schedule_out, run, outcome, many=True)
    study = study_of(asked.world, asked.given.trace, asked.options, found.runs, asked.capacity)
    write_contrast(found, study, remarks, files.json, files.report)
    return FAILED if show_troubles(found.troubles) else OK


class ProgressBar:
    """Says how far a simulation is: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._began_s = self._said_s = time.monotonic()
        self._run: tuple[str, int] | None = None

    def watch(self, scheduler: str, seed: int, moment: "Moment") -> None:
        """Called every hour of virtual time."""
        now_s = time.monotonic()
        if self._run != (scheduler, seed):
            self._run, self._began_s, self._said_s = (scheduler, seed), now_s, now_s
        if now_s - self._said_s < (SHOW_EVERY_S if self._terminal else TELL_EVERY_S):
            return
        self._said_s = now_s
        took_s = max(1e-3, now_s - self._began_s)
        rate = moment.now_s / took_s
        left = format_duration(took_s * (1.0 - moment.share) / moment.share) if moment.share > 0 else "?"
        self._say(
            f"{scheduler}, seed {seed}: {format_duration(moment.now_s)} of virtual time ({moment.share:.0%}), "
            f"{rate:,.0f} × real time, {moment.finished:,} of {moment.submitted:,} jobs done, about {left} left"
        )

    def end(self, run: "Run") -> None:
        """One simulation is over."""
        figures, took_s = run.figures, time.monotonic() - self._began_s
        self._say(
            f"{figures.scheduler}, seed {figures.seed}: {figures.finished:,} of {figures.jobs:,} jobs done in "
            f"{format_duration(figures.span_s)} of virtual time, {took_s:.1f} s of real time",
            last=True,
        )
        self._run = None

    def _say(self, text: str, *, last: bool = False) -> None:
        start, end = ("\r\033[K", "\n" if last else "") if self._terminal else ("", "\n")
        print(start + text, end=end, file=sys.stderr, flush=True)


def _begin() -> ProgressBar:
    """Have the planner ready; from here on it is told how far the simulation is."""
    ready_planner()
    return ProgressBar()


def _write_schedule(path: Path, run: "Run", outcome: "Outcome", *, many: bool) -> None:
    """The two tables. With several runs, each has its scheduler and seed in its name."""
    from federator.simulation.schedule import attempts_csv, leases_csv

    word = f"-{run.figures.scheduler.replace(' ', '-')}-{run.figures.seed}" if many else ""
    put(path.with_name(f"{path.stem}{word}{path.suffix}"), attempts_csv(outcome.schedule.attempts))
    put(path.with_name(f"{path.stem}{word}.leases{path.suffix}"), leases_csv(outcome.schedule.leases))


def _unwritten(path: Path, run: "Run", outcome: "Outcome", *, many: bool) -> list[Invalid]:
    """Write them; what has failed is to be said when all has been run and shown."""
    try:
        _write_schedule(path, run, outcome, many=many)
    except Invalid as fault:
        return [fault]
    return []


def _write(study: "Study", json: Path | None, report: Path | None) -> None:
    import msgspec

    from federator.simulation.report import page

    if json is not None:
        put(json, msgspec.json.format(msgspec.json.encode(study)).decode() + "\n")
    if report is not None:
        put(report, page(study))


def _show(study: "Study", remarks: Sequence[str]) -> None:
    """The schedulers side by side, and whatever cannot be true."""
    from federator.cli.layout import Column
    from federator.cli.output import show_rows

    for remark in remarks:
        print(remark, file=sys.stderr)

    def mean(field: str, scale: float = 1.0, digits: int = 1) -> "Callable[[Summary], str]":
        def text(row: "Summary") -> str:
            found = row.means[field]
            spread = f" ± {found.half_width * scale:,.{digits}f}" if row.seeds > 1 else ""
            return f"{found.value * scale:,.{digits}f}{spread}"

        return text

    columns: list[Column[Summary]] = [
        Column("SCHEDULER", lambda row: row.scheduler),
        Column("MISSED %", mean("missed_share", 100.0, 2), right=True),
        Column("MEAN WAIT min", mean("wait_mean_s", 1 / 60), right=True),
        Column("P95 WAIT min", mean("wait_p95_s", 1 / 60), right=True),
        Column("SLOWDOWN", mean("slowdown_mean", 1.0, 2), right=True, least=100),
        Column("RENT USD", mean("rented_usd", 1.0, 0), right=True),
        Column("OWNED USD", mean("owned_usd", 1.0, 0), right=True, least=90),
        Column("LOSS USD", mean("loss_usd", 1.0, 0), right=True),
        Column("BUSY %", mean("utilisation", 100.0), right=True),
    ]
    show_rows(study.summaries, columns, "table", empty="nothing was run")
    for run in study.runs:
        for trouble in (*run.figures.violations[:5], *run.figures.faults[:5]):
            print(f"{run.figures.scheduler}, seed {run.figures.seed}: {trouble}", file=sys.stderr)


def _duration_s(text: str | None, option: str) -> float | None:
    return None if text is None else seconds_in(text, option)


def _above_zero(value: float, option: str) -> float:
    if not 0 < value < float("inf"):
        raise Invalid("must be a number above 0", field=option)
    return value

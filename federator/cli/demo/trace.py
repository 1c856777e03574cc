"""Jobs of a real trace, as real processes on as many sites as it has clusters, at their own times."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from rich.text import Text

from federator.cli.demo.federation import Federation
from federator.cli.demo.findings import gpu_hours
from federator.cli.demo.report import heading
from federator.cli.demo.result import write_result
from federator.cli.demo.screen import open_screen
from federator.cli.demo.watch import Watch
from federator.cli.demo.world import Document
from federator.cli.exits import FAILED, OK
from federator.cli.layout import Column, table
from federator.cli.output import console, facts, show, width
from federator.cli.phrases import duration
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_instant
from federator.model.jobs import TERMINAL, JobStatus
from federator.wire.http import JobRow, Overview
from federator.wire.named_files import read_number, read_table

TRACE_COLUMNS = ("cluster", "job", "submit_s", "duration_s", "num_gpu")
SITE_COLUMNS = ("cluster", "sim_gpus", "gpus_per_node")
DEFAULT_SITES = "itp10_sites_x0.2.csv"
DEADLINE_FACTOR = 3.0
"""deadline = submit + 3 × duration: the trace's own deadlines suit elastic jobs only (see the data's README)."""
MODEL = "A100"
LONG_S = 300.0
"""A run that is expected to take longer says so before it starts."""
GRACE_S = 120.0
"""Real seconds beyond the expected end after which something is wrong."""


class TraceJob(msgspec.Struct, frozen=True):
    """One row. Times are the trace's own, in seconds."""

    cluster: str
    name: str
    submit_s: float
    duration_s: float
    gpus: int


class Cluster(msgspec.Struct, frozen=True):
    """One site."""

    name: str
    nodes: int
    gpus_per_node: int


class TracePlan(msgspec.Struct, frozen=True):
    """What will be run, and how fast."""

    jobs: tuple[TraceJob, ...]
    clusters: tuple[Cluster, ...]
    speedup: float

    @property
    def first_s(self) -> float:
        """When the trace begins."""
        return self.jobs[0].submit_s

    @property
    def least_s(self) -> float:
        """Real seconds that it takes if nothing ever waits."""
        return (max(job.submit_s + job.duration_s for job in self.jobs) - self.first_s) / self.speedup


class SiteResult(msgspec.Struct, frozen=True):
    """What one site did."""

    site: str
    gpus: int
    jobs: int
    from_elsewhere: int
    """Jobs whose home is another cluster."""
    gpu_hours: float


class TraceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome. Waits are of the trace's time."""

    speedup: float
    took_s: float
    jobs: int
    done: int
    met: int
    mean_wait_s: float
    longest_wait_s: float
    moved: int
    sites: tuple[SiteResult, ...]
    lost: tuple[str, ...] = ()


def read_trace(path: Path, sites: Path | None, count: int, speedup: float) -> TracePlan:
    """The plan. Raises `Invalid` that names the file, and the line or column."""
    if count < 1:
        raise Invalid("must be at least 1", field="--jobs")
    if speedup <= 0:
        raise Invalid("must be more than 0", field="--speedup")
    rows = (_job(row, where) for where, row in _rows(path, TRACE_COLUMNS))
    jobs = sorted(rows, key=lambda job: (job.submit_s, job.name))[:count]
    if not jobs:
        raise Invalid(f"{path} has no jobs", field="--trace")
    sites = sites or path.parent / DEFAULT_SITES
    clusters = tuple(_cluster(row, where) for where, row in _rows(sites, SITE_COLUMNS, "--sites"))
    if not clusters:
        raise Invalid(f"{sites} has no clusters", field="--sites")
    return TracePlan(tuple(jobs), clusters, speedup)


def as_job_file(job: TraceJob, plan: TracePlan, began_at: float) -> Document:
    """The row as a user would submit it; it really takes its duration, divided by the speed-up."""
    per_node = max(cluster.gpus_per_node for cluster in plan.clusters)
    nodes = max(1, -(-job.gpus // per_node))
    due_at = began_at + job.submit_s - plan.first_s + DEADLINE_FACTOR * job.duration_s
    return {
        "name": job.name,
        "run": f"exec sleep {job.duration_s / plan.speedup:.3f}",
        "nodes": nodes,
        "resources": {"gpus": f"{MODEL}:{-(-job.gpus // nodes)}" if job.gpus else 0},
        "estimate": f"{job.duration_s:g}s",
        "deadline": format_instant(due_at),
        "labels": {"home": job.cluster},
        "client_id": job.name,
    }


async def replay(folder: Path, plan: TracePlan, json: Path | None) -> int:
    """Run it; the exit code. What has been started is the caller's to end."""
    began_s = time.monotonic()
    federation = Federation(folder, plan.speedup)
    print(_announcement(plan), flush=True)
    try:
        with open_screen(console()) as screen:
            screen.say(f"starting a dispatcher and {len(plan.clusters)} agents")
            await federation.start_dispatcher()
            await federation.start_sites([_site(cluster) for cluster in plan.clusters])
            title = f"Federator: a real trace, {plan.speedup:g} times as fast as life; GPUs are declared"
            async with Watch(federation, screen, title) as watch:
                began_at = federation.clock.now()
                await _submit_all(federation, plan, watch, began_at)
                await _wait(plan, watch, began_at, federation)
        result = await _result(federation, plan, began_at, began_s)
    finally:
        await federation.close()
    _show(result)
    if json is not None:
        write_result(json, result)
    return FAILED if result.lost else OK


def _announcement(plan: TracePlan) -> str:
    longer = (
        ", longer if jobs have to wait"
        if plan.least_s < LONG_S
        else (": it has gaps; a larger --speedup or fewer --jobs make it shorter")
    )
    span = duration(plan.jobs[-1].submit_s - plan.first_s)
    return f"{len(plan.jobs)} jobs submitted over {span}, as fast as {plan.speedup:g} times life: about {duration(plan.least_s + 5)}{longer}"


async def _submit_all(federation: Federation, plan: TracePlan, watch: Watch, began_at: float) -> None:
    """Each at its own time."""
    user = await federation.as_person("trace")
    for number, job in enumerate(plan.jobs, 1):
        due_s = began_at + job.submit_s - plan.first_s - federation.clock.now()
        while due_s > 0:
            left_s = plan.least_s - (federation.clock.now() - began_at) / plan.speedup
            watch.phase = f"{number - 1} of {len(plan.jobs)} submitted, the next in {duration(due_s / plan.speedup)}, about {duration(max(0.0, left_s))} to go"
            await asyncio.sleep(min(1.0, due_s / plan.speedup))
            due_s = began_at + job.submit_s - plan.first_s - federation.clock.now()
        await user.submit(as_job_file(job, plan, began_at))
        watch.say(
            f"{number}/{len(plan.jobs)} submitted: {job.name}, {job.gpus} GPUs for {duration(job.duration_s)}"
        )


async def _wait(plan: TracePlan, watch: Watch, began_at: float, federation: Federation) -> None:
    """Until everything has ended, saying how long that may take."""

    def ended(overview: Overview) -> bool:
        left_s = plan.least_s - (federation.clock.now() - began_at) / plan.speedup
        open_ = sum(job.status not in TERMINAL for job in overview.jobs)
        watch.phase = f"all are submitted; {open_} to be done, at least {duration(max(0.0, left_s))} to go"
        return open_ == 0

    within_s = 3 * plan.least_s + GRACE_S
    await watch.until(ended, "all jobs of the trace have ended", within_s=within_s)


async def _result(federation: Federation, plan: TracePlan, began_at: float, began_s: float) -> TraceResult:
    rows = {row.name: row async for row in federation.admin.all_jobs()}
    hours = await gpu_hours(federation.admin)
    waits = [
        wait for job in plan.jobs if (wait := _wait_s(job, plan, began_at, rows.get(job.name))) is not None
    ]
    done = [row for row in rows.values() if row.status == JobStatus.SUCCEEDED]
    lost = [f"{job.name}: {rows[job.name].status if job.name in rows else 'gone'}" for job in plan.jobs
            if job.name not in rows or rows[job.name].status != JobStatus.SUCCEEDED]  # fmt: skip
    return TraceResult(
        speedup=plan.speedup,
        took_s=round(time.monotonic() - began_s, 1),
        jobs=len(plan.jobs),
        done=len(done),
        met=sum(row.missed_deadline is False for row in done),
        mean_wait_s=round(sum(waits) / max(1, len(waits)), 1),
        longest_wait_s=round(max(waits, default=0.0), 1),
        moved=sum(row.site != row.labels.get("home") for row in done),
        sites=tuple(_site_result(cluster, done, hours) for cluster in plan.clusters),
        lost=tuple(lost),
    )


def _wait_s(job: TraceJob, plan: TracePlan, began_at: float, row: JobRow | None) -> float | None:
    """From the row's submit time to the start of the process."""
    if row is None or row.started_at is None:
        return None
    return max(0.0, row.started_at - (began_at + job.submit_s - plan.first_s))


def _site_result(cluster: Cluster, done: Iterable[JobRow], hours: Mapping[str, float]) -> SiteResult:
    here = [row for row in done if row.site == cluster.name]
    return SiteResult(
        site=cluster.name,
        gpus=cluster.nodes * cluster.gpus_per_node,
        jobs=len(here),
        from_elsewhere=sum(row.labels.get("home") != cluster.name for row in here),
        gpu_hours=hours.get(cluster.name, 0.0),
    )


def _show(result: TraceResult) -> None:
    share = f"{100 * result.moved / max(1, result.done):.0f} %"
    wait = f"{duration(result.mean_wait_s)} on average, {duration(result.longest_wait_s)} at most"
    pairs: list[tuple[str, str | Text]] = [
        ("jobs done", f"{result.done} of {result.jobs}"),
        ("deadlines met", f"{result.met} of {result.jobs} (submit + {DEADLINE_FACTOR:g} × duration)"),
        ("wait", f"{wait}; each real second of planning and starting counts as {duration(result.speedup)}"),
        (
            "away from home",
            f"{result.moved} of {result.done} ({share}); nothing ties a job to its own cluster",
        ),
        ("lost", ", ".join(result.lost)),
    ]
    columns = table(result.sites, _SITE_RESULT_COLUMNS, width=width())
    show(heading(f"What happened, in {result.took_s:.0f} s"), columns, Text(""), facts(pairs))


_SITE_RESULT_COLUMNS: tuple[Column[SiteResult], ...] = (
    Column("SITE", lambda row: row.site),
    Column("GPUS", lambda row: str(row.gpus), right=True),
    Column("JOBS", lambda row: str(row.jobs), right=True),
    Column("FROM ELSEWHERE", lambda row: str(row.from_elsewhere), right=True),
    Column("GPU-HOURS", lambda row: f"{row.gpu_hours:.1f}", right=True),
)


def _site(cluster: Cluster) -> Document:
    """The cluster as a site file."""
    return {
        "site": cluster.name,
        "kind": "onprem",
        "pools": [
            {
                "name": "gpu",
                "model": MODEL,
                "gpu_memory": "80GiB",
                "nodes": cluster.nodes,
                "gpus_per_node": cluster.gpus_per_node,
                "cpus_per_node": 8 * cluster.gpus_per_node,
                "memory_per_node": "1024GiB",
            }
        ],
    }


def _rows(
    path: Path, columns: tuple[str, ...], option: str = "--trace"
) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row with where it is. Raises `Invalid` for a file that cannot be read or has not these columns."""
    with read_table(path, option) as table:
        missing = [column for column in columns if column not in table.columns]
        if missing:
            has = ", ".join(table.columns) or "nothing"
            raise Invalid(f"the column {missing[0]!r} is missing; there is {has}", field=str(path))
        for line, row in table.rows:
            yield f"{path}, line {line}", row


def _job(row: Mapping[str, str], where: str) -> TraceJob:
    return TraceJob(
        cluster=row["cluster"],
        name=row["job"],
        submit_s=_number(row, "submit_s", where, low=0),
        duration_s=_number(row, "duration_s", where, low=0.001),
        gpus=int(_number(row, "num_gpu", where, low=0)),
    )


def _cluster(row: Mapping[str, str], where: str) -> Cluster:
    per_node = int(_number(row, "gpus_per_node", where, low=1))
    nodes = int(_number(row, "sim_gpus", where, low=1)) // per_node
    if nodes < 1:
        raise Invalid("has less GPUs than one node", field=where)
    return Cluster(row["cluster"], nodes, per_node)


def _number(row: Mapping[str, str], column: str, where: str, *, low: float) -> float:
    try:
        return read_number(row, column, low)
    except ValueError as error:
        raise Invalid(str(error), field=where) from None

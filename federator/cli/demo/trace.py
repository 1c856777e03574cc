"""Jobs of a real trace, as real processes on as many sites as it has clusters, at their own times."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from rich.text import Text

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.findings import gpu_hours
from federator.cli.demo.report import heading
from federator.cli.demo.result import write_result
from federator.cli.demo.screen import open_screen
from federator.cli.demo.watch import Watch
from federator.cli.demo.world import Document
from federator.cli.exit_codes import FAILED, OK
from federator.cli.layout import Column, table
from federator.cli.output import console, facts, show, width
from federator.cli.phrases import duration
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_instant
from federator.model.jobs import TERMINAL, JobStatus
from federator.simulation.traces import read_trace
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSite
from federator.simulation.world_files import from_table
from federator.wire.http import JobRow, Overview
from federator.wire.named_files import read_text

DEFAULT_SITES = "itp10_sites_x0.2.csv"
DEADLINE_FACTOR = 3.0
"""deadline = submit + 3 × duration: the trace's own deadlines suit elastic jobs only (see the data's README)."""
MODEL = "A100"
LONG_S = 300.0
"""A run that is expected to take longer says so before it starts."""
GRACE_S = 120.0
"""Real seconds beyond the expected end after which something is wrong."""


class TracePlan(msgspec.Struct, frozen=True):
    """What will be run, and how fast."""

    jobs: tuple[TraceJob, ...]
    """Those of the trace, the earliest first."""
    sites: tuple[WorldSite, ...]
    speedup: float

    @property
    def first_s(self) -> float:
        """When the trace begins."""
        return self.jobs[0].submit_s

    @property
    def least_s(self) -> float:
        """Real seconds that it takes if nothing ever waits."""
        return (max(job.submit_s + job.run_s for job in self.jobs) - self.first_s) / self.speedup


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


def read_plan(path: Path, sites: Path | None, count: int, speedup: float) -> TracePlan:
    """The plan, of files as simulations take them. Raises `Invalid` that names the file, and the line or column."""
    if count < 1:
        raise Invalid("must be at least 1", field="--jobs")
    if speedup <= 0:
        raise Invalid("must be more than 0", field="--speedup")
    sites = sites or path.parent / DEFAULT_SITES
    clusters = from_table(read_text(sites, "--sites"), sites.name).sites
    per_node = max(pool.gpus_per_node for cluster in clusters for pool in cluster.pools)
    return TracePlan(tuple(read_trace(path, gpus_per_node=per_node)[:count]), clusters, speedup)


def as_job_file(job: TraceJob, plan: TracePlan, began_at: float) -> Document:
    """The row as a user would submit it; it really takes its duration, divided by the speed-up."""
    due_at = began_at + job.submit_s - plan.first_s + DEADLINE_FACTOR * job.run_s
    return {
        "name": job.name,
        "run": f"exec sleep {job.run_s / plan.speedup:.3f}",
        "nodes": job.nodes,
        "resources": {"gpus": f"{MODEL}:{job.gpus}" if job.gpus else 0},
        "estimate": f"{job.run_s:g}s",
        "deadline": format_instant(due_at),
        "labels": {"home": job.home} if job.home else {},
        "client_id": job.name,
    }


async def replay(folder: Path, plan: TracePlan, json: Path | None) -> int:
    """Run it; the exit code. What has been started is the caller's to end."""
    began_s = time.monotonic()
    federation = DemoFederation(folder, plan.speedup)
    print(_announcement(plan), flush=True)
    try:
        with open_screen(console()) as screen:
            screen.say(f"starting a dispatcher and {len(plan.sites)} agents")
            await federation.start_dispatcher()
            await federation.start_sites([_site(site) for site in plan.sites])
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


async def _submit_all(federation: DemoFederation, plan: TracePlan, watch: Watch, began_at: float) -> None:
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
            f"{number}/{len(plan.jobs)} submitted: {job.name}, {job.nodes * job.gpus} GPUs for {duration(job.run_s)}"
        )


async def _wait(plan: TracePlan, watch: Watch, began_at: float, federation: DemoFederation) -> None:
    """Until everything has ended, saying how long that may take."""

    def ended(overview: Overview) -> bool:
        left_s = plan.least_s - (federation.clock.now() - began_at) / plan.speedup
        open_ = sum(job.status not in TERMINAL for job in overview.jobs)
        watch.phase = f"all are submitted; {open_} to be done, at least {duration(max(0.0, left_s))} to go"
        return open_ == 0

    within_s = 3 * plan.least_s + GRACE_S
    await watch.until(ended, "all jobs of the trace have ended", within_s=within_s)


async def _result(
    federation: DemoFederation, plan: TracePlan, began_at: float, began_s: float
) -> TraceResult:
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
        sites=tuple(_site_result(site, done, hours) for site in plan.sites),
        lost=tuple(lost),
    )


def _wait_s(job: TraceJob, plan: TracePlan, began_at: float, row: JobRow | None) -> float | None:
    """From the row's submit time to the start of the process."""
    if row is None or row.started_at is None:
        return None
    return max(0.0, row.started_at - (began_at + job.submit_s - plan.first_s))


def _site_result(site: WorldSite, done: Iterable[JobRow], hours: Mapping[str, float]) -> SiteResult:
    here = [row for row in done if row.site == site.name]
    return SiteResult(
        site=site.name,
        gpus=sum(pool.nodes * pool.gpus_per_node for pool in site.pools),
        jobs=len(here),
        from_elsewhere=sum(row.labels.get("home") != site.name for row in here),
        gpu_hours=hours.get(site.name, 0.0),
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


def _site(site: WorldSite) -> Document:
    """As a site file. Every GPU counts as one of that model, as every job asks for."""
    return {
        "site": site.name,
        "kind": "onprem",
        "pools": [
            {
                "name": pool.name,
                "model": MODEL,
                "gpu_memory": "80GiB",
                "nodes": pool.nodes,
                "gpus_per_node": pool.gpus_per_node,
                "cpus_per_node": 8 * pool.gpus_per_node,
                "memory_per_node": "1024GiB",
            }
            for pool in site.pools
        ],
    }

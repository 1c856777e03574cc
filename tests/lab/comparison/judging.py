"""What one simulation comes to in each case that it answers, and by what it is known again."""

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from federator.simulation.accounting import Figures, figures, quantile
from federator.simulation.running import Moment, Outcome, simulate
from federator.simulation.work import TraceJob
from tests.lab.comparison.cases import INTERACTIVE, Run, jobs_of, world_of
from tests.lab.schedulers import patient

PACKAGES = (
    "federator",
    "federator_agent",
    "federator_policies",
    "federator_providers",
    "tests.lab.comparison",
)
NOT_SIMULATED = ("cli",)
"""Parts of our own that no simulation runs through."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler in one case. Shares in percent, waits in hours, money in USD."""

    case: str
    family: str
    group: str
    scheduler: str
    jobs: int
    finished: int
    missed_pct: float
    """Of the jobs with deadlines."""
    missed_value_pct: float
    """Of their value."""
    met_gpu_h_pct: float
    """Deadlines met, by GPU-hours."""
    burst_usd: float
    burst_used_usd: float
    """Of it, for the GPUs and hours that jobs had."""
    total_usd: float
    """Owned GPUs at their marginal price, rent, and egress."""
    egress_usd: float
    loss_usd: float
    """The value of missed deadlines on top."""
    wait_mean_h: float
    wait_p95_h: float
    interactive_wait_mean_h: float | None = None
    interactive_wait_p95_h: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation as it is kept. `key` is a hash of everything that it depends on, `build` of the code alone."""

    name: str
    key: str
    build: str
    length_s: float | None
    cpu_s: float
    rows: tuple[Row, ...]
    violations: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def carried_out(
    run: Run, data: Path, length_s: float | None, watch: Callable[[Moment], None] | None = None
) -> Result:
    """Simulate, and judge. Takes a minute, or many."""
    world = world_of(run.case, data)
    jobs = jobs_of(run.case, data, world, length_s)
    began_s = time.process_time()
    outcome = simulate(
        world, jobs, patient(run.scheduler, run.case.patience), seed=run.case.seed, watch=watch
    )
    cpu_s = time.process_time() - began_s
    rows, checked = [], None
    for name, case in run.rows:
        due = jobs if case == run.case else jobs_of(case, data, world, length_s)
        checked = figures(outcome, world, due)
        rows.append(_row(name, case.name, case.family, case.group, checked, outcome, due))
    assert checked is not None, "a run answers something"
    return Result(
        name=run.name,
        key=key_of(run, data, length_s),
        build=build(),
        length_s=length_s,
        cpu_s=round(cpu_s, 1),
        rows=tuple(rows),
        violations=checked.violations[:20],
        faults=checked.faults,
    )


def _row(
    name: str, case: str, family: str, group: str, found: Figures, outcome: Outcome, jobs: Sequence[TraceJob]
) -> Row:
    value = sum(job.value_usd or 0.0 for job in jobs if job.deadline_s is not None)
    mean_h, p95_h = _interactive_waits_h(outcome, jobs)
    return Row(
        case=case,
        family=family,
        group=group,
        scheduler=name,
        jobs=found.jobs,
        finished=found.finished,
        missed_pct=100.0 * found.missed_share,
        missed_value_pct=100.0 * found.missed_value_usd / value if value else 0.0,
        met_gpu_h_pct=100.0 * found.met_share_by_gpu_h,
        burst_usd=found.rented_usd,
        burst_used_usd=found.used_usd,
        total_usd=found.owned_usd + found.rented_usd + found.egress_usd,
        egress_usd=found.egress_usd,
        loss_usd=found.loss_usd,
        wait_mean_h=found.wait_mean_s / 3600.0,
        wait_p95_h=found.wait_p95_s / 3600.0,
        interactive_wait_mean_h=mean_h,
        interactive_wait_p95_h=p95_h,
    )


def _interactive_waits_h(
    outcome: Outcome, jobs: Sequence[TraceJob]
) -> tuple[float, float] | tuple[None, None]:
    """Mean and 95th percentile, of the jobs that started."""
    names = {job.name for job in jobs if job.queue == INTERACTIVE}
    starts: dict[str, float] = {}
    for row in outcome.schedule.attempts:
        if row.job in names and row.start_s is not None:
            starts[row.job] = min(starts.get(row.job, row.start_s), row.start_s)
    waits = sorted(starts[job.name] - job.submit_s for job in jobs if job.name in starts)
    if not waits:
        return None, None
    return sum(waits) / len(waits) / 3600.0, quantile(waits, 0.95) / 3600.0


def key_of(run: Run, data: Path, length_s: float | None) -> str:
    """A hash of code, world, jobs, and all that is asked of them."""
    world = world_of(run.case, data)
    digest = hashlib.sha256(build().encode())
    digest.update(msgspec.json.encode((run, length_s, world)))
    digest.update((data / run.case.trace).read_bytes())
    return digest.hexdigest()[:24]


@cache
def build() -> str:
    """A hash of the sources that a simulation runs through, without the command line."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        found = find_spec(package)
        assert found is not None, f"{package} is installed with us"
        assert found.origin is not None, f"{package} has a file"
        root = Path(found.origin).parent
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).parts[0] not in NOT_SIMULATED:
                digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]

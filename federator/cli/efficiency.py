"""What jobs really use of what they hold."""

from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.columns import gpus_busy
from federator.cli.layout import Column
from federator.cli.output import Output, show_rows, status
from federator.cli.phrases import NONE, energy_kwh
from federator.cli.session import HERE, Connection, ask
from federator.client.jobs import JobFilter
from federator.kernel.quantities import format_mib
from federator.wire.http import GpuCurve, JobRow

if TYPE_CHECKING:
    from federator.client.verbs import Verbs

MOST = 500
LITTLE = 0.25
NOTHING = "nothing is known of any job: sites look at what has run for a minute; federator-agent check says there if one cannot"
LEVELS = "▁▂▃▄▅▆▇█"


def efficiency(
    job: str | None = None,
    *,
    everybody: Annotated[bool, Parameter(negative="")] = False,
    queue: str | None = None,
    state: Annotated[str | None, Parameter(name="--status")] = None,
    name: str | None = None,
    limit: int = 50,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Show what jobs really use of their GPUs, processors and memory: of your newest that anything is known of, the worst first. Of one job, each of its GPUs over time.

    Sites sample it while jobs run, as far as they can: at Slurm, what the cluster gathers. `federator show JOB` has it for one.

    Parameters
    ----------
    job:
        The job whose GPUs are shown one by one, by id or name.
    everybody:
        Everybody's jobs, as far as you may see them.
    queue:
        Only of this queue.
    state:
        Only of this status, or of several with commas.
    name:
        Only of this name.
    limit:
        So many jobs at most.
    """
    if job is not None:
        curves, _ = ask(connection, lambda client: client.gpus(job))
        show_rows(
            curves,
            _curve_columns(),
            output,
            empty="nothing is known of its GPUs: not every site measures them",
        )
        return
    which = JobFilter(mine=not everybody, queue=queue, status=state, name=name)

    async def collect(client: "Verbs") -> list[JobRow]:
        found: list[JobRow] = []
        seen = 0
        async for row in client.all_jobs(which):
            seen += 1
            found += [row] if row.used is not None else []
            if len(found) >= limit or seen >= MOST * 20:
                break
        return found

    rows, _ = ask(connection, collect)
    rows.sort(key=_worth)
    show_rows(rows, _columns(), output, empty=NOTHING)


def _curve_columns() -> tuple[Column[GpuCurve], ...]:
    return (
        Column("HOST", lambda row: row.member),
        Column("GPU", lambda row: str(row.gpu), right=True),
        Column("BUSY", lambda row: f"{fmean(point.busy_percent for point in row.points):.0f}%", right=True),
        Column("NOW", lambda row: f"{row.points[-1].busy_percent:.0f}%", right=True),
        Column(
            "GPU MEM", lambda row: format_mib(int(max(point.memory_mib for point in row.points))), right=True
        ),
        Column(
            "POWER",
            lambda row: _watts([point.power_w for point in row.points if point.power_w is not None]),
            right=True,
        ),
        Column(
            "OVER TIME",
            lambda row: "".join(LEVELS[min(7, int(point.busy_percent / 12.5))] for point in row.points),
            cap=64,
        ),
    )


def _watts(watts: list[float]) -> str:
    return f"{fmean(watts):.0f} W" if watts else NONE


def _worth(row: JobRow) -> float:
    assert row.used is not None
    return 2.0 if row.used.gpus_busy is None else row.used.gpus_busy


def _columns() -> tuple[Column[JobRow], ...]:
    return (
        Column("ID", lambda row: row.id, least=100),
        Column("NAME", lambda row: row.label, cap=24),
        Column("OWNER", lambda row: row.owner, wide=True),
        Column("STATUS", lambda row: status(row.status)),
        Column("GPUS", lambda row: f"{row.nodes * row.gpus:g} {row.models}".strip() if row.gpus else NONE),
        Column("BUSY", gpus_busy, right=True),
        Column("GPU MEM", _gpu_memory, right=True, least=80),
        Column("CPUS USED", _cpus, right=True),
        Column(
            "MEMORY",
            lambda row: NONE if row.used is None else format_mib(row.used.memory_peak_mib),
            right=True,
            least=80,
        ),
        Column("ENERGY", _energy, right=True, least=90),
        Column(
            "LOOKED AT",
            lambda row: NONE if row.used is None else f"{row.used.sampled_s / 3600:.1f}h",
            right=True,
            least=110,
        ),
        Column("ADVICE", _advice, flow="cut"),
    )


def _gpu_memory(row: JobRow) -> str:
    known = row.used is not None and row.used.gpus_sampled_s > 0
    return format_mib(row.used.gpu_memory_peak_mib) if known and row.used is not None else NONE


def _energy(row: JobRow) -> str:
    known = row.used is not None and row.used.power_sampled_s > 0
    return energy_kwh(row.used.energy_kwh) if known and row.used is not None else NONE


def _cpus(row: JobRow) -> str:
    cpus = None if row.used is None else row.used.cpus
    return NONE if cpus is None else f"{cpus:.1f}"


def _advice(row: JobRow) -> str:
    """What its owner may look into first."""
    used = row.used
    if used is None or used.gpus_busy is None:
        return ""
    if used.gpus_busy >= LITTLE:
        return ""
    cpus = used.cpus or 0.0
    if row.status == "RUNNING" and used.idle_s * 2 >= used.sampled_s:
        return "its GPUs do nothing: does the program use them?"
    if cpus >= row.nodes * 0.9:
        return "its GPUs wait for its processors: load data with more workers, or ask for more cpus"
    return "its GPUs wait: ask for fewer, or a part of one (gpus: 0.5)"

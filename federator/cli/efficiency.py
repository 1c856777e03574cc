"""What jobs really use of what they hold."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.columns import gpus_busy
from federator.cli.layout import Column
from federator.cli.output import Output, show_rows, status
from federator.cli.phrases import NONE
from federator.cli.session import HERE, Connection, ask
from federator.client.jobs import JobFilter
from federator.kernel.quantities import format_mib
from federator.wire.http import JobRow

if TYPE_CHECKING:
    from federator.client.verbs import Verbs

MOST = 500
LITTLE = 0.25


def efficiency(
    *,
    everybody: Annotated[bool, Parameter(negative="")] = False,
    queue: str | None = None,
    state: Annotated[str | None, Parameter(name="--status")] = None,
    name: str | None = None,
    limit: int = 50,
    output: Output = "table",
    connection: Connection = HERE,
) -> None:
    """Show what jobs really use of their GPUs, processors and memory: of your newest that anything is known of, the worst first.

    Sites sample it every some seconds; those on Slurm and Kubernetes do not yet. `federator show JOB` has it for one.

    Parameters
    ----------
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
    show_rows(
        rows, _columns(), output, empty="nothing is known of any job: sites sample what runs for some seconds"
    )


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

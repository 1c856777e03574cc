"""ElasticFlow's clusters, each alone at its full size, with the trace's own deadlines: rigid jobs, and elastic ones by the published scaling curves.

Half of the deadlines are shorter than the run at the GPUs that were asked for, so that no rigid scheduler meets more than half of them, on an empty cluster
even. The trace's run times are its iterations by the same curves, at the asked GPUs, to the second.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.simulation.traces import GPUS_PER_NODE, nodes_of
from federator.simulation.work import TraceForm, TraceJob
from federator.simulation.world import WorldSite, WorldSpec
from federator.simulation.world_files import host_pool
from federator.wire.named_files import read_table

TRACE = "itp10_jobs_month1.csv.gz"
CURVES = "elasticflow_throughput.csv"
CLUSTERS = "itp10_clusters.csv"
GPU = "A100"
PUBLISHED = {
    "itp02": 0.822, "itp04": 0.631, "itp05": 0.832, "itp07": 0.665, "itp08": 0.896, "itp09": 0.938,
}  # fmt: skip
"""ElasticFlow's share of deadlines met over the whole trace, of the clusters with at least 2,000 jobs in the first month: of fewer a ratio says little."""
SLOWEST = 0.25
"""A form that takes more than four times as long as what was asked for is none."""

Curve = Mapping[int, float]
"""Iterations per second, by GPUs."""


def cluster_world(data: Path, cluster: str, policies: str) -> WorldSpec:
    """One cluster alone at the size that was published; all ten, where none is named."""
    rows = [row for row in _rows(data / CLUSTERS) if cluster in ("", row["cluster"])]
    if not rows:
        raise Invalid(f"there is no cluster {cluster!r}", field=CLUSTERS)
    sites = [
        WorldSite(
            name=row["cluster"],
            pools=(host_pool("main", GPU, int(row["sim_nodes"]), int(row["gpus_per_node"])),),
        )
        for row in rows
    ]
    return WorldSpec(name=f"ElasticFlow's {cluster or 'ten clusters'}", sites=tuple(sites), policies=policies)


def elastic(jobs: list[TraceJob], data: Path) -> list[TraceJob]:
    """The same jobs with the other forms that their model and batch have a curve for."""
    asked = _asked(data)
    return [
        msgspec.structs.replace(job, forms=tuple(_forms(job, curve)), elastic=True)
        for job in jobs
        for curve in (_curves(data)[asked[job.name]],)
    ]


def _forms(job: TraceJob, curve: Curve) -> Iterator[TraceForm]:
    """Those that more GPUs make faster: beyond its best a curve falls, and nobody would take more for less."""
    best = 0.0
    for gpus, speed in sorted(curve.items()):
        throughput = speed / curve[job.gpus_total]
        if speed > best and gpus != job.gpus_total and throughput >= SLOWEST:
            nodes, each = nodes_of(gpus, GPUS_PER_NODE)
            yield TraceForm(nodes, each, throughput)
        best = max(best, speed)


@cache
def _curves(data: Path) -> dict[tuple[str, str], dict[int, float]]:
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in _rows(data / CURVES):
        if row["gpu_type"] == GPU:
            curve = found.setdefault((row["model"], row["global_batch"]), {})
            curve[int(row["num_gpu"])] = float(row["iterations_per_s"])
    return found


@cache
def _asked(data: Path) -> dict[str, tuple[str, str]]:
    """Model and batch of each job."""
    return {row["job"]: (row["model"], row["batch_size"]) for row in _rows(data / TRACE)}


def _rows(path: Path) -> list[dict[str, str]]:
    with read_table(path, "--data") as table:
        return [row for _, row in table.rows]

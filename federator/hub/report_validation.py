"""What an agent's word is worth: bounds on what it may claim, checked before anything is done with it.

Why so: agents run on other people's machines, old ones and broken ones among them. A report of minus four free GPUs, or of a host with more than
the pool's hosts have, would be planned on; one of a billion hosts would take the dispatcher down with it. Whoever says such a thing is refused
with the field that is wrong, and nobody else notices.
"""

from collections.abc import Sequence

from federator.kernel.errors import Invalid
from federator.kernel.ids import LENGTH, value_of
from federator.model.allotments import LocalJob
from federator.model.capacity import Pool
from federator.model.identity import PERSON
from federator.model.jobs import WHOLE_MILLI
from federator.model.placements import PlacementReport, Used
from federator.model.sites import GpuUse, LinkState, LocalWork, SiteReport
from federator.wire.fields import NAME
from federator.wire.link import Sample

MAX_POOLS = 200
MAX_POOL_LABELS = 16
MAX_HOSTS = 65_536
"""Hosts of all pools of one report together: planning knows each by itself."""
MAX_LOCAL = 65_536
"""Ranks of all local work together: each is laid on a host."""
MAX_GPUS_PER_NODE = 1024
MAX_TRAFFIC = 10
"""Kinds of what goes over a link."""
MAX_AILING = 4096
MAX_TEXT = 512
MAX_WORDS = 2000
"""Labels, queues, abilities, names of those whom it trusts: each is compared with every job that waits, and kept with every decision."""
MAX_NUMBER = 2**53
MAX_RANKS = 4096
MAX_WATTS = 100_000
MAX_HELD = 4096
"""Placements on all GPUs of a host together, each as often as it has GPUs: all are looked up."""


def check_report(report: SiteReport) -> None:
    """Raise `Invalid`, naming the field, for telemetry that cannot be true."""
    _at_most(len(report.pools), MAX_POOLS, "$.report.pools")
    names = [pool.name for pool in report.pools]
    if len(set(names)) != len(names):
        raise Invalid("two pools have one name", field="$.report.pools")
    for number, pool in enumerate(report.pools):
        _check_pool(pool, f"$.report.pools[{number}]")
    _in_all(sum(pool.nodes for pool in report.pools), MAX_HOSTS, "hosts", "$.report.pools")
    _at_most(len(report.local_work), MAX_LOCAL, "$.report.local_work")
    for number, work in enumerate(report.local_work):
        _check_local(work, f"$.report.local_work[{number}]")
    _in_all(sum(work.nodes for work in report.local_work), MAX_LOCAL, "ranks", "$.report.local_work")
    _between(report.price_usd_gpu_h or 0.0, 0.0, 1e6, "$.report.price_usd_gpu_h")
    _short(report.health, "$.report.health")
    _between(report.reclaim_at or 0.0, 0.0, MAX_NUMBER, "$.report.reclaim_at")
    _at_most(len(report.ailing), MAX_AILING, "$.report.ailing")
    for gpu in report.ailing:
        _short(gpu.pool + gpu.host + gpu.why, "$.report.ailing")
    for name in ("labels", "lends_to", "abilities", "trusts"):
        _at_most(len(getattr(report, name)), MAX_WORDS, f"$.report.{name}")
    for name in ("counted", "parts"):
        _at_most(len(getattr(report, name) or ()), MAX_LOCAL, f"$.report.{name}")
    for key, value in report.labels.items():
        _short(key + value, "$.report.labels")
    for word in (*report.lends_to, *report.abilities, *report.trusts):
        _short(word, "$.report")


def check_statuses(reports: Sequence[PlacementReport]) -> None:
    """Raise `Invalid`, naming the field, for statuses that no agent of ours can say. Whether they are about its own work is seen later."""
    for number, report in enumerate(reports):
        where = f"$.reports[{number}]"
        _between(report.seq, 0, MAX_NUMBER, f"{where}.seq")
        _between(report.epoch, 0, MAX_NUMBER, f"{where}.epoch")
        _between(report.exit_code or 0, -(2**31), 2**32, f"{where}.exit_code")
        _at_most(len(report.ranks), MAX_RANKS, f"{where}.ranks")
        _short(report.rendezvous, f"{where}.rendezvous")
        for rank in report.ranks:
            _short(rank.node + rank.phase, f"{where}.ranks")


def check_samples(samples: Sequence[Sample]) -> None:
    """Raise `Invalid`, naming the field, for use that cannot be."""
    for number, sample in enumerate(samples):
        for name in Used.__struct_fields__:
            _between(getattr(sample.used, name), 0, MAX_NUMBER, f"$.samples[{number}].used.{name}")


def check_gpu_use(uses: Sequence[GpuUse]) -> None:
    """Raise `Invalid`, naming the field, for GPUs that cannot be so."""
    _at_most(sum(len(use.placements) for use in uses), MAX_HELD, "$.gpus.placements")
    for number, use in enumerate(uses):
        where = f"$.gpus[{number}]"
        _short(use.pool + use.host + use.slowed_by + use.near, where)
        _between(use.gpu, 0, MAX_GPUS_PER_NODE - 1, f"{where}.gpu")
        _between(use.busy_percent or 0, 0, 100, f"{where}.busy_percent")
        _between(use.memory_mib, 0, MAX_NUMBER, f"{where}.memory_mib")
        _between(use.power_w or 0, 0, MAX_WATTS, f"{where}.power_w")
        _at_most(len(use.placements), WHOLE_MILLI, f"{where}.placements")
        for name in use.placements:
            _short(name, f"{where}.placements")


def check_link_state(state: LinkState | None) -> None:
    """Raise `Invalid`, naming the field, for a link that cannot be so."""
    if state is None:
        return
    _at_most(len(state.hour), MAX_TRAFFIC, "$.link.hour")
    for number, traffic in enumerate(state.hour):
        where = f"$.link.hour[{number}]"
        _short(traffic.kind, f"{where}.kind")
        for name in ("sent", "received"):
            _between(getattr(traffic, name), 0, MAX_NUMBER, f"{where}.{name}")
    _between(state.round_trip_s or 0, 0, MAX_NUMBER, "$.link.round_trip_s")
    _between(state.budget or 0, 0, MAX_NUMBER, "$.link.budget")
    _between(state.rate or 0, 0, MAX_NUMBER, "$.link.rate")
    _short(state.hours, "$.link.hours")


def check_local_jobs(jobs: Sequence[LocalJob]) -> None:
    """Raise `Invalid`, naming the field, for jobs that no agent of ours admits. Whether it was right to is seen later."""
    for number, job in enumerate(jobs):
        where = f"$.jobs[{number}]"
        for name, prefix in (("job", "job-"), ("placement", "pl-")):
            _id(getattr(job, name), prefix, f"{where}.{name}")
        for name in ("owner", "cancelled_by"):
            if getattr(job, name) and not PERSON.fullmatch(getattr(job, name)):
                raise Invalid("is not a valid name", field=f"{where}.{name}")
        kind, _, policy = job.allotment.partition("/")
        parts = {
            "queue": job.queue.split("/"),
            "allotment": [policy if kind == "Allotment" else ""],
            "pool": [job.pool],
        }
        for name, each in parts.items():
            if not all(NAME.fullmatch(part) for part in each):
                raise Invalid("is not a valid name", field=f"{where}.{name}")


def _id(name: str, prefix: str, field: str) -> None:
    try:
        sound = name.startswith(prefix) and len(name) == len(prefix) + LENGTH and value_of(name) >= 0
    except ValueError:
        sound = False
    if not sound:
        raise Invalid("is not an id", field=field)


def _check_pool(pool: Pool, where: str) -> None:
    if not pool.name:
        raise Invalid("is empty", field=f"{where}.name")
    _short(pool.name + pool.model, f"{where}.name")
    _between(pool.nodes, 0, MAX_HOSTS, f"{where}.nodes")
    _between(pool.gpus_per_node, 0, MAX_GPUS_PER_NODE, f"{where}.gpus_per_node")
    if pool.shared and not pool.cut_milli and pool.gpus_per_node != WHOLE_MILLI:
        raise Invalid(f"is not {WHOLE_MILLI}, for GPUs that are shared", field=f"{where}.gpus_per_node")
    if pool.shared:
        _between(pool.gpus_per_node, 1, WHOLE_MILLI, f"{where}.gpus_per_node")
    _between(pool.longest_s or 0.0, 0.0, MAX_NUMBER, f"{where}.longest_s")
    _between(pool.cut_milli or 0, 0, pool.gpus_per_node if pool.shared else 0, f"{where}.cut_milli")
    _between(pool.lent_gpus, 0, pool.nodes * pool.gpus_per_node, f"{where}.lent_gpus")
    for name in ("gpu_memory_mib", "cpus_milli_per_node", "memory_mib_per_node"):
        _between(getattr(pool, name), 0, MAX_NUMBER, f"{where}.{name}")
    _at_most(len(pool.labels or ()), MAX_POOL_LABELS, f"{where}.labels")
    for key, value in (pool.labels or {}).items():
        _short(key + value, f"{where}.labels")
    _at_most(len(pool.free), pool.nodes, f"{where}.free")
    for number, shape in enumerate(pool.free):
        at = f"{where}.free[{number}]"
        _between(shape.count, 0, pool.nodes, f"{at}.count")
        _between(shape.gpus, 0, pool.gpus_per_node, f"{at}.gpus")
        _between(shape.cpus_milli, 0, pool.cpus_milli_per_node, f"{at}.cpus_milli")
        _between(shape.memory_mib, 0, pool.memory_mib_per_node, f"{at}.memory_mib")
    _at_most(sum(shape.count for shape in pool.free), pool.nodes, f"{where}.free")


def _check_local(work: LocalWork, where: str) -> None:
    _between(work.nodes, 0, MAX_HOSTS, f"{where}.nodes")
    _between(work.gpus_per_node, 0, MAX_GPUS_PER_NODE, f"{where}.gpus_per_node")


def _between(value: float, least: float, most: float, field: str) -> None:
    if not least <= value <= most:
        raise Invalid(f"{value} is outside {least}..{most}", field=field)


def _at_most(number: int, most: int, field: str) -> None:
    if number > most:
        raise Invalid(f"has {number} entries; there can be {most}", field=field)


def _in_all(number: int, most: int, of: str, field: str) -> None:
    if number > most:
        remedy = "let a second site have the rest" if of == "hosts" else "report work of one kind together"
        raise Invalid(f"has {number} {of} in all; there can be {most}", field=field, remedy=remedy)


def _short(text: str, field: str) -> None:
    if len(text) > MAX_TEXT:
        raise Invalid(f"is longer than {MAX_TEXT} characters", field=field)

"""What the agent reports: shapes that are lent and unused, with every placement that is already taken off them."""

from collections import Counter

from msgspec.structs import replace

from federator.model.capacity import Pool, Shape
from federator.model.sites import SiteReport
from federator_agent.core.events import Now
from federator_agent.core.lending import HostPool, Slot, free_hosts, lent_hosts
from federator_agent.core.state import Phase, Record, State

HOLDING = frozenset({Phase.RESERVED, Phase.STAGING, Phase.UNSTAGING, Phase.RUNNING, Phase.STOPPING})
"""Phases in which a placement's slots are taken."""


def taken_slots(records: dict[str, Record]) -> list[Slot]:
    """All slots that placements hold now."""
    return [slot for record in records.values() if record.phase in HOLDING for slot in record.slots]


def site_report(state: State, now: Now) -> SiteReport:
    """The report of this moment."""
    taken = taken_slots(state.records)
    return SiteReport(
        taken_at=now.at,
        pools=tuple(_pool(state, pool, taken, now.at) for pool in state.site.pools),
        counted=tuple(
            sorted(name for name, record in state.records.items() if record.phase is not Phase.FETCHING)
        ),
        labels=state.site.labels,
        lends_to=state.site.lend.queues,
        paused=state.paused,
        price_usd_gpu_h=state.site.price_usd_gpu_h,
        self_fencing=state.self_fencing,
    )


def _pool(state: State, pool: HostPool, taken: list[Slot], at: float) -> Pool:
    hosts = lent_hosts(state.site, pool) if state.site.lend.open_at(at) else []
    free = Counter(
        (len(host.gpus), host.cpus_milli, host.memory_mib)
        for host in free_hosts(hosts, taken)
        if host.gpus or host.cpus_milli
    )
    return Pool(
        name=pool.name,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        nodes=pool.nodes,
        gpus_per_node=pool.gpus_per_node,
        cpus_milli_per_node=pool.cpus_milli_per_node,
        memory_mib_per_node=pool.memory_mib_per_node,
        free=tuple(Shape(*size, count=count) for size, count in sorted(free.items())),
        lent_gpus=sum(len(host.gpus) for host in hosts),
    )


def unchanged(before: SiteReport | None, after: SiteReport) -> bool:
    """Whether a report says nothing but a later time."""
    return before is not None and replace(before, taken_at=after.taken_at) == after

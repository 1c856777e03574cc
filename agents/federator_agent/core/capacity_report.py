"""What is lent and unused, and what of it the agent reports: shapes, with every placement that is already taken off them."""

from collections import Counter

from msgspec import UNSET
from msgspec.structs import replace

from federator.model.capacity import Pool, Shape
from federator.model.sites import GpuPart, SiteReport
from federator.wire.needs import FORMS, LAUNCHERS, TOGETHER
from federator_agent.core.events import Now
from federator_agent.core.lent_capacity import (
    Host,
    HostPool,
    Slot,
    displaced,
    free_hosts,
    free_seen,
    lent_gpus,
    lent_hosts,
    less_overdrawn,
    overdrawn,
    undisturbed_hosts,
    unparted,
    well_hosts,
)
from federator_agent.core.state import Phase, PlacementRecord, State

HOLDING = frozenset({Phase.RESERVED, Phase.STAGING, Phase.UNSTAGING, Phase.RUNNING, Phase.STOPPING})
"""Phases in which a placement's slots are taken."""


def held_slots(records: dict[str, PlacementRecord]) -> dict[str, tuple[Slot, ...]]:
    """The slots that placements hold now."""
    return {name: record.slots for name, record in records.items() if record.phase in HOLDING}


def free_now(state: State, pool: HostPool, records: dict[str, PlacementRecord]) -> list[Host]:
    """The hosts of a pool with what is lent and unused of each, whatever the hour."""
    if state.seen is not None:
        return free_seen(state.site, pool, state.seen, held_slots(records))
    held = [slot for record in records.values() if record.phase in HOLDING for slot in record.slots]
    if not pool.is_here:
        return _free_hosts(state, pool, held)
    # What was cut from one pool shares the CPUs and memory of one machine.
    cut = [each for each in state.pools if each.is_here and unparted(each.name) == unparted(pool.name)]
    over = overdrawn(cut, held)
    for each in cut[: cut.index(pool)] if any(over) else ():
        _, over = less_overdrawn(_free_hosts(state, each, held), over)
    return less_overdrawn(_free_hosts(state, pool, held), over)[0]


def _free_hosts(state: State, pool: HostPool, held: list[Slot]) -> list[Host]:
    """The same of a pool whose hosts share nothing with those of others."""
    well = list(well_hosts(lent_hosts(state.site, pool), state.ailing_numbers))
    return free_hosts(undisturbed_hosts(pool, well, displaced(state.site, held)), held)


def _lent_gpus(state: State, pool: HostPool) -> int:
    """How many GPUs of a pool are lent, busy or free. One that ails counts while it is held: what runs there goes on."""
    if not state.ailing:
        return lent_gpus(state.site, pool)
    held = {
        (slot.host, gpu)
        for slots in held_slots(state.records).values()
        for slot in slots
        for gpu in slot.gpus
    }
    hosts = well_hosts(lent_hosts(state.site, pool), state.ailing_numbers - held)
    return sum(len(host.gpus) for host in hosts)


def site_report(state: State, now: Now) -> SiteReport:
    """The report of this moment."""
    seen = state.seen
    return SiteReport(
        taken_at=now.at,
        pools=tuple(_pool(state, pool, now.at) for pool in state.pools),
        counted=tuple(
            sorted(name for name, record in state.records.items() if record.phase is not Phase.FETCHING)
        ),
        local_work=seen.local_work if seen else (),
        labels=state.site.labels,
        lends_to=state.site.lend.queues,
        paused=state.paused,
        health=seen.health if seen else "ok",
        price_usd_gpu_h=state.site.price_at(now.at),
        self_fencing=state.self_fencing,
        runtime=state.runtime,
        ailing=state.ailing,
        abilities=abilities_here(state),
        reclaim_at=state.reclaim_at,
        parts=_parts(state) or UNSET,
        isolation=state.isolation,
        trusts=state.trusts,
    )


def abilities_here(state: State) -> tuple[str, ...]:
    """What jobs may need and find here: what this agent can do, and what the site has."""
    return (FORMS, TOGETHER, LAUNCHERS, *state.abilities)


def _parts(state: State) -> tuple[GpuPart, ...]:
    """Who has which part of which shared GPU. Of a site with a scheduler of its own, that alone knows which."""
    if state.seen is not None:
        return ()
    held = sorted(held_slots(state.records).items())
    return tuple(
        GpuPart(slot.pool, slot.gpus[0], name, slot.rank, slot.share_milli)
        for name, slots in held
        for slot in slots
        if slot.share_milli
    )


def _pool(state: State, pool: HostPool, at: float) -> Pool:
    lends = state.site.lend.open_at(at)
    free = Counter[tuple[int, int, int]]()
    for host in free_now(state, pool, state.records) if lends else ():
        if host.gpus or host.cpus_milli:
            count, size = _as_hosts(pool, host)
            free[size] += count
    unit = pool.host_milli if pool.shares else 1
    return Pool(
        name=pool.name,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        nodes=pool.nodes,
        gpus_per_node=pool.gpus_per_node * unit,
        cpus_milli_per_node=pool.cpus_milli_per_node,
        memory_mib_per_node=pool.memory_mib_per_node,
        free=tuple(Shape(*size, count=count) for size, count in sorted(free.items())),
        lent_gpus=_lent_gpus(state, pool) * unit if lends else 0,
        shared=True if pool.shares else UNSET,
        cut_milli=pool.cut_milli or UNSET,
        longest_s=pool.longest_s or UNSET,
        labels=dict(pool.labels) or UNSET,
    )


def _as_hosts(pool: HostPool, host: Host) -> tuple[int, tuple[int, int, int]]:
    """As how many hosts it is told, and what is free on each: where each part of a GPU is one, what is beside them is divided among them."""
    count = max(1, host.free_gpus // pool.host_milli) if pool.shares else 1
    beside = (host.cpus_milli, pool.cpus_milli_per_node), (host.memory_mib, pool.memory_mib_per_node)
    cpus_milli, memory_mib = (min(free // count, most) for free, most in beside)
    return count, (host.free_gpus // count, cpus_milli, memory_mib)


def unchanged(before: SiteReport | None, after: SiteReport) -> bool:
    """Whether a report says nothing but a later time."""
    return before is not None and replace(before, taken_at=after.taken_at) == after

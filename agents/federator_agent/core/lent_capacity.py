"""What a site has and what of it the federation may use: pools of hosts, and the owner's limits on them.

Lending is by *slots*, not by totals: with three GPUs lent of two hosts with two each, the first host lends both and the second
lends one. So a shape that is reported can always be taken.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from federator.model.jobs import APART, ON_ONE_HOST, WHOLE_MILLI, Resources, cuts_of, in_gpus
from federator.model.sites import LocalWork
from federator.model.whose import Whose, is_among
from federator_agent.electricity import Electricity
from federator_agent.mig import place_of

MOST_POOLS = 200
"""More in one report are not taken."""
SHARED_POOL = "{}-shared"
"""The name of the pool that the shared GPUs of a pool make."""
_PARTS = re.compile(r"-(shared|[1-7]g\.\d+gb)$")
"""Ends the names of pools of parts: of shared GPUs, and of MIG instances."""


class Instance(msgspec.Struct, frozen=True):
    """An instance that a GPU of the agent's host is cut into by MIG."""

    uuid: str
    memory_mib: int
    pool: str
    """That has its GPU when that is not cut."""


class HostPool(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of one make, as `site.yaml` declares them."""

    name: str
    model: str = ""
    gpu_memory_mib: int = 0
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_milli_per_node: int
    memory_mib_per_node: int
    devices: tuple[int, ...] = ()
    """The numbers of its GPUs on their host, where it is one host and they are not those from 0 on."""
    near: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Where it is one host, groups of its GPUs that reach each other best: by NVLink first, then by NUMA node."""
    shares: int = 0
    """So many GPUs of each machine are shared: each is a host of its own in this pool, of which jobs get parts. 0: its GPUs are not shared."""
    host_milli: int = WHOLE_MILLI
    """Of shared GPUs, what each host here has: all of one, or a part that the site has cut off it. Parts of one machine may be seen as one `Host`."""
    cut_milli: int = 0
    """Of shared GPUs: a rank gets whole parts of so many thousandths. 0: any part."""
    instances: tuple[Instance, ...] = ()
    """What its devices are, where they are not GPUs but MIG instances of this host."""
    allowed_gpus: int | None = None
    """So many of its GPUs the site's own cluster lets the federation have at once. None: all."""
    longest_s: float | None = None
    """The site's own scheduler ends what has run for so long. None: it does not."""
    labels: tuple[tuple[str, str], ...] = ()
    """What its hosts have in common beyond the site's labels: keys with their values."""

    @property
    def on_machine(self) -> int:
        """How many of its GPUs are in one machine."""
        return self.shares or self.gpus_per_node

    @property
    def is_here(self) -> bool:
        """Whether its GPUs are all in one machine, which is then the agent's own."""
        return self.on_machine > 0 and self.nodes == (self.shares or 1)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its GPUs in each machine."""
        return self.devices or tuple(range(self.on_machine))

    def host_of(self, gpu: int) -> str:
        """The host that has the GPU of that number, in a pool of one machine."""
        return self.host_named(self.numbers.index(gpu) if self.shares else 0)

    def host_named(self, index: int) -> str:
        """The name of one of its hosts. That of an instance is its number: others come and go beside it."""
        return f"{self.name}/{self.devices[index] if self.instances else index}"

    def suits(self, resources: Resources) -> str:
        """Why hosts of this make cannot take a rank of that size even when empty; empty text when they can."""
        gpus = resources.gpus
        if gpus.count and bool(gpus.share_milli) != bool(self.shares):
            shares = "shares its GPUs in parts" if self.shares else "shares none of its GPUs"
            return f"pool {self.name} {shares}"
        if gpus.share_milli and self.cut_milli and not cuts_of(gpus.share_milli, self.cut_milli):
            part = in_gpus(self.cut_milli, shared=True)
            return f"pool {self.name} has parts of {part} GPUs, not {gpus.total}"
        if gpus.share_milli and gpus.share_milli > self.host_milli:
            return f"a host of pool {self.name} has {in_gpus(self.host_milli, shared=True)} GPUs, not {gpus.total}"
        if gpus.count and gpus.models and self.model.lower() not in {model.lower() for model in gpus.models}:
            return f"pool {self.name} has {self.model or 'no'} GPUs, not {'|'.join(gpus.models)}"
        if gpus.count and self.gpu_memory_mib < gpus.memory_mib:
            return f"the GPUs of pool {self.name} have {self.gpu_memory_mib} MiB, not {gpus.memory_mib}"
        for what, has, needs in (
            ("GPUs", self.gpus_per_node, gpus.count),
            ("milli-cores", self.cpus_milli_per_node, resources.cpus_milli),
            ("MiB of memory", self.memory_mib_per_node, resources.memory_mib),
        ):
            if needs > has:
                return f"a host of pool {self.name} has {has} {what}, not {needs}"
        return ""


def _as_cut(need: Resources, pool: HostPool) -> Resources:
    """What a rank is given there: whole parts, where its GPUs are cut into such."""
    if not need.gpus.share_milli or not pool.cut_milli:
        return need
    milli = cuts_of(need.gpus.share_milli, pool.cut_milli) * pool.cut_milli
    return replace(need, gpus=replace(need.gpus, share_milli=milli))


def with_shares(pool: HostPool, shares: int) -> list[HostPool]:
    """A pool without the GPUs of each of its machines that are shared, and these: each a host of its own, with its part of CPUs and memory."""
    if not shares:
        return [pool]
    gpus, cpus, memory = pool.gpus_per_node, pool.cpus_milli_per_node, pool.memory_mib_per_node
    left = gpus - shares
    whole = replace(
        pool,
        gpus_per_node=left,
        cpus_milli_per_node=cpus * left // gpus,
        memory_mib_per_node=memory * left // gpus,
    )
    parts = replace(
        pool,
        name=SHARED_POOL.format(pool.name),
        nodes=pool.nodes * shares,
        gpus_per_node=1,
        shares=shares,
        cpus_milli_per_node=cpus // gpus,
        memory_mib_per_node=memory // gpus,
        devices=tuple(range(left, gpus)),
    )
    return [whole, parts] if left else [parts]


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Hours(msgspec.Struct, frozen=True):
    """A window in minutes since midnight; `start` after `end` spans midnight."""

    start_min: int
    end_min: int
    timezone: str = "UTC"
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    """Days of the week on which it begins, one after the other: 0 (Monday) to 6."""

    @property
    def in_words(self) -> str:
        """As a site file has it, such as `mon-fri 18:00-08:00`."""
        first, last = DAYS[self.days[0]], DAYS[self.days[-1]]
        days = "" if len(self.days) == len(DAYS) else f"{first} " if first == last else f"{first}-{last} "
        begins, ends = (f"{each // 60:02}:{each % 60:02}" for each in (self.start_min, self.end_min))
        return f"{days}{begins}-{ends}"

    def contains(self, at: float) -> bool:
        """Whether the instant lies in the window, by the wall clock of its zone."""
        local = datetime.fromtimestamp(at, ZoneInfo(self.timezone))
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start_min <= self.end_min:
            return day in self.days and self.start_min <= minute < self.end_min
        return (day in self.days and minute >= self.start_min) or (
            (day - 1) % 7 in self.days and minute < self.end_min
        )


class Lending(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's limits. Each that is absent does not limit."""

    gpus: dict[str, int] = {}
    pools: tuple[str, ...] = ()
    hours: tuple[Hours, ...] = ()
    queues: tuple[str, ...] = ()
    """Whose work is taken, as `federator.model.whose` reads it; empty: everybody's."""

    def open_at(self, at: float) -> bool:
        """Whether anything is lent at that instant."""
        return not self.hours or any(each.contains(at) for each in self.hours)

    def serves(self, whose: Whose) -> bool:
        """Whether the site takes that work. A dispatcher that does not say whose it is is not refused."""
        return not whose.queue or not self.queues or is_among(self.queues, whose)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `site.yaml` that decisions read."""

    name: str
    pools: tuple[HostPool, ...]
    lend: Lending = Lending()
    labels: dict[str, str] = {}
    price_usd_gpu_h: float | None = None
    electricity: Electricity = Electricity()

    def price_at(self, at: float) -> float | None:
        """What an hour of one of its GPUs costs that starts at that instant; None: nobody says."""
        energy_usd = self.electricity.usd_gpu_h(at)
        return (self.price_usd_gpu_h or 0.0) + energy_usd if energy_usd else self.price_usd_gpu_h


class Host(msgspec.Struct, frozen=True):
    """What is lent and unused of one host; `gpus` are indices on that host."""

    name: str
    gpus: tuple[int, ...]
    cpus_milli: int
    memory_mib: int
    share_milli: int = 0
    """Where its one GPU is shared: what is free of that, in thousandths."""

    @property
    def free_gpus(self) -> int:
        """GPUs, or thousandths of the one that is shared."""
        return min(len(self.gpus), 1) * self.share_milli if self.share_milli else len(self.gpus)

    def room(self, need: Resources) -> bool:
        """Whether a rank of that size, of a sort that its pool suits, fits."""
        return (
            bool(self.gpus) >= bool(need.gpus.count)
            and (self.share_milli if need.gpus.share_milli else len(self.gpus)) >= need.gpus.each
            and self.cpus_milli >= need.cpus_milli
            and self.memory_mib >= need.memory_mib
        )


class Seen(msgspec.Struct, frozen=True):
    """What a site with a scheduler of its own has, as it was seen a moment ago; a site of bare hosts needs none.

    `hosts`: by pool, what is free on each host, with everything taken off that runs there, ours and others'. Devices are chosen by that scheduler, so `Host.gpus` only
    counts. `counted`: our placements that are taken off already; `bound`: single ranks of placements of which not all may be.
    """

    pools: tuple[HostPool, ...]
    hosts: dict[str, tuple[Host, ...]] = {}
    counted: frozenset[str] = frozenset()
    local_work: tuple[LocalWork, ...] = ()
    health: str = "ok"
    bound: frozenset[tuple[str, int]] = frozenset()


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a rank holds: its host, its GPUs there, and its share of the rest."""

    rank: int
    pool: str
    host: str
    gpus: tuple[int, ...]
    cpus_milli: int
    memory_mib: int
    share_milli: int = 0
    """So many thousandths of its one GPU; 0: its GPUs are its own."""
    share_mib: int = 0
    """The same part of that GPU's memory, where it is known how much that has."""
    uuid: str = ""
    """By which programs know the MIG instance that it is; empty: it is none."""


def lent_hosts(site: Site, pool: HostPool) -> tuple[Host, ...]:
    """The hosts of a pool as far as they are lent, all free, whatever the hour. Of a GPU pool, a host whose GPUs are all kept is kept whole."""
    if site.lend.pools and pool.name not in site.lend.pools:
        return ()
    hosts = _hosts(pool, site.lend.gpus.get(pool.name, pool.nodes * pool.gpus_per_node))
    if pool.instances and pool.name not in site.lend.gpus:
        kept = _kept_of_cut(site)
        return tuple(host for host in hosts if place_of(host.gpus[0])[0] not in kept)
    return hosts


def _kept_of_cut(site: Site) -> set[int]:
    """The GPUs cut by MIG for which the limit of their own pool leaves nothing: it is used up by those that are whole, then by the first ones."""
    cut: dict[str, set[int]] = {}
    whole = dict.fromkeys(site.lend.gpus, 0)
    for pool in site.pools:
        whole[pool.name] = pool.nodes * pool.gpus_per_node
        for number, instance in zip(pool.devices, pool.instances, strict=False):
            cut.setdefault(instance.pool, set()).add(place_of(number)[0])
    return {
        gpu
        for name, limit in site.lend.gpus.items()
        for gpu in sorted(cut.get(name, ()))[max(0, limit - whole[name]) :]
    }


@lru_cache(maxsize=256)
def _hosts(pool: HostPool, lent: int) -> tuple[Host, ...]:
    """Its hosts, of which so many GPUs are lent: asked for at every report and every placement."""
    hosts, left, numbers = [], lent, pool.numbers
    milli = pool.host_milli if pool.shares else 0
    for index in range(pool.nodes):
        gpus = (numbers[index % pool.shares],) if pool.shares else numbers
        gpus = gpus[: max(0, left)]
        left -= len(gpus)
        if gpus or not pool.gpus_per_node:
            rest = pool.cpus_milli_per_node, pool.memory_mib_per_node
            hosts.append(Host(pool.host_named(index), gpus, *rest, milli))
    return tuple(hosts)


def well_hosts(hosts: Iterable[Host], ailing: Collection[tuple[str, int]]) -> Iterable[Host]:
    """The hosts without those GPUs, given by host and number, that are to take nothing new."""
    if not ailing:
        return hosts
    return [
        replace(host, gpus=tuple(gpu for gpu in host.gpus if (host.name, gpu) not in ailing))
        for host in hosts
    ]


def displaced(site: Site, slots: Iterable[Slot]) -> frozenset[tuple[str, int]]:
    """GPUs that are held, all or a part, as the site had them once and has no more, by the name of their pool, of parts or not, and their number: nothing new starts there until that ends."""
    there: dict[tuple[str, int], str] = {}
    for pool in site.pools:
        uuids = {number: each.uuid for number, each in zip(pool.devices, pool.instances, strict=False)}
        for host in _hosts(pool, pool.nodes * pool.gpus_per_node):
            there |= {(host.name, gpu): uuids.get(gpu, "") for gpu in host.gpus}
    return frozenset(
        (unparted(slot.pool), place_of(gpu)[0])
        for slot in slots
        for gpu in slot.gpus
        if there.get((slot.host, gpu)) != slot.uuid
    )


def overdrawn(pools: Iterable[HostPool], slots: Iterable[Slot]) -> tuple[int, int]:
    """Milli-cores and MiB that slots in these pools of one machine hold beyond what their hosts have, or on hosts that are no more: its GPUs were cut or shared otherwise since."""
    names, cpus_milli, memory_mib = set[str](), Counter[str](), Counter[str]()
    for pool in pools:
        names.add(unparted(pool.name))
        for host in _hosts(pool, pool.nodes * pool.gpus_per_node):
            cpus_milli[host.name] -= host.cpus_milli
            memory_mib[host.name] -= host.memory_mib
    for slot in slots:
        if unparted(slot.pool) in names:
            cpus_milli[slot.host] += slot.cpus_milli
            memory_mib[slot.host] += slot.memory_mib
    return (+cpus_milli).total(), (+memory_mib).total()


def less_overdrawn(hosts: Iterable[Host], over: tuple[int, int]) -> tuple[list[Host], tuple[int, int]]:
    """The hosts without so many milli-cores and MiB in all, and what is still to be taken off others."""
    (cpus_milli, memory_mib), left = over, list[Host]()
    for host in hosts:
        cpus, memory = min(host.cpus_milli, cpus_milli), min(host.memory_mib, memory_mib)
        cpus_milli, memory_mib = cpus_milli - cpus, memory_mib - memory
        left.append(replace(host, cpus_milli=host.cpus_milli - cpus, memory_mib=host.memory_mib - memory))
    return left, (cpus_milli, memory_mib)


def unparted(pool: str) -> str:
    """The name of the pool of whole GPUs of which that one has parts, or its own."""
    return _PARTS.sub("", pool)


def undisturbed_hosts(
    pool: HostPool, hosts: Collection[Host], held: Collection[tuple[str, int]]
) -> Iterable[Host]:
    """The hosts without GPUs that are `displaced`. Of several machines it is not known whose they were: then that number is left out at all."""
    if not held:
        return hosts
    name = unparted(pool.name)
    away = {(host.name, gpu) for host in hosts for gpu in host.gpus if (name, place_of(gpu)[0]) in held}
    return well_hosts(hosts, away)


def lent_gpus(site: Site, pool: HostPool) -> int:
    """How many GPUs of a pool are lent, busy or free, whatever the hour."""
    if site.lend.pools and pool.name not in site.lend.pools:
        return 0
    if pool.instances:
        return len(lent_hosts(site, pool))
    has = pool.nodes * pool.gpus_per_node
    allowed = has if pool.allowed_gpus is None else pool.allowed_gpus
    return min(has, allowed, site.lend.gpus.get(pool.name, has))


def free_hosts(hosts: Iterable[Host], slots: Iterable[Slot], *, by_number: bool = True) -> list[Host]:
    """The hosts with everything taken off that `slots` hold. `by_number`: the very GPUs that they name; else as many."""
    taken: dict[str, list[Slot]] = {}
    for slot in slots:
        taken.setdefault(slot.host, []).append(slot)
    return [
        _less(host, taken[host.name], by_number=by_number) if host.name in taken else host for host in hosts
    ]


def _less(host: Host, slots: list[Slot], *, by_number: bool) -> Host:
    cpus_milli, memory_mib, held = host.cpus_milli, host.memory_mib, list[int]()
    share_milli = host.share_milli
    for slot in slots:
        if slot.share_milli:
            share_milli -= slot.share_milli
        else:
            held += slot.gpus
        cpus_milli -= slot.cpus_milli
        memory_mib -= slot.memory_mib
    if host.share_milli and share_milli <= 0:
        held += host.gpus
    gpus = tuple(sorted(set(host.gpus).difference(held))) if by_number else host.gpus[len(held) :]
    return Host(host.name, gpus, max(0, cpus_milli), max(0, memory_mib), max(0, share_milli))


def free_seen(site: Site, pool: HostPool, seen: Seen, held: Mapping[str, Iterable[Slot]]) -> list[Host]:
    """What is lent and free of a pool that was seen. `held`: by placement, all slots that ours hold.

    What was not yet there to be seen is taken off where it was seated: its scheduler may choose other hosts, and the next look shows them. A host whose
    GPUs are all in use is told with the rest that it has: once they are free, work can start there.
    """
    new = [
        slot
        for name, slots in held.items()
        if name not in seen.counted
        for slot in slots
        if (name, slot.rank) not in seen.bound
    ]
    hosts = free_hosts(seen.hosts.get(pool.name, ()), new, by_number=False)
    if not pool.gpus_per_node:
        return hosts if not site.lend.pools or pool.name in site.lend.pools else []
    total = lent_gpus(site, pool)
    if pool.shares:
        ours = sum(slot.share_milli for slots in held.values() for slot in slots if slot.pool == pool.name)
        return _lent_parts(hosts, pool, total * pool.host_milli - ours) if total else []
    ours = sum(len(slot.gpus) for slots in held.values() for slot in slots if slot.pool == pool.name)
    left, lent = max(0, total - ours), []
    for host in hosts:
        gpus = host.gpus[:left]
        left -= len(gpus)
        lent += [replace(host, gpus=gpus)] if gpus or not host.gpus else []
    return lent if total else []


def _lent_parts(hosts: Iterable[Host], pool: HostPool, left_milli: int) -> list[Host]:
    """Of hosts with parts of GPUs so many thousandths, in whole parts."""
    cut, lent = pool.cut_milli or 1, []
    for host in hosts:
        milli = max(0, min(host.share_milli, left_milli)) // cut * cut
        left_milli -= milli
        lent.append(replace(host, gpus=host.gpus if milli else (), share_milli=milli))
    return lent


def seat_together(
    hosts: list[Host], pool: HostPool, ranks: tuple[int, ...], need: Resources, together: str
) -> tuple[Slot, ...] | None:
    """As `seat`; but all on one host, or each on a host of its own, where the job says so."""
    need = _as_cut(need, pool)
    if together != ON_ONE_HOST:
        return seat(hosts, pool, ranks, need, apart=together == APART)
    fullest = sorted(hosts, key=lambda host: (host.free_gpus, host.cpus_milli, host.name))
    tries = (seat([host], pool, ranks, need) for host in fullest)
    return next((slots for slots in tries if slots is not None), None)


def seat(
    hosts: list[Host], pool: HostPool, ranks: tuple[int, ...], need: Resources, *, apart: bool = False
) -> tuple[Slot, ...] | None:
    """Slots for all ranks or None: each on the host that it leaves the fewest GPUs idle on, so that whole hosts stay whole.

    A part of a GPU goes on the one with least left of it, for the same reason. `apart`: no two of them on one host.
    """
    free = {host.name: host for host in hosts}
    slots = []
    for rank in ranks:
        fitting = [host for host in free.values() if host.room(need)]
        if not fitting:
            return None
        host = min(fitting, key=lambda host: (host.free_gpus, host.cpus_milli, host.name))
        gpus = nearest(host.gpus, need.gpus.count, pool.near)
        slot = Slot(rank, pool.name, host.name, gpus, need.cpus_milli, need.memory_mib)
        if milli := need.gpus.share_milli:
            slot = replace(slot, share_milli=milli, share_mib=pool.gpu_memory_mib * milli // WHOLE_MILLI)
        if pool.instances and gpus:
            instance = pool.instances[pool.devices.index(gpus[0])]
            slot = replace(slot, share_mib=instance.memory_mib, uuid=instance.uuid)
        free[host.name] = free_hosts([host], [slot])[0]
        if apart:
            del free[host.name]
        slots.append(slot)
    return tuple(slots)


def nearest(
    free: tuple[int, ...], count: int, near: tuple[tuple[tuple[int, ...], ...], ...]
) -> tuple[int, ...]:
    """So many of the free GPUs of a host: of the group that has just enough, the closest kind of groups first, so that whole groups stay whole. Where none has, the first ones."""
    for groups in near:
        among = [tuple(gpu for gpu in free if gpu in group) for group in groups]
        enough = [gpus for gpus in among if len(gpus) >= count]
        if enough:
            return min(enough, key=lambda gpus: (len(gpus), gpus))[:count]
    return free[:count]


def is_of(declared: str, model: str) -> bool:
    """Whether a site file means what the driver calls `model`: `a100` and `A100-80GB` are `A100`, `RTX-A6000` is `A6000`."""
    words = declared.lower().replace("_", "-").split("-")
    meant = {word.removeprefix("rtx") for word in (words[0], "".join(words))}
    return model.lower().removeprefix("rtx") in meant

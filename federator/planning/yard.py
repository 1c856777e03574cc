"""Exact free capacity over time: hosts, what is free on each, and when busy work gives its part back.

A gang fits on hosts, never on a total. The histogram in a report does not say which host runs what, so busy work is laid on
hosts that have that much in use: the largest ranks first, each on the host that it fills best. From then on hosts are exact.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from federator.model.capacity import Shape
from federator.model.snapshot import BusyView, JobView, PoolView
from federator.planning.candidates import Candidate

OVERDUE_S = 60.0
"""Work that should have ended is expected to end so much later, or a tenth of the time it has run, whichever is longer."""

RANKS_PER_WORK = 1 << 20
"""Releases are numbered so that the first rank of each piece of work is a multiple of this."""

Room = tuple[int, int, int]
"""GPUs, milli-CPUs and MiB."""


@dataclass
class Host:
    """What is free on one host now."""

    gpus: int
    cpus_milli: int
    memory_mib: int

    def ranks(self, need: Room) -> int:
        """How many ranks of that size it holds. One with nothing free holds none, not even of a job that asks for nothing: it may still boot."""
        fits = 1_000_000 if self.gpus or self.cpus_milli or self.memory_mib else 0
        if need[0]:
            fits = self.gpus // need[0]
        if need[1]:
            fits = min(fits, self.cpus_milli // need[1])
        if need[2]:
            fits = min(fits, self.memory_mib // need[2])
        return fits

    def add(self, need: Room, sign: int) -> None:
        """Give back (`sign` 1) or take (-1) one rank."""
        self.gpus += sign * need[0]
        self.cpus_milli += sign * need[1]
        self.memory_mib += sign * need[2]


@dataclass(order=True)
class Release:
    """At `at`, ranks of size `need` leave these hosts. `number` keeps ties in order of arrival."""

    at: float
    number: int
    need: Room = field(compare=False)
    hosts: tuple[int, ...] = field(compare=False)
    payload: object = field(compare=False, default=None)


def need_of(job: JobView) -> Room:
    """What one rank takes."""
    return job.gpus, job.cpus_milli, job.memory_mib


def expected_end(busy: BusyView, now: float) -> float:
    """When busy work is expected to be over; never in the past."""
    if busy.ends_at > now:
        return busy.ends_at
    ran_s = now - busy.started_at if busy.started_at else 0.0
    return now + max(OVERDUE_S, 0.1 * ran_s)


class Lot:
    """The hosts of one place, and the releases ahead, soonest first."""

    def __init__(self, hosts: list[Host], releases: Iterable[Release] = ()) -> None:
        """Take the hosts and keep the releases as a heap."""
        self.hosts = hosts
        self.releases = sorted(releases)

    @classmethod
    def of_pool(cls, view: PoolView, now: float) -> "Lot":
        """The pool as its snapshot shows it; a lease that still boots has nothing before it is ready."""
        whole = (view.gpus_per_node, view.cpus_milli_per_node, view.memory_mib_per_node)
        boots = view.ready_at is not None and view.ready_at > now
        free = view.free if view.free or view.busy or not boots else (Shape(*whole, count=view.nodes),)
        hosts = [
            Host(s.gpus, s.cpus_milli, s.memory_mib)
            for s in sorted(free, reverse=True)
            for _ in range(s.count)
        ]
        hosts += [Host(0, 0, 0) for _ in range(view.nodes - len(hosts))]
        releases = _lay_busy(view, hosts, now)
        if boots and view.ready_at is not None:
            for number, host in enumerate(hosts):
                room = (host.gpus, host.cpus_milli, host.memory_mib)
                releases.append(Release(view.ready_at, -1 - number, room, (number,)))
            hosts = [Host(0, 0, 0) for _ in hosts]
        return cls(hosts, releases)

    def fits(self, need: Room, ranks: int) -> bool:
        """Whether so many ranks fit on what is free now."""
        left = ranks
        for host in self.hosts:
            left -= host.ranks(need)
            if left <= 0:
                return True
        return False

    def take(self, need: Room, ranks: int) -> tuple[int, ...] | None:
        """Take the ranks, each on the host that it fills best, and say which; None, and nothing taken, when they do not fit."""
        if not self.fits(need, ranks):
            return None
        chosen: list[int] = []
        order = sorted(
            range(len(self.hosts)),
            key=lambda i: (self.hosts[i].gpus, self.hosts[i].cpus_milli, self.hosts[i].memory_mib, i),
        )
        for index in order:
            for _ in range(min(self.hosts[index].ranks(need), ranks - len(chosen))):
                self.hosts[index].add(need, -1)
                chosen.append(index)
            if len(chosen) == ranks:
                break
        return tuple(chosen)

    def untake(self, need: Room, hosts: Sequence[int]) -> None:
        """Undo `take`."""
        for index in hosts:
            self.hosts[index].add(need, 1)

    def release_later(self, release: Release) -> None:
        """What was taken comes back at its end."""
        heapq.heappush(self.releases, release)

    def add_host(self) -> int:
        """One more host, with nothing free yet; return its index."""
        self.hosts.append(Host(0, 0, 0))
        return len(self.hosts) - 1

    def advance(self, at: float) -> list[Release]:
        """Let everything due by `at` come back; return it."""
        due = []
        while self.releases and self.releases[0].at <= at:
            release = heapq.heappop(self.releases)
            self.untake(release.need, release.hosts)
            due.append(release)
        return due

    def earliest(self, need: Room, ranks: int) -> float | None:
        """When so many ranks fit if nothing else starts here: 0 for now, the time of some release, or None for never."""
        copy, at = self.copy(), 0.0
        while not copy.fits(need, ranks):
            if not copy.releases:
                return None
            at = copy.releases[0].at
            copy.advance(at)
        return at

    def copy(self) -> "Lot":
        """An independent copy."""
        other = Lot.__new__(Lot)
        other.hosts = [Host(h.gpus, h.cpus_milli, h.memory_mib) for h in self.hosts]
        other.releases = list(self.releases)
        return other


def _lay_busy(view: PoolView, hosts: list[Host], now: float) -> list[Release]:
    """Lay busy work on hosts by what they have in use, largest ranks first."""
    whole = (view.gpus_per_node, view.cpus_milli_per_node, view.memory_mib_per_node)
    used = [
        [max(0, whole[0] - h.gpus), max(0, whole[1] - h.cpus_milli), max(0, whole[2] - h.memory_mib)]
        for h in hosts
    ]
    releases = []
    works = sorted(enumerate(view.busy), key=lambda item: (-item[1].gpus, -item[1].cpus_milli, item[0]))
    for number, busy in works:
        need = (busy.gpus, busy.cpus_milli, busy.memory_mib)
        for rank in range(busy.nodes):
            index = _best_host(used, need)
            if index is None:
                continue
            given = tuple(min(want, has) for want, has in zip(need, used[index], strict=True))
            for part in range(3):
                used[index][part] -= given[part]
            back = (given[0], given[1], given[2])
            releases.append(
                Release(expected_end(busy, now), number * RANKS_PER_WORK + rank, back, (index,), busy)
            )
    return releases


def _best_host(used: list[list[int]], need: Room) -> int | None:
    """The host whose use is closest above the need; failing that, the one with most in use; None without hosts."""
    if not used:
        return None
    holding = [i for i, has in enumerate(used) if all(has[part] >= need[part] for part in range(3))]
    if holding:
        return min(holding, key=lambda i: (used[i][0], used[i][1], i))
    return max(range(len(used)), key=lambda i: (used[i][0], used[i][1], -i))


@dataclass
class Hold:
    """A place kept for a gang: its hosts as they will be at `at`, before the gang starts."""

    job: JobView
    place: int
    at: float
    lot: Lot

    def survives(self, need: Room, hosts: Sequence[int]) -> bool:
        """Whether the gang still starts on time when ranks of that size stay on these hosts beyond `at`."""
        for index in hosts:
            self.lot.hosts[index].add(need, -1)
        fits = self.lot.fits(need_of(self.job), self.job.nodes)
        self.lot.untake(need, hosts)
        return fits

    def suffer(self, need: Room, hosts: Sequence[int]) -> None:
        """Such ranks do stay."""
        for index in hosts:
            self.lot.hosts[index].add(need, -1)


def lot_of(candidate: Candidate, now: float) -> Lot:
    """The lot of a place; an offer has no hosts until one is rented."""
    return Lot.of_pool(candidate.standing, now) if candidate.standing is not None else Lot([])

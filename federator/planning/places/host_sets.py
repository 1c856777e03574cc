"""Exact free capacity over time: hosts, what is free on each, and when busy work gives its part back.

A gang fits on hosts, never on a total. The histogram in a report does not say which host runs what, so busy work is laid on
hosts that have that much in use: the largest ranks first, each on the host that it fills best. From then on hosts are exact.

Hosts with equally much free are asked about once, so that a question about a thousand hosts costs as much as their few kinds.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from federator.model.capacity import Shape
from federator.model.snapshot import BusyView, JobView, PoolView
from federator.planning.places.candidates import Candidate

OVERDUE_S = 60.0
"""Work that should have ended is expected to end so much later, or a tenth of the time it has run, whichever is longer."""

RANKS_PER_WORK = 1 << 20
"""Releases are numbered so that the first rank of each piece of work is a multiple of this."""

Room = tuple[int, ...]
"""GPUs, milli-CPUs and MiB; a fourth says that no two such ranks of one gang are on one host."""


SIZES = 3


class Host(NamedTuple):
    """What is free on one host."""

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
        return max(0, fits if len(need) == SIZES else min(1, fits))

    def plus(self, need: Room, sign: int) -> "Host":
        """With one rank given back (`sign` 1) or taken (-1)."""
        return Host(
            self.gpus + sign * need[0], self.cpus_milli + sign * need[1], self.memory_mib + sign * need[2]
        )


NOTHING = Host(0, 0, 0)


class Release(NamedTuple):
    """At `at`, ranks of size `need` leave these hosts. `number` is each one's own within a lot: ties come in its order."""

    at: float
    number: int
    need: Room
    hosts: tuple[int, ...]
    payload: object = None
    overdue: bool = False
    """Whether it should have been before now."""


def need_of(job: JobView) -> Room:
    """What one rank takes."""
    size = job.gpus, job.cpus_milli, job.memory_mib
    return (*size, 1) if job.apart else size


def expected_end(busy: BusyView, now: float) -> float:
    """When busy work is expected to be over; never in the past."""
    if busy.ends_at > now:
        return busy.ends_at
    ran_s = now - busy.started_at if busy.started_at else 0.0
    return now + max(OVERDUE_S, 0.1 * ran_s)


class HostSet:
    """The hosts of one place, and the releases ahead, soonest first. `members` says by index whose each host is."""

    def __init__(
        self, hosts: Iterable[Host], releases: Iterable[Release] = (), members: Iterable[int] | None = None
    ) -> None:
        """Take the hosts; without `members` they are all of one."""
        self.hosts = list(hosts)
        self.members = [0] * len(self.hosts) if members is None else list(members)
        self.releases = sorted(releases)
        self.alike: dict[Host, set[int]] = {}
        """Which hosts have so much free."""
        for index, host in enumerate(self.hosts):
            self.alike.setdefault(host, set()).add(index)

    @classmethod
    def of_pool(cls, view: PoolView, now: float) -> "HostSet":
        """One member's pool as its snapshot shows it."""
        return cls.of_pools((view,), now)

    @classmethod
    def of_pools(cls, views: Sequence[PoolView], now: float, shut: Sequence[PoolView] = ()) -> "HostSet":
        """Several members' pools as one. Those that are `shut` have no room, now or later; what ends there still counts for caps."""
        hosts: list[Host] = []
        members: list[int] = []
        releases: list[Release] = []
        works = 0
        for member, view in enumerate(views):
            own, ahead = _stand(view, now, works, len(hosts))
            members += [member] * len(own)
            hosts += own
            releases += ahead
            works += len(view.busy)
        for busy in (busy for view in shut for busy in view.busy):
            releases.append(Release(expected_end(busy, now), works * RANKS_PER_WORK, NOTHING, (), busy))
            works += 1
        return cls(hosts, releases, members)

    def room_for(self, need: Room) -> int:
        """How many ranks of that size fit on what is free now."""
        return sum(host.ranks(need) * len(where) for host, where in self.alike.items())

    def gangs(self, need: Room, ranks: int) -> int:
        """How many gangs of so many ranks fit on what is free now; of those whose ranks are apart, at most so many."""
        if len(need) == SIZES:
            return self.room_for(need) // ranks
        holds = [(host.ranks(need[:SIZES]), len(where)) for host, where in self.alike.items()]
        count, most = 0, sum(each * hosts for each, hosts in holds) // ranks
        while count < most:  # where so many fit, fewer do
            middle = (count + most + 1) // 2
            if sum(min(middle, each) * hosts for each, hosts in holds) >= middle * ranks:
                count = middle
            else:
                most = middle - 1
        return count

    def fits(self, need: Room, ranks: int) -> bool:
        """Whether so many ranks fit on what is free now."""
        left = ranks
        for host, where in self.alike.items():
            left -= host.ranks(need) * len(where)
            if left <= 0:
                return True
        return False

    def choose(
        self, need: Room, ranks: int, usable: Callable[[int], bool] | None = None
    ) -> tuple[int, ...] | None:
        """Hosts for the ranks, in their order; None when they do not fit. `usable` says of a host whether it may be one.

        As few members as possible, and ranks of one member in a row: the member that they fill best, if one holds them all; else the largest,
        and so on with the rest. Within a member each rank goes on the host that it fills best.
        """
        if ranks == 1 and usable is None:
            fullest = min((host for host in self.alike if host.ranks(need)), default=None)
            return None if fullest is None else (min(self.alike[fullest]),)
        if ranks == 1:
            return next(((index,) for index, _ in self._holding(need, usable)), None)
        room: dict[int, list[tuple[int, int]]] = {}
        for index, fits in self._holding(need, usable):
            room.setdefault(self.members[index], []).append((index, fits))
        sizes = {member: sum(fits for _, fits in room[member]) for member in sorted(room)}
        if sum(sizes.values()) < ranks:
            return None
        chosen: list[int] = []
        while len(chosen) < ranks:
            left = ranks - len(chosen)
            enough = [member for member, size in sizes.items() if size >= left]
            best = min(enough, key=sizes.__getitem__) if enough else max(sizes, key=sizes.__getitem__)
            for index, fits in room[best]:
                chosen += [index] * min(fits, ranks - len(chosen))
            del sizes[best]
        return tuple(chosen)

    def _holding(self, need: Room, usable: Callable[[int], bool] | None) -> Iterator[tuple[int, int]]:
        """Hosts that hold ranks of that size, and how many, the fullest first."""
        for host in sorted(self.alike):
            fits = host.ranks(need)
            for index in sorted(self.alike[host]) if fits else ():
                if usable is None or usable(index):
                    yield index, fits

    def take(self, need: Room, ranks: int) -> tuple[int, ...] | None:
        """Choose hosts for the ranks and take them; None, and nothing taken, when they do not fit."""
        hosts = self.choose(need, ranks)
        if hosts is not None:
            self.put(need, hosts)
        return hosts

    def put(self, need: Room, hosts: Sequence[int]) -> None:
        """One rank of that size on each of these hosts."""
        for index in hosts:
            self._move(index, self.hosts[index].plus(need, -1))

    def untake(self, need: Room, hosts: Sequence[int]) -> None:
        """Undo `take` or `put`."""
        for index in hosts:
            self._move(index, self.hosts[index].plus(need, 1))

    def _move(self, index: int, host: Host) -> None:
        where = self.alike[self.hosts[index]]
        where.remove(index)
        if not where:
            del self.alike[self.hosts[index]]
        self.hosts[index] = host
        self.alike.setdefault(host, set()).add(index)

    def release_later(self, release: Release) -> None:
        """What was taken comes back at its end."""
        insort(self.releases, release)

    def add_host(self) -> int:
        """One more host, with nothing free yet; return its index."""
        index = len(self.hosts)
        self.hosts.append(NOTHING)
        self.members.append(0)
        self.alike.setdefault(NOTHING, set()).add(index)
        return index

    def advance(self, at: float) -> list[Release]:
        """Let everything due by `at` come back; return it."""
        count = bisect_right(self.releases, at, key=_at)
        due = self.releases[:count]
        del self.releases[:count]
        for release in due:
            self.untake(release.need, release.hosts)
        return due

    def earliest(self, need: Room, ranks: int) -> float | None:
        """When so many ranks fit if nothing else starts here: 0 for now, the time of some release, or None for never."""
        room = self.room_for(need)
        if room >= ranks:
            return 0.0
        gained: dict[int, Host] = {}
        for release in self.releases:
            for index in release.hosts:
                before = gained.get(index) or self.hosts[index]
                gained[index] = before.plus(release.need, 1)
                room += gained[index].ranks(need) - before.ranks(need)
            if room >= ranks:
                return release.at
        return None

    def copy(self) -> "HostSet":
        """An independent copy."""
        other = HostSet.__new__(HostSet)
        other.hosts, other.members, other.releases = list(self.hosts), list(self.members), list(self.releases)
        other.alike = {host: set(where) for host, where in self.alike.items()}
        return other


def _at(release: Release) -> float:
    return release.at


def _stand(view: PoolView, now: float, works: int, first: int) -> tuple[list[Host], list[Release]]:
    """A pool's hosts, to be numbered from `first`, and its releases; a lease that still boots has nothing before it is ready."""
    whole = (view.gpus_per_node, view.cpus_milli_per_node, view.memory_mib_per_node)
    boots = view.ready_at is not None and view.ready_at > now
    free = view.free if view.free or view.busy or not boots else (Shape(*whole, count=view.nodes),)
    shapes = sorted(free, reverse=True)
    hosts: list[Host] = []
    for shape in shapes:
        hosts += [Host(shape.gpus, shape.cpus_milli, shape.memory_mib)] * shape.count
    hosts += [NOTHING] * (view.nodes - len(hosts))
    releases = _lay_busy(view, hosts, now, works, first)
    if boots and view.ready_at is not None:
        for number, host in enumerate(hosts):
            releases.append(Release(view.ready_at, -1 - number, host, (first + number,)))
        hosts = [NOTHING] * len(hosts)
    return hosts, releases


def _lay_busy(view: PoolView, hosts: list[Host], now: float, works: int, first: int) -> list[Release]:
    """Lay busy work on hosts by what they have in use, largest ranks first. Works are numbered from `works`, hosts from `first`."""
    if not view.busy:
        return []
    whole = (view.gpus_per_node, view.cpus_milli_per_node, view.memory_mib_per_node)
    in_use = _InUse(
        Host(max(0, whole[0] - h.gpus), max(0, whole[1] - h.cpus_milli), max(0, whole[2] - h.memory_mib))
        for h in hosts
    )
    releases = []
    order = sorted(
        enumerate(view.busy, works), key=lambda item: (-item[1].gpus, -item[1].cpus_milli, item[0])
    )
    for number, busy in order:
        need = (busy.gpus, busy.cpus_milli, busy.memory_mib)
        # What should have ended already has an end that moves on with the clock.
        end, late = expected_end(busy, now), busy.overdue or busy.ends_at <= now
        for rank in range(busy.nodes if hosts else 0):
            index, given = in_use.give_back(need)
            numbered = number * RANKS_PER_WORK + rank
            releases.append(Release(end, numbered, given, (first + index,), busy, late))
    return releases


class _InUse:
    """What is in use on each host of a pool, least first: a pool has more busy work than hosts, and no rank of it may cost a look at all hosts."""

    def __init__(self, used: Iterable[Host]) -> None:
        self._used = sorted(
            (host.gpus, host.cpus_milli, index, host.memory_mib) for index, host in enumerate(used)
        )

    def give_back(self, need: Room) -> tuple[int, Room]:
        """Of the host whose use is closest above the need; failing that, of the one with most in use. Which, and what it has of it."""
        gpus, cpus_milli, index, memory_mib = self._used.pop(self._place(need))
        given = min(need[0], gpus), min(need[1], cpus_milli), min(need[2], memory_mib)
        insort(self._used, (gpus - given[0], cpus_milli - given[1], index, memory_mib - given[2]))
        return index, given

    def _place(self, need: Room) -> int:
        for place in range(bisect_left(self._used, need[:2]), len(self._used)):
            _, cpus_milli, _, memory_mib = self._used[place]
            if cpus_milli >= need[1] and memory_mib >= need[2]:
                return place
        return bisect_left(self._used, self._used[-1][:2])


def host_set_of(candidate: Candidate, now: float) -> HostSet:
    """The host set of a place; an offer has no hosts until one is rented."""
    return HostSet.of_pools(candidate.views, now, candidate.shut)


def hosts_for(job: JobView, at: Candidate, host_set: HostSet) -> tuple[int, ...] | None:
    """Hosts for the job's ranks: where it was lost before only if there is no room elsewhere; None when they do not fit."""
    need, avoided = need_of(job), at.members_of(job.avoid_nodes) if job.avoid_nodes else ()
    if avoided:
        hosts = host_set.choose(need, job.nodes, lambda host: host_set.members[host] not in avoided)
        if hosts is not None:
            return hosts
    return host_set.choose(need, job.nodes)

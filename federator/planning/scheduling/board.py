"""The board that a schedule is played on: hosts, releases, caps, what is rented and what is held; and how jobs are put there and taken back."""

from collections.abc import Mapping

from federator.model.snapshot import JobView
from federator.planning.places.candidates import machines
from federator.planning.places.yard import RANKS_PER_WORK, Hold, Host, Release, Room, hosts_for, need_of
from federator.planning.renting.burst import Bursting
from federator.planning.scheduling.blocks import Block
from federator.planning.scheduling.bookings import Booking, Schedule
from federator.planning.scheduling.lanes import Lanes
from federator.planning.world.problem import ClassKey, World


class Board:
    """The state of one run of the list schedule; it is thrown away with it."""

    def __init__(
        self, world: World, bursting: Bursting | None, order: Mapping[str, int] | None = None
    ) -> None:
        self.world, self.bursting, self.order, self.now = world, bursting, order, world.now
        self.lots = world.lots()
        self.caps = world.caps.copy()
        self.stocks = world.stocks.copy()
        self.result = Schedule()
        self.hold: Hold | None = None
        self.rented: set[int] = set()
        self.stuck: dict[ClassKey, Block] = {}
        self.open: dict[ClassKey, tuple[int, ...]] = {}
        self.number = 1 << 40
        self.lanes = Lanes(world, ())

    def _hosts(self, job: JobView, place: int, at: float) -> tuple[int, ...] | None:
        """Where the ranks of a job that fits there would go; None when that would delay the gang that the place is held for."""
        hold, lot, need = self.hold, self.lots[place], need_of(job)
        hosts = hosts_for(job, self.world.places[place], lot)
        if hosts is None or hold is None or hold.place != self.world.place_of(place) or hold.job.id == job.id:
            return hosts
        if at + self.world.places[place].run_s(job) <= hold.at or hold.survives(need, hosts):
            return hosts
        if self.world.places[place].rented:
            return None
        hosts = lot.choose(need, job.nodes, hold.spares(need))
        return hosts if hosts is not None and hold.survives(need, hosts) else None

    def _committed_until(self, place: int) -> float:
        """Until when a rented instance is needed by what runs there."""
        if not self.world.places[place].rented:
            return 0.0
        releases = self.lots[place].releases
        return releases[-1].at if releases else 0.0

    def _shares(self, place: int) -> bool:
        """Whether an instance is rented there by this decision."""
        return self.world.place_of(place) in self.rented

    def _start(self, job: JobView, place: int, at: float, hosts: tuple[int, ...]) -> None:
        job = self.world.as_form(job, place)
        need, candidate, lot = need_of(job), self.world.places[place], self.lots[place]
        committed_until = self._committed_until(place)
        lot.put(need, hosts)
        finish = at + candidate.run_s(job)
        if self.hold is not None and self.hold.job.id == job.id:
            self.hold = None
        elif self._is_held(place) and self.hold is not None and finish > self.hold.at:
            self.hold.suffer(need, hosts)
        self._release(place, finish, need, hosts, job)
        self.caps.take(job, candidate, shares=self._shares(place))
        members = tuple(lot.members[host] for host in hosts)
        self.result.bookings[job.id] = Booking(place, at, finish, committed_until, members=members)

    def _is_held(self, place: int) -> bool:
        """Whether there is a hold there."""
        return self.hold is not None and self.hold.place == self.world.place_of(place)

    def _take_back(self, job: JobView, place: int) -> tuple[int, ...]:
        """Undo a start of this moment; return its hosts."""
        lot, need = self.lots[place], need_of(job)
        release = next(r for r in lot.releases if isinstance(r.payload, JobView) and r.payload.id == job.id)
        lot.releases.remove(release)
        lot.untake(need, release.hosts)
        self.caps.give_back(job, self.world.places[place], shares=self._shares(place))
        if self.hold is not None and self._is_held(place) and release.at > self.hold.at:
            self.hold.recover(need, release.hosts)
        return release.hosts

    def _release(
        self, place: int, at: float, need: Room, hosts: tuple[int, ...], job: JobView | None
    ) -> None:
        self.number += RANKS_PER_WORK
        self.lots[place].release_later(Release(at, self.number, need, hosts, job))

    def _rent(self, job: JobView, place: int, delay_s: float) -> None:
        """New hosts at the offer, each as full of the job's ranks as it goes; the rest is there for others once they have booted."""
        candidate, lot, need = self.world.places[place], self.lots[place], need_of(job)
        ready = self.now + delay_s
        finish = ready + candidate.run_s(job)
        whole = Host(candidate.gpus, candidate.cpus_milli, candidate.memory_mib)
        hosts: list[int] = []
        count = machines(job, candidate)
        self.stocks.take(self.world.place_of(place), count)
        for _ in range(count):
            host, ranks = lot.add_host(), min(whole.ranks(need), job.nodes - len(hosts))
            rest = (whole[0] - ranks * need[0], whole[1] - ranks * need[1], whole[2] - ranks * need[2])
            self._release(place, ready, rest, (host,), None)
            hosts += [host] * ranks
        self._release(place, finish, need, tuple(hosts), job)
        self.caps.take(job, candidate)
        self.rented.add(self.world.place_of(place))
        self.open.clear()
        self.result.bookings[job.id] = Booking(place, ready, finish, rents=True)

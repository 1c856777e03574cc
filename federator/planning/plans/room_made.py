"""The room that is made: each place as this decision leaves it, with what is being stopped gone, and with those in it that it is stopped for.

Who asks for room next sees what others have been given, in this turn or by stops of earlier ones that are still on their way, so nothing is stopped
twice for one gap, and no gap is given to two.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from federator.model.plans import Preempt
from federator.model.reasons import Reason
from federator.model.snapshot import BusyView, JobView
from federator.planning.places.candidates import Candidate
from federator.planning.places.host_sets import Host, HostSet, Release, need_of
from federator.planning.rules.caps import Caps
from federator.planning.scheduling.objective import Scored
from federator.planning.world.problem import World

LATELY_S = 3600.0
"""Whoever had to leave so lately leaves after all others of his priority."""

Victim = Callable[[BusyView, str], bool]
"""Whether a running placement, on GPUs of that model, may be stopped."""
Hosts = Collection[int] | None
"""Some hosts of a place by index; None: all."""


def after_starts(world: World, scored: Scored, place: int) -> HostSet:
    """The hosts of a place as a decision's starts leave them."""
    host_set = world.host_set(place)
    for name, choice in scored.starts.items():
        booking = scored.booking(name)
        if world.place_of(choice) == world.place_of(place) and booking is not None:
            need = need_of(world.as_form(world.by_id[name], choice))
            for member, ranks in Counter(booking.members).items():
                host_set.put(need, host_set.choose(need, ranks, _of_member(host_set, member)) or ())
    return host_set


def _of_member(host_set: HostSet, member: int) -> Callable[[int], bool]:
    return lambda host: host_set.members[host] == member


def count_out(caps: Caps, at: Candidate, busy: BusyView) -> None:
    """What the placement has counts no more."""
    for pool in at.views:
        for part in pool.busy:
            if part.placement == busy.placement:
                caps.end_busy(part, pool)


def lost_gpu_s(busy: BusyView, now: float) -> float:
    """GPU time that stopping it now throws away: its work since it last saved itself, and the start that is to be done again."""
    ran_s = max(0.0, now - busy.started_at)
    if busy.saves:
        ran_s = ran_s % busy.saves_every_s if busy.saves_every_s else 0.0
    return busy.gpus_total * (ran_s + busy.startup_s)


def _lately(busy: BusyView, now: float) -> bool:
    """Whether it had to leave a while ago: whoever waits for it again and again gets nothing done."""
    return busy.displaced_at is not None and now - busy.displaced_at < LATELY_S


def waits(world: World, scored: Scored, job: JobView) -> bool:
    """Whether the decision leaves a job waiting that could start now."""
    return job.id not in scored.starts and (job.not_before_at or 0.0) <= world.now


def stop(busy: BusyView, beneficiary: str, reason: Reason, form: int | None = None) -> Preempt:
    """Stop a placement, to go on in that form if one is given."""
    return Preempt(
        job=busy.job or "",
        revision=busy.revision,
        placement=busy.placement or "",
        beneficiary=beneficiary,
        reason=reason,
        form=form,
    )


class Gap(NamedTuple):
    """Room for a job at a place, once these have stopped; nobody, where what stops already makes it."""

    place: int
    """As a choice."""
    hosts: Hosts
    victims: tuple[BusyView, ...]


class _Place:
    """One place: its hosts as they will be, and who holds what on them."""

    def __init__(self, world: World, scored: Scored, place: int) -> None:
        self.host_set = after_starts(world, scored, place)
        self.free_now = self.host_set.copy()
        self.held: dict[str, list[Release]] = {}
        """By placement, of those that could be stopped."""
        self.on: dict[int, dict[str, None]] = {}
        """Those with something on a host, by host."""
        for release in self.host_set.releases:
            busy = release.payload
            if not (isinstance(busy, BusyView) and busy.placement and release.hosts):
                continue
            if busy.stopping:
                self.host_set.untake(release.need, release.hosts)
                continue
            self.held.setdefault(busy.placement, []).append(release)
            for host in release.hosts:
                self.on.setdefault(host, {})[busy.placement] = None
        self.members: dict[int, list[int]] = {}
        for host, member in enumerate(self.host_set.members):
            self.members.setdefault(member, []).append(host)

    def room(self, need: tuple[int, ...], hosts: Hosts) -> int:
        """How many ranks of that size fit there."""
        if hosts is None:
            return self.host_set.room_for(need)
        return sum(self.host_set.hosts[host].ranks(need) for host in hosts)

    def scopes(self, job: JobView, may_stop: Collection[str]) -> Iterator[list[Hosts]]:
        """Where to look for room for it, what is together is compared: hosts, or members, and only where none of them does, all of the place."""
        if job.nodes == 1:
            yield [(host,) for host, names in self.on.items() if not names.keys().isdisjoint(may_stop)]
            return
        if len(self.members) > 1:
            yield list(self.members.values())
        yield [None]

    def stop(self, placement: str) -> None:
        for release in self.held.pop(placement):
            self.host_set.untake(release.need, release.hosts)
            for host in release.hosts:
                self.on[host].pop(placement, None)


class Rooms:
    """All places; who asks first is given first."""

    def __init__(self, world: World, scored: Scored) -> None:
        """As the decision leaves them."""
        self.world, self.scored = world, scored
        self._places: dict[int, _Place] = {}
        self.caps = scored.caps.copy()
        """Without what stops."""
        for pool in world.snapshot.pools:
            for busy in pool.busy:
                if busy.stopping:
                    self.caps.end_busy(busy, pool)

    def _at(self, choice: int) -> _Place:
        place = self.world.place_of(choice)
        if place not in self._places:
            self._places[place] = _Place(self.world, self.scored, place)
        return self._places[place]

    def given(self, job: JobView, choices: Iterable[int]) -> bool | None:
        """Whether what stops already makes room for the job at one of these, which is then its own; None where it has room without that."""
        for choice in choices:
            view, place = self.world.as_form(job, choice), self._at(choice)
            if self._kept(view, choice, ()) or not place.host_set.fits(need_of(view), view.nodes):
                continue
            free = place.free_now.fits(need_of(view), view.nodes)
            self._take(view, choice, None)
            return None if free else True
        return False

    def least(self, job: JobView, choices: Iterable[int], may_stop: Victim) -> Gap | None:
        """The least work whose end makes room for the job, all of it at one of these; None where there is none."""
        best: tuple[tuple[float, ...], Gap] | None = None
        for choice in choices:
            view, place = self.world.as_form(job, choice), self._at(choice)
            model = self.world.places[choice].model
            found = {name: busy for name in place.held if may_stop(busy := self.world.running[name], model)}
            if not found or self._kept(view, choice, found.values()):
                continue
            for scopes in place.scopes(view, found):
                gaps = [
                    Gap(choice, hosts, tuple(victims))
                    for hosts in scopes
                    if (victims := self._enough(place, hosts, view, found))
                ]
                for gap in gaps:
                    burden = self._burden(gap.victims)
                    if best is None or burden < best[0]:
                        best = burden, gap
                if gaps:
                    break
        return best[1] if best else None

    def make(self, job: JobView, gap: Gap) -> None:
        """They stop, and the room is the job's."""
        for busy in gap.victims:
            self._at(gap.place).stop(busy.placement or "")
            count_out(self.caps, self.world.places[gap.place], busy)
        self._take(self.world.as_form(job, gap.place), gap.place, gap.hosts)

    def _take(self, view: JobView, choice: int, hosts: Hosts) -> None:
        host_set, need = self._at(choice).host_set, need_of(view)
        chosen = host_set.choose(need, view.nodes, None if hosts is None else set(hosts).__contains__)
        host_set.put(need, chosen or ())
        self.caps.take(view, self.world.places[choice])

    def _kept(self, view: JobView, choice: int, without: Iterable[BusyView]) -> bool:
        """Whether a cap keeps the job from starting there, even if these had gone."""
        at = self.world.places[choice]
        if self.caps.blocking(view, at) is None:
            return False
        caps = self.caps.copy()
        for busy in without:
            count_out(caps, at, busy)
        return caps.blocking(view, at) is not None

    def _burden(self, victims: Sequence[BusyView]) -> tuple[float, ...]:
        """What is stopped last of all, first; then what is lost, then how many."""
        now = self.world.now
        lost = sum(lost_gpu_s(busy, now) for busy in victims)
        return (*max((busy.priority, _lately(busy, now)) for busy in victims), lost, len(victims))

    def _turn(self, busy: BusyView) -> tuple[float | str, ...]:
        now = self.world.now
        return (
            busy.priority,
            _lately(busy, now),
            lost_gpu_s(busy, now),
            -busy.started_at,
            busy.placement or "",
        )

    def _enough(
        self, place: _Place, hosts: Hosts, view: JobView, found: dict[str, BusyView]
    ) -> list[BusyView]:
        """Stop in order until the whole gang fits, then spare whoever was not needed."""
        need, then = need_of(view), dict[int, Host]()
        room = place.room(need, hosts)
        within = None if hosts is None else frozenset(hosts)
        names = found if hosts is None else {name: 0 for host in hosts for name in place.on.get(host, ())}

        def shift(busy: BusyView, sign: int) -> int:
            more = 0
            for release in place.held[busy.placement or ""]:
                for host in release.hosts:
                    if within is None or host in within:
                        before = then.get(host, place.host_set.hosts[host])
                        then[host] = before.plus(release.need, sign)
                        more += then[host].ranks(need) - before.ranks(need)
            return more

        chosen: list[BusyView] = []
        for busy in sorted((found[name] for name in names if name in found), key=self._turn):
            if room >= view.nodes:
                break
            room += shift(busy, 1)
            chosen.append(busy)
        if room < view.nodes:
            return []
        for busy in reversed(chosen[:-1]):
            change = shift(busy, -1)
            if room + change >= view.nodes:
                room += change
                chosen.remove(busy)
            else:
                shift(busy, 1)
        return chosen

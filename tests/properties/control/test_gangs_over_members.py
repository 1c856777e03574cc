"""Gangs over several members through any history: no rank runs before all members have accepted, and none while another attempt of its job may.

Three hosts do what they are told, late; their words arrive late, twice and in any order but their own; hosts boot anew, die and are declared dead, reservations
run out, people interfere, and the dispatcher is restarted. What truly runs is known here, and nowhere else.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from federator.control.reports.fencing import RESERVE_WITHIN_S
from federator.kernel.clock import ManualClock
from federator.kernel.errors import Conflict
from federator.model.jobs import JobStatus
from federator.model.placements import (
    PLACEMENT_ENDED,
    Cause,
    DesiredEntry,
    Order,
    Placement,
    PlacementReport,
    PlacementStatus,
)
from federator.store.memory import MemoryStore
from federator.wire.http import Verb
from tests.support.dispatch import ADA, ADMIN, World, make_world
from tests.support.examples import examples

S = PlacementStatus
MEMBERS = ("lab", "lab-2", "lab-3")
HOLD_S = 300.0
SETTLED = frozenset(
    {JobStatus.PENDING, JobStatus.HELD, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED}
)


@dataclass
class Here:
    """A placement at a host, as it truly is."""

    epoch: int
    status: PlacementStatus
    accepted_at: float = 0.0
    runs: bool = False


@dataclass
class Host:
    """A member: what it has, what it was told last, and its words on their way."""

    name: str
    alive: bool = True
    has: dict[str, Here] = field(default_factory=dict)
    told: dict[str, DesiredEntry] = field(default_factory=dict)
    words: list[PlacementReport] = field(default_factory=list)
    said: list[PlacementReport] = field(default_factory=list)
    """All words it ever said, to be repeated."""


class Gangs(RuleBasedStateMachine):
    """A dispatcher, three hosts, and one job that is a gang of three ranks at two or three of them."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.hosts = {name: Host(name) for name in MEMBERS}
        self.seq = 0
        self.accepted: set[tuple[str, str]] = set()

    def teardown(self) -> None:
        """Faults stop: whatever was begun comes to its end, and nothing is left to be told."""
        try:
            if hasattr(self, "world"):
                self._settle()
        finally:
            self.runner.close()

    def run(self, doing: Any) -> Any:
        return self.runner.run(doing)

    @initialize()
    def begin(self) -> None:
        self.run(self._begin())

    async def _begin(self) -> None:
        clock = ManualClock()
        self.world: World = await make_world(MemoryStore(clock), clock)
        await self.world.add_site(MEMBERS[0])
        for name in MEMBERS[1:]:
            await self.world.add_member(MEMBERS[0], name)
        self.job = await self.world.submit(nodes=3, resources={"gpus": 1}, retry={"on": ["error", "preemption"], "max": 2})  # fmt: skip

    # ------------------------------------------------------------------------------------------- what the dispatcher does

    @property
    def placement(self) -> Placement | None:
        return self.world.core.records.placements.get(self.world.job(self.job).placement or "")

    @rule(members=st.permutations([*MEMBERS, *MEMBERS]).map(lambda names: tuple(names[:3])))
    def place(self, members: tuple[str, ...]) -> None:
        """As any plan may, whenever the job waits; a release, should a person have held it."""
        job = self.world.job(self.job)
        if job.status is JobStatus.HELD:
            self.run(self.world.core.intake.act_on_one(ADA, "release", self.job))
        if self.world.job(self.job).status is JobStatus.PENDING:
            usable = [name for name in members if self.hosts[name].alive]
            if usable:
                self.run(self.world.place(self.job, *(usable * 3)[:3]))

    @rule(seconds=st.sampled_from([1.0, 50.0, RESERVE_WITHIN_S, HOLD_S]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        for host in self.hosts.values():
            for name, here in host.has.items():
                if here.status is S.ACCEPTED and here.accepted_at + HOLD_S <= self.world.clock.now():
                    self._say(host, name, S.REFUSED, cause=Cause.CANNOT)

    @rule()
    def look(self) -> None:
        self.run(self.world.core.fences.step())

    @rule()
    def restart(self) -> None:
        store = self.world.core.records.store
        assert isinstance(store, MemoryStore)
        self.world = self.run(make_world(store, self.world.clock))

    @rule(verb=st.sampled_from(["hold", "requeue", "cancel"]))
    def interfere(self, verb: Verb) -> None:
        try:
            self.run(self.world.core.intake.act_on_one(ADA, verb, self.job))
        except Conflict:
            return

    # -------------------------------------------------------------------------------------------------- what hosts do

    def _living(self, choice: int) -> Host:
        living = [host for host in self.hosts.values() if host.alive]
        return living[choice % len(living)]

    @rule(choice=st.integers(0, 2))
    def hears(self, choice: int) -> None:
        """A host is told what is wanted of it now."""
        self._hear(self._living(choice))

    def _hear(self, host: Host) -> None:
        board, records = self.world.core.hub.desired, self.world.core.records
        wanted = {
            name: board.entry(placement, host.name)
            for name, placement in records.open_placements.items()
            if host.name in placement.members
        }
        for name, entry in wanted.items():
            self._follow(host, name, entry)
        host.told = wanted

    def _follow(self, host: Host, name: str, entry: DesiredEntry) -> None:
        here = host.has.get(name)
        if here is None:
            here = host.has[name] = Here(entry.epoch, S.ASSIGNED)
            if entry.order is Order.STOP:
                self._say(host, name, S.STOPPED, cause=Cause.STOPPED)
            else:
                # One that is told to run what it never accepted begins at once, as an agent does; it must not come to that.
                assert (
                    (name, host.name) in self.accepted or entry.order is Order.RESERVE or self._single(name)
                )
                self._take(host, name, here, entry)
        elif entry.order is Order.STOP and here.status not in PLACEMENT_ENDED:
            here.runs = False
            self._say(host, name, S.STOPPED, cause=Cause.STOPPED, checkpointed=True)
        elif entry.order is Order.STOP:
            host.words.append(next(word for word in reversed(host.said) if word.placement == name))
        elif entry.order is Order.RUN and here.status is S.ACCEPTED:
            self._run(host, name, here, entry)

    def _take(self, host: Host, name: str, here: Here, entry: DesiredEntry) -> None:
        if entry.order is Order.RUN:
            self._run(host, name, here, entry)
            return
        self.accepted.add((name, host.name))
        here.accepted_at = self.world.clock.now()
        self._say(host, name, S.ACCEPTED, rendezvous=f"{host.name}:4000")

    def _run(self, host: Host, name: str, here: Here, entry: DesiredEntry) -> None:
        placement = self.world.core.records.placements[name]
        if placement.parts:
            assert all((name, member) in self.accepted for member in placement.members), (
                "not all have accepted"
            )
            assert entry.rendezvous == f"{placement.members[0]}:4000"
        here.runs = True
        self._say(host, name, S.STARTING)

    def _single(self, name: str) -> bool:
        return not self.world.core.records.placements[name].parts

    @rule(choice=st.integers(0, 2), to=st.sampled_from([S.RUNNING, S.RUNNING, S.SUCCEEDED, S.FAILED, S.STOPPED, S.REFUSED]))  # fmt: skip
    def comes_along(self, choice: int, to: PlacementStatus) -> None:
        """Something happens to what a host has, of itself."""
        host = self._living(choice)
        for name, here in host.has.items():
            if to is S.REFUSED and here.status is S.ACCEPTED:
                self._say(host, name, to, cause=Cause.CANNOT, detail="no room after all")
            elif here.runs and to is S.RUNNING and here.status is S.STARTING:
                self._say(host, name, to, started_at=self.world.clock.now())
            elif here.runs and to in PLACEMENT_ENDED and to is not S.REFUSED:
                here.runs = False
                code = {S.SUCCEEDED: 0, S.FAILED: 3}.get(to)
                self._say(host, name, to, cause=Cause.EXIT, exit_code=code)

    @rule(choice=st.integers(0, 2))
    def boots_anew(self, choice: int) -> None:
        """What ran there is lost, and its agent, which remembers, says so."""
        host = self._living(choice)
        for name, here in host.has.items():
            if here.runs:
                here.runs = False
                self._say(host, name, S.LOST, cause=Cause.NODE_LOST)

    @precondition(lambda self: sum(host.alive for host in self.hosts.values()) > 1)
    @rule(choice=st.integers(0, 2))
    def dies_and_is_declared_dead(self, choice: int) -> None:
        host = self._living(choice)
        host.alive = False
        host.words.clear()
        for here in host.has.values():
            here.runs = False
        inventory = self.world.core.inventory
        if host.name in inventory.members:
            inventory.closed(host.name, inventory.members[host.name].session)
        self.run(self.world.core.sites.declare_dead(ADMIN, MEMBERS[0], "gone", member=host.name))

    def _say(self, host: Host, name: str, status: PlacementStatus, **fields: Any) -> None:
        here = host.has[name]
        here.status = status
        self.seq += 1
        word = PlacementReport(placement=name, epoch=here.epoch, seq=self.seq, status=status, at=self.world.clock.now(), **fields)  # fmt: skip
        host.words.append(word)
        host.said.append(word)

    @rule(choice=st.integers(0, 2), number=st.integers(1, 5))
    def words_arrive(self, choice: int, number: int) -> None:
        """In their order, as one connection carries them."""
        host = self._living(choice)
        words, host.words = host.words[:number], host.words[number:]
        self.run(self.world.core.progress.absorb(host.name, tuple(words)))

    @rule(choice=st.integers(0, 2), which=st.integers(0, 10**6))
    def old_words_arrive_again(self, choice: int, which: int) -> None:
        host = self._living(choice)
        delivered = host.said[: len(host.said) - len(host.words)]
        if delivered:
            self.run(self.world.core.progress.absorb(host.name, (delivered[which % len(delivered)],)))

    # ------------------------------------------------------------------------------------------------------ what must hold

    @invariant()
    def nothing_that_runs_counts_as_over(self) -> None:
        if not hasattr(self, "world"):
            return
        running = {name for host in self.hosts.values() for name, here in host.has.items() if here.runs}
        assert len(running) <= 1, "two attempts of one job"
        for name in running:
            assert not self.world.core.records.placements[name].ended
            assert not self.world.job(self.job).terminal

    @invariant()
    def what_has_lost_a_part_is_being_stopped(self) -> None:
        if hasattr(self, "world"):
            for placement in self.world.core.records.open_placements.values():
                failed = [part for part in placement.parts if part.ended and part.status is not S.SUCCEEDED]
                assert not failed or placement.order is Order.STOP

    @invariant()
    def what_is_over_is_not_waited_for(self) -> None:
        """A job that waits for its placement has one that can still bring it on."""
        if hasattr(self, "world"):
            job, placement = self.world.job(self.job), self.placement
            if job.status not in SETTLED:
                assert placement is not None
                assert not placement.ended

    def _settle(self) -> None:
        for _ in range(6):
            for host in self.hosts.values():
                if not host.alive:
                    continue
                self._hear(host)
                words, host.words = host.words, []
                self.run(self.world.core.progress.absorb(host.name, tuple(words)))
            self.nothing_that_runs_counts_as_over()
            if self.placement is not None and self.placement.order is Order.RUN:
                for choice in range(3):
                    self.comes_along(choice, S.SUCCEEDED)
            self.time_passes(RESERVE_WITHIN_S)
            self.look()
        assert self.world.job(self.job).status in SETTLED
        for placement in self.world.core.records.open_placements.values():
            unheard = [
                part.member for part in placement.parts if not part.stop_acknowledged
            ] or placement.members
            assert not any(self.hosts[name].alive for name in unheard), (
                "a living host has not been heard to the end"
            )


@pytest.mark.timeout(300)
def test_gangs_over_members() -> None:
    run_state_machine_as_test(
        Gangs,
        settings=settings(
            max_examples=examples(50),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

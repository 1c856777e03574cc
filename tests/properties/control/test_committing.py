"""Whatever happens between a plan and its commit, capacity, quotas and budgets hold – promises 2 to 6, at every single step.

Plans are kept for a while before they are committed, two of them are committed at the same moment, and broken ones are put together from several; in
between jobs are cancelled, held and finished, sites drain, vanish and come back, machines boot, bill and are taken away. After each step the
records are added up anew, by code that shares nothing with planner, checker or committer.
"""

import asyncio
import itertools
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Conflict
from federator.model.capacity import LEASE_ENDED, LeaseStatus, Offer
from federator.model.identity import Caller, Role
from federator.model.jobs import JobStatus
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.plans import Place, Plan, Rent
from federator.planning.plans.greedy import plan_greedily
from federator.ports import Transaction
from federator.store.memory import MemoryStore
from federator.wire.http import Verb
from tests.support.dispatch import OFFER, World, make_world
from tests.support.examples import examples

PER_DAY_USD = 60.0
INSTANCES = 3
QUEUE_GPUS = 5
MOST_OPEN = 12
SITES = {"north": (1, 4), "south": (1, 8)}
MORE = {"north-2": ("north", (1, 4)), "north-3": ("north", (1, 4))}
"""Members that their site has beside the first, which is called as it is."""
HOSTS = SITES | {member: hosts for member, (_, hosts) in MORE.items()}
POLICIES = f"""
apiVersion: federator/v1
kind: Queue
metadata: {{name: default}}
spec: {{max_duration: 2h, met_deadline_usd_per_gpu_hour: 20}}
---
apiVersion: federator/v1
kind: Queue
metadata: {{name: small}}
spec: {{limit: {{gpus: {QUEUE_GPUS}}}, max_duration: 2h}}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {{name: any-time}}
spec:
  when: {{mode: always}}
  limits: {{usd: {{per_day: {PER_DAY_USD}}}, instances: {INSTANCES}}}
"""
PLATFORM = Caller("pat", Role.PLATFORM)
CHEAP = msgspec.structs.replace(OFFER, name="r1/p2/on-demand", gpus=4, price_usd_h=9.0, available=9)


ROOT = Caller("root", Role.ADMIN)


class SlowStore(MemoryStore):
    """Gives everybody else a chance between what a change was computed from and its being written."""

    async def commit(self, transaction: Transaction) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().commit(transaction)


class Committing(RuleBasedStateMachine):
    """A dispatcher whose turns are taken apart: plans are made at one moment and committed at another."""

    plans = Bundle("plans")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()

    def teardown(self) -> None:
        self.runner.close()

    def run(self, doing: Any) -> Any:
        return self.runner.run(doing)

    @initialize()
    def begin(self) -> None:
        self.world: World = self.run(self._begin())

    async def _begin(self) -> World:
        clock = ManualClock()
        world = await make_world(SlowStore(clock), clock)
        world.provider.catalogue = [OFFER, CHEAP]
        for name, (nodes, gpus) in SITES.items():
            await world.add_site(name, nodes=nodes, gpus=gpus)
        for name, (site, (nodes, gpus)) in MORE.items():
            await world.add_member(site, name, nodes=nodes, gpus=gpus)
        await world.policies(POLICIES)
        await world.core.executor.poll()
        for gpus in (3, 2):
            await world.submit(resources={"gpus": gpus}, nodes=2, max_duration="1h")
        for number in range(6):
            queue = "small" if number % 3 == 2 else "default"
            late: dict[str, Any] = {"finish_within": "70m"} if number % 2 else {}
            await world.submit(resources={"gpus": 1 + number % 4}, queue=queue, max_duration="1h", **late)
        return world

    # ---------------------------------------------------------------------------------------------- plans and commits

    @rule(target=plans)
    def plan(self) -> Any:
        problem = self.run(self.world.core.turn.observe())
        plan = plan_greedily(problem)
        return plan if plan.actions else multiple()

    @rule(plan=plans)
    def commit(self, plan: Plan) -> None:
        self.run(self.world.core.turn.committer.commit(plan))

    @rule(first=plans, second=plans)
    def commit_two_at_once(self, first: Plan, second: Plan) -> None:
        """As the turn and its fast path do: the second must not count on what the first has taken."""
        committer = self.world.core.turn.committer
        self.run(_both(committer.commit(first), committer.commit(second)))

    @rule(first=plans, second=plans, times=st.integers(1, 3), shuffle=st.randoms(use_true_random=False))
    def commit_a_patchwork(self, first: Plan, second: Plan, times: int, shuffle: Any) -> None:
        """Actions of two plans, some of them twice, in any order, their revisions brought up to date as a liar would."""
        actions = [*first.actions, *second.actions] * times
        shuffle.shuffle(actions)
        records = self.world.core.records
        fresh = [
            msgspec.structs.replace(action, revision=records.revision_of(records.jobs[action.job]))
            for action in actions
            if action.job in records.jobs
        ]
        self.commit(msgspec.structs.replace(first, actions=tuple(fresh)))

    @rule(plan=plans, offer=st.sampled_from([OFFER, CHEAP]), usd=st.sampled_from([0.0, 1.0, 1e6]))
    def commit_a_rental_that_lies(self, plan: Plan, offer: Offer, usd: float) -> None:
        actions = tuple(
            msgspec.structs.replace(action, offer=offer.name, committed_usd=usd)
            for action in plan.actions
            if isinstance(action, Rent)
        )
        self.commit(msgspec.structs.replace(plan, actions=actions))

    @rule(plan=plans, members=st.lists(st.sampled_from([*SITES, *MORE]), min_size=1, max_size=4))
    def commit_gangs_laid_elsewhere(self, plan: Plan, members: list[str]) -> None:
        """Ranks at other members than planned, whatever is free there, each with the session that its member has now."""
        heard = self.world.core.inventory.members
        actions = []
        for action in plan.actions:
            if isinstance(action, Place):
                there = tuple(itertools.islice(itertools.cycle(members), len(action.members)))
                said = tuple(heard[member].session for member in there)
                actions.append(msgspec.structs.replace(action, members=there, sessions=said))
        self.commit(msgspec.structs.replace(plan, actions=tuple(actions)))

    # --------------------------------------------------------------------------------------------------------- people

    @rule(
        gpus=st.sampled_from([0, 1, 2, 4, 8]),
        nodes=st.sampled_from([1, 1, 2, 3]),
        queue=st.sampled_from(["default", "small"]),
        limit=st.sampled_from(["30m", "2h"]),
        deadline=st.sampled_from([None, "70m", "100m"]),
    )
    def submit(self, gpus: int, nodes: int, queue: str, limit: str, deadline: str | None) -> None:
        fields: dict[str, Any] = {"resources": {"gpus": gpus, "cpus": 1}, "nodes": nodes, "queue": queue, "max_duration": limit}  # fmt: skip
        if deadline is not None:
            fields["finish_within"] = deadline
        if len(self.world.core.records.open_jobs) < MOST_OPEN:
            self.run(self.world.submit(**fields))

    @rule(choice=st.integers(0, 10**6), verb=st.sampled_from(["cancel", "hold", "release", "requeue"]))
    def interfere(self, choice: int, verb: Verb) -> None:
        jobs = list(self.world.core.records.open_jobs)
        if jobs:
            self.run(self._interfere(jobs[choice % len(jobs)], verb))

    async def _interfere(self, job: str, verb: Verb) -> None:
        try:
            await self.world.core.intake.act_on_one(PLATFORM, verb, job)
        except Conflict:
            return

    @rule(by=st.sampled_from(["", "1m", "2h"]), name=st.sampled_from(sorted(SITES)))
    def drain(self, by: str, name: str) -> None:
        self.run(self.world.core.sites.drain(ROOT, name, by=by))

    @rule(name=st.sampled_from(sorted(SITES)))
    def undrain(self, name: str) -> None:
        self.run(self.world.core.sites.undrain(ROOT, name))

    @rule(by=st.sampled_from(["", "1m"]), name=st.sampled_from(sorted(SITES)))
    def evict(self, by: str, name: str) -> None:
        self.run(self.world.core.sites.evict(ROOT, name, by=by, why="a test"))

    # ---------------------------------------------------------------------------------------------------------- sites

    @rule()
    def obey(self) -> None:
        self.run(self.world.obey())

    @rule(
        choice=st.integers(0, 10**6),
        exit_code=st.sampled_from([0, 1]),
        ended=st.sampled_from(["exit", "lost"]),
    )
    def end_one(self, choice: int, exit_code: int, ended: str) -> None:
        running = [
            p
            for p in self.world.core.records.open_placements.values()
            if p.status is PlacementStatus.RUNNING and not p.ended and p.members[0] in self.world.sites
        ]
        if not running:
            return
        placement = running[choice % len(running)]
        members = [m for m in placement.members if (part := placement.part(m)) is None or not part.ended]
        site = self.world.sites[members[choice % len(members)]]
        if ended == "lost":
            self.run(site.say(placement, PlacementStatus.LOST, detail="test"))
        else:
            status = PlacementStatus.FAILED if exit_code else PlacementStatus.SUCCEEDED
            now = self.world.clock.now()
            self.run(site.say(placement, status, exit_code=exit_code, ended_at=now))

    @rule(name=st.sampled_from(sorted(HOSTS)), lag=st.booleans())
    def come_back(self, name: str, lag: bool) -> None:
        """A new session; plans that saw the old one are stale."""
        site = self.world.sites[name]
        self.world.core.inventory.closed(name, self.world.core.inventory.members[name].session)
        site.seq += 1
        if not lag:
            site.connect()

    @rule()
    def everybody_reports(self) -> None:
        for name, site in self.world.sites.items():
            if name in self.world.core.inventory.members and self.world.core.inventory.members[name].session:
                site.report()

    # --------------------------------------------------------------------------------------------------------- clouds

    @rule(minutes=st.sampled_from([1, 5, 20]))
    def pass_time(self, minutes: int) -> None:
        """The loops run meanwhile, as they do: a machine that is paid for too long would be their fault, and is looked for here too."""
        for _ in range(minutes):
            self.world.clock.advance(60.0)
            self.run(self._tick())
        self.everybody_reports()

    async def _tick(self) -> None:
        for placement in [p for p in self.world.core.records.open_placements.values() if not p.ended]:
            over = placement.started_at is not None and placement.max_duration_s is not None
            if over and self.world.clock.now() >= placement.started_at + placement.max_duration_s:  # type: ignore[operator]
                await _end_everywhere(self.world, placement)
        await self.world.core.executor.poll()
        await self.world.core.executor.step()
        for lease in self.world.leases():
            booted = lease.launched_at is not None and self.world.clock.now() >= lease.launched_at + lease.offer.delay_s  # fmt: skip
            if lease.status is LeaseStatus.BOOTING and booted and lease.member not in self.world.core.records.members:  # fmt: skip
                await self.world.boot(lease)

    @rule(sold_out=st.booleans())
    def sell_out(self, sold_out: bool) -> None:
        self.world.provider.sold_out = {OFFER.name} if sold_out else set()
        self.run(self.world.core.executor.step())

    # ---------------------------------------------------------------------------------------------------- what must hold

    def _running(self) -> list[Placement]:
        return [p for p in self.world.core.records.placements.values() if not p.ended]

    @invariant()
    def no_job_is_in_two_places(self) -> None:
        if hasattr(self, "world"):
            twice = {job: n for job, n in Counter(p.job for p in self._running()).items() if n > 1}
            assert not twice

    @invariant()
    def every_gang_is_whole_and_at_one_site(self) -> None:
        if hasattr(self, "world"):
            site_of = {le.member: le.site for le in self.world.leases()} | {m: MORE[m][0] for m in MORE}
            for placement in self._running():
                assert len(placement.members) == placement.nodes
                assert {site_of.get(member, member) for member in placement.members} == {placement.site}

    @invariant()
    def no_host_is_given_away_twice(self) -> None:
        """By hosts and not by totals: the placements of each member are packed again from nothing."""
        if not hasattr(self, "world"):
            return
        rented = {lease.member: (1, lease.offer.gpus) for lease in self.world.leases()}
        for member, ranks in _held(self._running()).items():
            nodes, gpus = (HOSTS | rented)[member]
            assert _fit(ranks, nodes, gpus), f"{member}: {ranks} do not fit on {nodes} hosts of {gpus}"

    @invariant()
    def no_queue_is_above_its_limit(self) -> None:
        if hasattr(self, "world"):
            jobs = self.world.core.records.jobs
            used = sum(p.nodes * p.gpus_per_node for p in self._running() if jobs[p.job].queue == "small")
            assert used <= QUEUE_GPUS

    @invariant()
    def no_cap_on_money_is_passed(self) -> None:
        if not hasattr(self, "world"):
            return
        today = datetime.fromtimestamp(self.world.clock.now(), UTC).date()
        counted = [
            lease
            for lease in self.world.leases()
            if lease.ended_at is None or datetime.fromtimestamp(lease.ended_at, UTC).date() >= today
        ]
        worst_usd = sum(
            lease.billed_usd if lease.status in LEASE_ENDED else max(lease.billed_usd, lease.committed_usd)
            for lease in counted
        )
        assert worst_usd <= PER_DAY_USD + 0.01
        assert sum(lease.status not in LEASE_ENDED for lease in self.world.leases()) <= INSTANCES
        for lease in self.world.leases():
            assert lease.billed_usd <= lease.committed_usd + 0.01, "what was paid is more than its worst case"

    @invariant()
    def a_place_has_its_job_and_a_job_its_place(self) -> None:
        if hasattr(self, "world"):
            for placement in self._running():
                job = self.world.core.records.jobs[placement.job]
                assert not job.terminal
                assert job.placement == placement.id or placement.order is Order.STOP
            for job in self.world.core.records.open_jobs.values():
                if job.status in (JobStatus.PLACED, JobStatus.STARTING, JobStatus.RUNNING):
                    assert not self.world.placement(job.id).ended


async def _both(*commits: Any) -> None:
    for outcome in await asyncio.gather(*commits, return_exceptions=True):
        assert not isinstance(outcome, BaseException), outcome


def _held(placements: list[Placement]) -> dict[str, list[int]]:
    """The GPUs of each rank that may still run, by member."""
    held: dict[str, list[int]] = {}
    for placement in placements:
        for member in placement.members:
            if (part := placement.part(member)) is None or not part.ended:
                held.setdefault(member, []).append(placement.gpus_per_node)
    return held


def _fit(ranks: list[int], nodes: int, gpus: int) -> bool:
    hosts = [gpus] * nodes
    for rank in sorted(ranks, reverse=True):
        fitting = [index for index, free in enumerate(hosts) if free >= rank]
        if not fitting:
            return False
        hosts[min(fitting, key=lambda index: hosts[index])] -= rank
    return True


async def _end_everywhere(world: World, placement: Placement) -> None:
    for member in dict.fromkeys(placement.members):
        site, part = world.sites.get(member), placement.part(member)
        if site and (part is None or not part.ended):
            await site.say(placement, PlacementStatus.FAILED, exit_code=1, ended_at=world.clock.now())


@pytest.mark.timeout(180)
def test_no_order_of_events_breaks_capacity_quota_or_budget() -> None:
    run_state_machine_as_test(
        Committing,
        settings=settings(
            max_examples=examples(30),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def test_of_many_rentals_at_once_no_more_are_made_than_the_cap_pays_for() -> None:
    """Budgets under concurrency: many plans of the same moment, each within the cap by itself."""
    clock = ManualClock()
    world = await make_world(SlowStore(clock), clock)
    world.provider.catalogue = [msgspec.structs.replace(CHEAP, available=20)]
    await world.policies(POLICIES.replace(f", instances: {INSTANCES}", ""))
    await world.core.executor.poll()
    plans = []
    for number in range(12):
        await world.submit(resources={"gpus": 4}, name=f"n{number}", max_duration="1h", finish_within="90m")
        plans.append(plan_greedily(await world.core.turn.observe()))
    assert sum(isinstance(action, Rent) for plan in plans for action in plan.actions) > 12
    await asyncio.gather(*(world.core.turn.committer.commit(plan) for plan in plans))
    committed_usd = sum(lease.committed_usd for lease in world.leases())
    assert 0 < committed_usd <= PER_DAY_USD
    assert committed_usd + world.leases()[0].committed_usd > PER_DAY_USD, "what the cap pays for is used"

"""Promise 6, all the way to the bill: whatever is late or hangs, no machine costs more than was committed for it, and no job more than its cap.

Machines boot late or never, their agents answer or do not, providers lose replies and take their whole teardown, and a second job joins the first.
Time passes poll by poll; the bill is the provider's own.
"""

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Unavailable
from federator.model.capacity import LEASE_ENDED, Instance, InstanceStatus, LaunchRequest
from federator.model.placements import Cause, Order, Placement, PlacementStatus
from federator.settings import LeaseSettings
from tests.support.dispatch import OFFER, FakeSite, World, make_world
from tests.support.examples import examples

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 2h}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: any-time}
spec: {when: {mode: always}, limits: {usd: {per_day: 1000}}}
"""
POLL_S = LeaseSettings().poll_s
NEVER = float("inf")
GRACE_S = 60.0
LIMITS_S = (600.0, 1500.0)
HOURS = 3


class Fate(NamedTuple):
    """What goes wrong. Seconds after the launch, the start or the order to stop; `NEVER` is allowed."""

    lost_replies: int
    boots_late_s: float
    runs_s: float
    saves_itself_s: float
    results_home_s: float
    second_after_s: float
    capped: bool


FATES = st.builds(
    Fate,
    lost_replies=st.sampled_from([0, 0, 1, 3, 1000]),
    boots_late_s=st.sampled_from([0.0, 0.0, 100.0, 900.0, NEVER]),
    runs_s=st.sampled_from([60.0, 500.0, NEVER]),
    saves_itself_s=st.sampled_from([0.0, GRACE_S, NEVER]),
    results_home_s=st.sampled_from([0.0, 90.0, NEVER]),
    second_after_s=st.sampled_from([60.0, 700.0, NEVER]),
    capped=st.booleans(),
)


class Rental:
    """A world with one machine to be rented, and what happens to it."""

    def __init__(self, world: World, fate: Fate) -> None:
        self.world, self.fate = world, fate
        self.lost = fate.lost_replies
        self.asked_at: dict[str, float] = {}
        self.over_at: dict[str, float] = {}
        self.committed_usd: dict[str, float] = {}
        self._launch = world.provider.launch
        world.provider.launch = self._lossy_launch  # type: ignore[method-assign]
        world.provider.slow_to_end = True

    async def _lossy_launch(self, request: LaunchRequest) -> Instance:
        """The machine is started; the answer may not arrive."""
        instance = await self._launch(request)
        self.lost -= 1
        if self.lost >= 0:
            raise Unavailable("the answer is lost")
        return instance

    async def tick(self) -> None:
        """One poll's time: plan, act, and let the sites do what is their fate."""
        self.world.clock.advance(POLL_S)
        await self.world.core.turn.once()
        await self.world.core.executor.poll()
        await self.world.core.executor.step()
        for lease in self.world.leases():
            if lease.status not in LEASE_ENDED:
                self.committed_usd[lease.id] = max(lease.committed_usd, self.committed_usd.get(lease.id, 0.0))
        for instance in await self.world.provider.instances("federation"):
            await self._live(instance)

    async def _live(self, instance: Instance) -> None:
        now, member = self.world.clock.now(), f"{instance.name}-0"
        if instance.status is InstanceStatus.ENDED:
            self.world.sites.pop(member, None)
            return
        lease = self.world.core.records.leases[instance.name]
        up_at = instance.launched_at + lease.offer.delay_s + self.fate.boots_late_s
        if now < up_at or lease.status in LEASE_ENDED:
            return
        site = self.world.sites.get(member) or await self.world.boot(lease)
        for placement in site.held():
            await self._work(site, placement, now)

    async def _work(self, site: FakeSite, placement: Placement, now: float) -> None:
        """Its agent holds it to its limit and grace; results take their time, or never come."""
        if placement.status is PlacementStatus.ASSIGNED:
            if placement.order is Order.RUN:
                await site.say(placement, PlacementStatus.RUNNING, started_at=now)
            return
        started_at = placement.started_at or now
        limit_at = started_at + (placement.max_duration_s or NEVER)
        if placement.order is Order.STOP or now >= limit_at:
            self.asked_at.setdefault(placement.id, min(now, limit_at))
        ends_at = started_at + self.fate.runs_s
        if placement.id in self.asked_at:
            ends_at = min(ends_at, self.asked_at[placement.id] + self.fate.saves_itself_s)
        if now >= ends_at + self.fate.results_home_s:
            await site.say(placement, PlacementStatus.STOPPED, cause=Cause.STOPPED, ended_at=now)


async def begin(fate: Fate) -> tuple[Rental, list[str]]:
    """A first job, which rents; it is capped at exactly its worst case, or not at all."""
    world = await make_world(clock=ManualClock())
    world.provider.catalogue = [OFFER]
    await world.policies(POLICIES)
    await world.core.executor.poll()
    return Rental(world, fate), [await submit(world, fate, LIMITS_S[0])]


async def submit(world: World, fate: Fate, limit_s: float) -> str:
    worst_s = OFFER.delay_s + LeaseSettings().slack_s + limit_s + GRACE_S + OFFER.teardown_s
    fields: dict[str, Any] = (
        {"max_cost": f"{worst_s * OFFER.price_usd_h / 3600 + 0.01:.2f} USD"} if fate.capped else {}
    )
    return await world.submit(
        resources={"gpus": 4}, max_duration=f"{limit_s:.0f}s", estimate=f"{limit_s:.0f}s",
        checkpoint={"grace": f"{GRACE_S:.0f}s"}, **fields,
    )  # fmt: skip


@pytest.mark.timeout(900)  # hours of polls, for each of sixty fates
@settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@example(Fate(0, 0.0, NEVER, NEVER, NEVER, NEVER, False))
@example(Fate(0, 0.0, NEVER, GRACE_S, 90.0, 60.0, True))
@example(Fate(1000, NEVER, NEVER, NEVER, NEVER, NEVER, False))
@given(fate=FATES)
async def test_no_machine_costs_more_than_was_committed(fate: Fate) -> None:
    rental, jobs = await begin(fate)
    world, began_at = rental.world, rental.world.clock.now()
    for _ in range(int(HOURS * 3600 / POLL_S)):
        await rental.tick()
        if len(jobs) == 1 and world.clock.now() >= began_at + OFFER.delay_s + fate.second_after_s:
            jobs.append(await submit(world, fate, LIMITS_S[1]))
    leases = {lease.id: lease for lease in world.leases()}
    assert leases
    for instance in await world.provider.instances("federation"):
        committed_usd = rental.committed_usd[instance.name]
        assert instance.billed_usd <= committed_usd + 1e-6, (instance, leases[instance.name])
    for job in map(world.job, jobs):
        assert job.max_cost_usd is None or job.spent_usd <= job.max_cost_usd + 1e-6

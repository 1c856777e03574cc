"""Promise 6 by the bill itself: whatever is rented, run, extended, repriced, lowered, paused or restarted, no hard budget is exceeded.

Random steps against a dispatcher on a clock that only the test moves. The truth is the provider's own reckoning of every machine, at every step; what the
dispatcher believes is not asked.
"""

from typing import Any

import msgspec
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

from federator.kernel.clock import ManualClock
from federator.model.capacity import LEASE_ENDED, InstanceStatus, LeaseStatus, Market
from federator.model.identity import Caller, Role
from federator.model.placements import Cause, Order, Placement, PlacementStatus
from federator.settings import LeaseSettings
from tests.support.dispatch import ADMIN, OFFER, FakeSite, World, make_world
from tests.support.examples import examples
from tests.support.loops import Loop

POLL_S = LeaseSettings().poll_s
GRACE_S = 60.0
OWNERS = ("ada", "bob")
OFFERS = (OFFER, msgspec.structs.replace(OFFER, name="r1/p4/spot", market=Market.SPOT, price_usd_h=9.0))
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {{name: default}}
spec: {{max_duration: 2h}}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {{name: any-time}}
spec: {{when: {{mode: always}}}}
---
apiVersion: federator/v1
kind: Budget
metadata: {{name: all}}
spec: {{usd: {{per_day: {together}}}}}
---
apiVersion: federator/v1
kind: Budget
metadata: {{name: each}}
spec: {{each: owner, usd: {{total: {each}}}}}
---
apiVersion: federator/v1
kind: Budget
metadata: {{name: job}}
spec: {{each: job, usd: {{total: 60}}}}
"""
RESERVE_S = GRACE_S + LeaseSettings().slack_s + 2 * (OFFER.teardown_s + 2 * POLL_S)
"""For so long a machine may have to be paid once it is told to go: a budget is never lowered to less than that above what is spent."""


class Federation(RuleBasedStateMachine):
    """One dispatcher at a time, its provider, and agents that are late, hang or obey."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.clock = ManualClock()
        self.world: World = self.do(make_world(clock=self.clock))
        self.world.provider.catalogue = list(OFFERS)
        self.world.provider.slow_to_end = True
        self.together, self.each = 150.0, 100.0
        self.asked_at: dict[str, float] = {}
        self.deaf: set[str] = set()
        self.rented_by: dict[str, str] = {}
        self.paid_on: dict[str, float] = {}

    def do(self, coroutine: Any) -> Any:
        """Run it to its end."""
        return self.loop.do(coroutine)

    def teardown(self) -> None:
        self.loop.close()

    # -- steps --------------------------------------------------------------------------------------------------------

    @initialize(together=st.sampled_from([40.0, 90.0, 200.0]), each=st.sampled_from([35.0, 80.0]))
    def begin(self, together: float, each: float) -> None:
        self.together, self.each = together, each
        self.apply()
        self.do(self.world.core.executor.poll())

    def apply(self) -> None:
        self.do(self.world.policies(POLICIES.format(together=self.together, each=self.each)))

    @rule(
        owner=st.sampled_from(OWNERS),
        gpus=st.sampled_from([4, 8]),
        nodes=st.sampled_from([1, 1, 2]),
        limit_min=st.sampled_from([10, 30, 90]),
        spot=st.sampled_from(["auto", "spot", "on-demand"]),
        capped=st.booleans(),
        polls=st.integers(1, 60),
    )
    def submit(
        self, owner: str, gpus: int, nodes: int, limit_min: int, spot: str, capped: bool, polls: int
    ) -> None:
        """Somebody wants GPUs, on one machine or on two at once, and time passes."""
        fields: dict[str, Any] = {"max_cost": "20 USD"} if capped else {}
        self.do(
            self.world.submit(
                Caller(name=owner, role=Role.USER), resources={"gpus": gpus}, nodes=nodes, max_duration=f"{limit_min}m",
                estimate=f"{limit_min}m", spot_policy=spot, checkpoint={"grace": f"{GRACE_S:.0f}s"}, **fields,
            )
        )  # fmt: skip
        self.pass_time(polls, concurrently=False)

    @rule(polls=st.integers(1, 120), concurrently=st.booleans())
    def let_be(self, polls: int, concurrently: bool) -> None:
        """Time passes."""
        self.pass_time(polls, concurrently=concurrently)

    def pass_time(self, polls: int, *, concurrently: bool) -> None:
        """Poll by poll."""
        for _ in range(polls):
            self.tick(concurrently=concurrently)

    @rule(
        offer=st.sampled_from([offer.name for offer in OFFERS]), factor=st.sampled_from([0.5, 0.8, 1.3, 2.0])
    )
    def reprice(self, offer: str, factor: float) -> None:
        """The market moves; what is rented on demand keeps its price, what is spot does not."""
        (now,) = [each for each in self.world.provider.catalogue if each.name == offer]
        dearest = 4 * max(each.price_usd_h for each in OFFERS)
        price = min(dearest, now.price_usd_h * factor)
        if now.market is Market.SPOT:
            self.world.provider.reprice(offer, price)
        else:
            cheaper = [
                msgspec.structs.replace(each, price_usd_h=price) if each.name == offer else each
                for each in self.world.provider.catalogue
            ]
            self.world.provider.catalogue = cheaper
        self.do(self.world.core.executor.poll())

    @rule(which=st.integers(0, 5))
    def finish(self, which: int) -> None:
        """Some work ends well."""
        running = [p for p in self.open() if p.status is PlacementStatus.RUNNING]
        if running:
            placement = running[which % len(running)]
            for member in dict.fromkeys(placement.members):
                self.do(self.world.sites[member].finish(placement.job))

    @rule(which=st.integers(0, 5))
    def hang(self, which: int) -> None:
        """An agent hears no more."""
        members = sorted(self.world.sites)
        if members:
            self.deaf.add(members[which % len(members)])

    @rule(which=st.integers(0, 5))
    def vanish(self, which: int) -> None:
        """A machine is gone."""
        living = [lease.id for lease in self.world.leases() if lease.status not in LEASE_ENDED]
        if living:
            self.world.provider.vanish(living[which % len(living)])

    @precondition(lambda self: self.together > 1)
    @rule(share=st.floats(0.0, 1.0))
    def lower(self, share: float) -> None:
        """A platform team has less to spend: anything from what cannot be undone any more to what there was."""
        reserve = RESERVE_S / 3600 * 4 * max(o.price_usd_h for o in OFFERS) * max(1, len(self.living()))
        least = self.spent_today() + reserve
        self.together = max(1.0, min(self.together, least + share * max(0.0, self.together - least)))
        self.apply()

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.do(self.world.core.policy_service.pause_burst(ADMIN, on=on))

    @rule()
    def restart(self) -> None:
        """The dispatcher is killed and another one reads the store; machines and their agents go on."""
        before = self.world
        self.world = self.do(make_world(store=before.core.records.store, clock=self.clock))  # type: ignore[arg-type]
        self.world.provider.__dict__.update(before.provider.__dict__)
        self.do(self.world.core.executor.poll())
        for site in before.sites.values():
            site.world = self.world
            site.seq += 1
            self.world.sites[site.name] = site
            site.connect()

    # -- the world's own life -----------------------------------------------------------------------------------------

    def open(self) -> list[Placement]:
        return [p for p in self.world.core.records.open_placements.values() if not p.ended]

    def living(self) -> list[str]:
        instances = self.do(self.world.provider.instances("federation"))
        return [each.name for each in instances if each.status is not InstanceStatus.ENDED]

    def tick(self, *, concurrently: bool) -> None:
        self.clock.advance(POLL_S)
        core = self.world.core
        if concurrently:
            self.do(
                self.loop.together(
                    core.turn.once(), core.executor.poll(), core.executor.step(), core.turn.once()
                )
            )
        else:
            for step in (core.turn.once, core.executor.poll, core.executor.step):
                self.do(step())
        now, ended = self.clock.now(), set()
        for lease in self.world.leases():
            self.rented_by.setdefault(lease.id, lease.owner)
            if lease.status in LEASE_ENDED:
                ended.add(lease.member)
            elif lease.status is LeaseStatus.BOOTING and now >= lease.requested_at + OFFER.delay_s:
                self.do(self.world.boot(lease))
        living = {f"{name}-0" for name in self.living()}
        for member in [name for name in self.world.sites if name in ended or name not in living]:
            self.world.sites.pop(member)
        for member, site in list(self.world.sites.items()):
            if member not in self.deaf:
                site.report()
                for placement in site.held():
                    self.work(site, placement, now)
        self.check()

    def work(self, site: FakeSite, placement: Placement, now: float) -> None:
        here = placement.part(site.name) or placement
        if here.ended:
            return
        if placement.order is Order.RESERVE:
            if here.status is PlacementStatus.ASSIGNED:
                self.do(site.say(placement, PlacementStatus.ACCEPTED))
            return
        if (
            here.status in (PlacementStatus.ASSIGNED, PlacementStatus.ACCEPTED)
            and placement.order is Order.RUN
        ):
            self.do(site.say(placement, PlacementStatus.RUNNING, started_at=now))
            return
        limit_at = (placement.started_at or now) + (placement.max_duration_s or 0.0)
        if placement.order is Order.STOP or now >= limit_at:
            asked_at = self.asked_at.setdefault(placement.id, now)
            if now >= asked_at + GRACE_S:
                told = {"cause": Cause.STOPPED, "ended_at": now, "checkpointed": True}
                self.do(site.say(placement, PlacementStatus.STOPPED, **told))

    # -- the truth ----------------------------------------------------------------------------------------------------

    def bills(self) -> dict[str, float]:
        return {each.name: each.billed_usd for each in self.do(self.world.provider.instances("federation"))}

    def spent_today(self) -> float:
        midnight = self.clock.now() // 86400 * 86400
        instances = self.do(self.world.provider.instances("federation"))
        bills = [i.billed_usd for i in instances if i.ended_at is None or i.ended_at >= midnight]
        return float(sum(bills))

    @invariant()
    def check(self) -> None:
        """No bill is above its budget."""
        assert self.spent_today() <= self.together + 1e-6
        bills = self.bills()
        for owner in OWNERS:
            mine = sum(usd for name, usd in bills.items() if self.rented_by.get(name) == owner)
            assert mine <= self.each + 1e-6, owner
        for job in self.world.core.records.jobs.values():
            assert job.spent_usd <= min(60.0, job.max_cost_usd or 60.0) + 1e-6, job


@pytest.mark.timeout(900)
def test_budgets_hold() -> None:
    run_state_machine_as_test(
        Federation,
        settings=settings(
            max_examples=examples(20),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )

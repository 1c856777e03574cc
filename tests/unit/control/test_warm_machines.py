"""How long a machine is kept when nothing runs there: while it is paid for anyway, or while renting it anew would cost more."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from federator.kernel.quantities import format_instant
from federator.model.capacity import LeaseStatus, Offer
from federator.model.jobs import JobStatus
from federator.settings import LeaseSettings
from tests.support.dispatch import OFFER, World, make_world
from tests.unit.control.test_bursting import JOB, POLICIES, until_rented

IDLE_S = LeaseSettings().idle_s


async def idle_since(offer: Offer) -> tuple[World, float]:
    """A machine of that offer whose one job has just ended, and how long it has been rented by then."""
    world = await make_world()
    world.provider.catalogue = [offer]
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    await world.core.executor.step()
    world.clock.advance(offer.delay_s)
    await world.boot(world.leases()[0])
    await world.obey()
    world.clock.advance(600)
    await world.sites[world.leases()[0].member].finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    await world.core.executor.step()
    (lease,) = world.leases()
    assert lease.idle_since_at == world.clock.now()
    return world, world.clock.now() - (lease.launched_at or 0.0)


ANEW, PAID = "renting again would cost at least as much", "it is paid for until then"


@pytest.mark.parametrize(
    ("offer", "kept_s", "why"),
    [
        (OFFER, IDLE_S, ANEW),
        (replace(OFFER, delay_s=90.0), 90.0 + OFFER.teardown_s, ANEW),
        (replace(OFFER, minimum_billing_s=3600.0), 3600.0 - OFFER.teardown_s - 600.0 - OFFER.delay_s, PAID),
        (replace(OFFER, minimum_billing_s=600.0), IDLE_S, ANEW),
    ],
    ids=["as set", "sooner rented anew than kept", "paid for an hour", "what was paid for is over"],
)
async def test_it_is_kept_for_as_long_as_that_is_worth_it(offer: Offer, kept_s: float, why: str) -> None:
    """And says so from the first moment on."""
    world, _ = await idle_since(offer)
    until = format_instant(world.clock.now() + kept_s)
    (row,) = world.core.views.leases()
    assert row.kept_because == f"it idles and is kept until {until}: {why}"
    world.clock.advance(kept_s - 1.0)
    await world.core.executor.step()
    assert world.leases()[0].status is LeaseStatus.READY
    world.clock.advance(1.0)
    await world.core.executor.step()
    await world.core.executor.step()
    assert world.leases()[0].status is not LeaseStatus.READY


async def test_one_that_is_paid_for_anyway_costs_no_more_for_being_kept() -> None:
    offer = replace(OFFER, minimum_billing_s=3600.0)
    world, rented_s = await idle_since(offer)
    world.clock.advance(3600.0 - offer.teardown_s - rented_s)
    for _ in range(4):
        await world.core.executor.poll()
        await world.core.executor.step()
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    assert lease.billed_usd == pytest.approx(offer.price_usd_h)


async def test_what_is_kept_elsewhere_is_known_to_planning() -> None:
    """A checkpoint is written every so often, and looked for and brought away as often."""
    world = await make_world()
    kept = {"uri": "file:///srv/kept", "every": "10m"}
    for name, checkpoint in (("kept", kept), ("by-default", {"uri": "file:///srv/kept"}), ("here", {})):
        await world.submit(name=name, checkpoint={"grace": "30s", **checkpoint})
    seen = {view.name: view.repeats_s for view in world.core.turn.observer.snapshot().jobs}
    assert seen == {"kept": 1200.0, "by-default": 600.0, "here": None}


def closing(at: float, where: str) -> str:
    """The policies with hours that end at that moment: of renting, or of the places that are like what was rented."""
    until = datetime.fromtimestamp(at, UTC).strftime("%H:%M")
    since = datetime.fromtimestamp(at - 12 * 3600.0, UTC).strftime("%H:%M")
    hours = f'{{from: "{since}", to: "{until}"}}'
    if where == "policy":
        return POLICIES.replace("{mode: economic}", f"{{mode: economic, window: {hours}}}")
    return f"""{POLICIES}---
apiVersion: federator/v1
kind: Calendar
metadata: {{name: night}}
spec: {{where: {{kinds: [cloud]}}, open: [{hours}]}}
"""


@pytest.mark.parametrize("where", ["policy", "calendar"])
async def test_nothing_is_kept_beyond_the_hours_in_which_it_could_be_rented(where: str) -> None:
    world, _ = await idle_since(OFFER)
    closes_at = (world.clock.now() // 60.0 + 2.0) * 60.0
    await world.policies(closing(closes_at, where))
    await world.core.executor.step()
    until = format_instant(closes_at)
    because = f"it idles and is kept until {until}: nothing like it may be rented after that"
    assert world.leases()[0].kept_because == because
    world.clock.advance(closes_at - world.clock.now())
    await world.core.executor.step()
    assert world.leases()[0].status is not LeaseStatus.READY


async def test_a_policy_that_is_off_keeps_only_what_is_paid_for() -> None:
    for offer, kept in ((OFFER, False), (replace(OFFER, minimum_billing_s=3600.0), True)):
        world, _ = await idle_since(offer)
        await world.policies(POLICIES.replace("{mode: economic}", '{mode: "off"}').rsplit("  limits", 1)[0])
        world.clock.advance(1.0)
        await world.core.executor.step()
        assert (world.leases()[0].status is LeaseStatus.READY) is kept

"""What every provider that sells spot promises: a notice before a machine is taken back, its end when the notice is over, an honest bill.

And when there is nothing left: `NoCapacity`, no machine, and the same offer again once it is back. Held against the provider in memory and
the one of real processes, on a clock that runs sixty times as fast as life.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from federator.kernel.clock import ScaledClock
from federator.kernel.errors import NoCapacity
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market, Offer
from federator.ports import Provider
from federator_providers.billing import bill_usd
from federator_providers.fake import FakeProvider
from federator_providers.local import interrupt, sell_out
from federator_providers.local import provider as local_provider
from federator_providers.local.folder import TAG
from federator_providers.local.processes import kill_tagged
from tests.support.waiting import until

SPEED = 60.0
NOTICE_S = 300.0
"""Five real seconds: time enough to look before they are over."""
SPOT = Offer(
    name="local/box/spot",
    provider="p",
    region="local",
    instance_type="box",
    market=Market.SPOT,
    model="A100",
    gpu_memory_mib=40960,
    gpus=2,
    cpus_milli=4000,
    memory_mib=16384,
    price_usd_h=1.2,
    delay_s=6.0,
    teardown_s=10.0,
    minimum_billing_s=60.0,
    available=2,
)
ON_DEMAND = msgspec.structs.replace(
    SPOT, name="local/box/on-demand", market=Market.ON_DEMAND, price_usd_h=3.6
)


@dataclass
class Cloud:
    """A provider, and the two things that its market may do."""

    provider: Provider
    interrupt: Callable[[str], None]
    sell_out: Callable[[str, bool], None]


@pytest.fixture(params=["fake", "local"])
def market(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    clock = ScaledClock(factor=SPEED, origin_at=time.time())
    if request.param == "fake":
        fake = FakeProvider("p", clock, [ON_DEMAND, SPOT], notice_s=NOTICE_S)

        def sell_out_fake(offer: str, on: bool) -> None:
            (fake.sold_out.add if on else fake.sold_out.discard)(offer)

        yield Cloud(fake, fake.interrupt, sell_out_fake)
        return
    state_dir = tmp_path / "machines"
    box = {
        "instance_type": "box",
        "market": ["on-demand", "spot"],
        "model": "A100",
        "gpu_memory": "40GiB",
        "gpus": 2,
        "cpus": 4,
        "memory": "16GiB",
        "price_usd_h": 3.6,
        "spot_price_usd_h": 1.2,
        "boot_delay": "6s",
        "max_instances": 2,
    }
    settings: dict[str, object] = {
        "state_dir": str(state_dir),
        "command": ["/bin/sh", "-c", "trap '' TERM; sleep 300"],
        "offers": [box],
        "spot": {"notice": f"{NOTICE_S:g}s"},
    }
    yield Cloud(
        local_provider("p", settings, clock),
        lambda name: interrupt(state_dir, name),
        lambda offer, on: sell_out(state_dir, offer, on=on),
    )
    for folder in state_dir.iterdir() if state_dir.exists() else ():
        kill_tagged(TAG, str(folder))


def ask(name: str, offer: Offer = SPOT) -> LaunchRequest:
    return LaunchRequest(name=name, offer=offer, federation="lab", tags={}, user_data="secret")


async def only(provider: Provider, name: str) -> Instance:
    (found,) = [each for each in await provider.instances("lab") if each.name == name]
    return found


async def until_status(provider: Provider, name: str, status: InstanceStatus) -> None:
    async def reached() -> bool:
        return (await only(provider, name)).status == status

    await until(reached)


async def test_both_markets_are_offered_at_their_own_price(market: Cloud) -> None:
    offers = {offer.name: offer for offer in await market.provider.offers()}
    assert offers == {SPOT.name: SPOT, ON_DEMAND.name: ON_DEMAND}


async def test_a_machine_has_no_notice_until_it_is_interrupted(market: Cloud) -> None:
    launched = await market.provider.launch(ask("a"))
    assert launched.reclaim_at is None
    await until_status(market.provider, "a", InstanceStatus.RUNNING)
    assert (await only(market.provider, "a")).reclaim_at is None


async def test_notice_is_given_and_then_the_machine_is_gone_and_its_bill_ends(market: Cloud) -> None:
    await market.provider.launch(ask("a"))
    await market.provider.launch(ask("b"))
    await until_status(market.provider, "a", InstanceStatus.RUNNING)
    market.interrupt("a")
    noticed = await only(market.provider, "a")
    assert noticed.status == InstanceStatus.INTERRUPTING
    assert noticed.ended_at is None
    assert noticed.reclaim_at is not None
    assert noticed.reclaim_at > noticed.launched_at + NOTICE_S
    await until_status(market.provider, "a", InstanceStatus.ENDED)
    gone = await only(market.provider, "a")
    assert gone.ended_at is not None
    assert gone.ended_at >= noticed.reclaim_at - 1.0
    assert gone.billed_usd == pytest.approx(bill_usd(SPOT, gone.launched_at, gone.ended_at))
    assert gone.reclaim_at == pytest.approx(noticed.reclaim_at, abs=1.0), "that it was taken back stays known"
    assert (await only(market.provider, "b")).ended_at is None, "another machine is none of its business"


async def test_a_second_interruption_prolongs_nothing(market: Cloud) -> None:
    await market.provider.launch(ask("a"))
    market.interrupt("a")
    first = (await only(market.provider, "a")).reclaim_at
    await asyncio.sleep(0.1)
    market.interrupt("a")
    assert (await only(market.provider, "a")).reclaim_at == pytest.approx(first, abs=1.0)


async def test_a_machine_under_notice_may_be_given_back_before_it_is_taken(market: Cloud) -> None:
    await market.provider.launch(ask("a"))
    await until_status(market.provider, "a", InstanceStatus.RUNNING)
    market.interrupt("a")
    await market.provider.terminate("a")
    await until_status(market.provider, "a", InstanceStatus.ENDED)
    gone = await only(market.provider, "a")
    assert gone.ended_at is not None
    assert gone.billed_usd == pytest.approx(bill_usd(SPOT, gone.launched_at, gone.ended_at))


async def test_what_is_sold_out_is_refused_until_it_is_back_and_the_other_market_goes_on(
    market: Cloud,
) -> None:
    market.sell_out(SPOT.name, True)
    assert {o.name: o.available for o in await market.provider.offers()} == {
        SPOT.name: 0,
        ON_DEMAND.name: 2,
    }
    with pytest.raises(NoCapacity):
        await market.provider.launch(ask("a"))
    assert await market.provider.instances("lab") == []
    await market.provider.launch(ask("b", ON_DEMAND))
    market.sell_out(SPOT.name, False)
    assert (await market.provider.launch(ask("a"))).offer == SPOT.name

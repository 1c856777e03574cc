"""What every provider that sells spot promises: a notice before a machine is taken back, its end when the notice is over, an honest bill.

And when there is nothing left: no machine, `NoCapacity` or an end that says so, and the same offer again once it is back. Held against the provider in memory, alone and with what is reserved, the
one of real processes on a clock that runs sixty times as fast as life, and the stand-ins of the clouds on a clock that moves when told to.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from federator.kernel.clock import ManualClock, ScaledClock
from federator.kernel.errors import NoCapacity
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market, Offer, Stock
from federator.ports import Provider
from federator_providers.azure import adapter as azure_adapter
from federator_providers.billing import bill_usd
from federator_providers.fake import FakeProvider
from federator_providers.local import interrupt, sell_out
from federator_providers.local.folder import TAG
from federator_providers.local.processes import kill_tagged
from federator_providers.reserved import RESERVED, Reservation, ReservedProvider
from tests.contract.providers.clouds import (
    AWS_OFFER,
    AWS_ZONES,
    AZURE_OFFER,
    AZURE_ZONES,
    BOTH,
    GCE_OFFER,
    GCE_ZONES,
    KUBERNETES_OFFER,
    OFFER,
    make_aws,
    make_azure,
    make_gce,
    make_kubernetes,
    make_local,
)
from tests.support.waiting import until
from tests.testbeds.azure import AzureServer
from tests.testbeds.ec2 import Ec2Proxy
from tests.testbeds.gce import GceServer
from tests.testbeds.kubernetes.virtual import VirtualCluster

SPEED = 60.0
NOTICE_S = 300.0
"""Five real seconds of the processes' clock: time enough to look before they are over."""
SPOT_USD_H = 1.2
NOTICING = ("fake", "reserved", "local", "aws", "gce", "kubernetes")
"""Whose listings show a notice; Azure tells only the machine itself."""
ZONED = ("fake", "reserved", "aws", "gce", "azure")


def as_spot(offer: Offer) -> Offer:
    name = offer.name.replace("on-demand", "spot")
    return msgspec.structs.replace(offer, name=name, market=Market.SPOT, price_usd_h=SPOT_USD_H)


@dataclass
class Cloud:
    """A provider, what it offers, and what its market may do."""

    provider: Provider
    on_demand: Offer
    spot: Offer
    interrupt: Callable[[str], Awaitable[None]]
    """Give notice."""
    sell_out: Callable[[bool], None]
    """Have no spot machines, or have them again."""
    take_back: Callable[[str], Awaitable[None]] | None = None
    """What happens when the notice is over; None: it happens by itself."""
    clock: ManualClock | None = None
    """None: time passes by itself."""
    notice_s: float = NOTICE_S
    zones: tuple[str, ...] = ()
    """Two, in the order of the settings; empty: it knows none."""

    async def until_over(self, name: str) -> None:
        """Let the notice come to its end."""
        if self.clock:
            self.clock.advance(self.notice_s)
        if self.take_back:
            await self.take_back(name)
        await self.until_status(name, InstanceStatus.ENDED)

    async def until_runs(self, name: str) -> None:
        """Let it boot."""
        if self.clock:
            self.clock.advance(self.spot.delay_s)
        await self.until_status(name, InstanceStatus.RUNNING)

    async def until_status(self, name: str, status: InstanceStatus) -> None:
        async def reached() -> bool:
            return (await only(self.provider, name)).status == status

        await until(reached)

    def ask(
        self, name: str, offer: Offer | None = None, interruptions_h: dict[str, float] | None = None
    ) -> Awaitable[Instance]:
        wanted = offer or self.spot
        return self.provider.launch(LaunchRequest(name, wanted, "lab", {}, "secret", interruptions_h or {}))


def in_memory(clock: ManualClock, *, reserved: bool) -> Cloud:
    on_demand, spot = OFFER, as_spot(OFFER)
    zones = "first", "second"
    fake = FakeProvider("p", clock, [on_demand, spot], notice_s=NOTICE_S, zones=zones)
    provider: Provider = fake
    sold = spot.name
    if reserved:
        provider = ReservedProvider(fake, clock, {sold: Reservation(2, SPOT_USD_H, None)})
        spot = msgspec.structs.replace(
            spot, name=sold + RESERVED, minimum_billing_s=0.0, price_source="2 reserved"
        )

    async def give_notice(name: str) -> None:
        fake.interrupt(name)

    return Cloud(
        provider,
        on_demand,
        spot,
        give_notice,
        lambda on: (fake.sold_out.add if on else fake.sold_out.discard)(sold),
        clock=clock,
        zones=zones,
    )


@pytest.fixture
def fake(clock: ManualClock) -> Cloud:
    return in_memory(clock, reserved=False)


@pytest.fixture
async def reserved(clock: ManualClock) -> Cloud:
    made = in_memory(clock, reserved=True)
    await made.provider.instances("lab")  # it offers nothing before it knows what runs
    return made


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Cloud]:
    state_dir, on_demand = tmp_path / "machines", msgspec.structs.replace(OFFER, delay_s=6.0)
    made = make_local(
        state_dir,
        ScaledClock(factor=SPEED, origin_at=time.time()),
        BOTH | {"boot_delay": "6s"},
        command=["/bin/sh", "-c", "trap '' TERM; sleep 300"],
        spot={"notice": f"{NOTICE_S:g}s"},
    )

    async def give_notice(name: str) -> None:
        interrupt(state_dir, name)

    spot = as_spot(on_demand)
    yield Cloud(made, on_demand, spot, give_notice, lambda on: sell_out(state_dir, spot.name, on=on))
    for folder in state_dir.iterdir() if state_dir.exists() else ():
        kill_tagged(TAG, str(folder))


@pytest.fixture
async def aws(ec2: Ec2Proxy, clock: ManualClock) -> AsyncIterator[Cloud]:
    async def give_notice(name: str) -> None:
        ec2.give_notice(await ec2.id_of(name))

    async def take_back(name: str) -> None:
        await ec2.take_back(await ec2.id_of(name))

    def sell(on: bool) -> None:
        ec2.no_spot = on

    made = make_aws(ec2.url, clock, BOTH)
    yield Cloud(made, AWS_OFFER, as_spot(AWS_OFFER), give_notice, sell, take_back, clock, 120.0, AWS_ZONES)
    await made.close()


@pytest.fixture
async def gce(gce_server: GceServer, clock: ManualClock) -> AsyncIterator[Cloud]:
    async def give_notice(name: str) -> None:
        gce_server.preempt("us-central1-a", name)

    async def take_back(name: str) -> None:
        gce_server.take_back("us-central1-a", name)

    def sell(on: bool) -> None:
        gce_server.no_spot = on

    made = make_gce(gce_server, clock, BOTH)
    yield Cloud(made, GCE_OFFER, as_spot(GCE_OFFER), give_notice, sell, take_back, clock, 30.0, GCE_ZONES)
    await made.close()


@pytest.fixture
async def azure(
    azure_server: AzureServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cloud]:
    monkeypatch.setattr(azure_adapter, "LOOK_EVERY_S", 0.01)

    async def give_notice(name: str) -> None:
        """Only the machine hears of it."""

    async def take_back(name: str) -> None:
        azure_server.evict(name)

    def sell(on: bool) -> None:
        azure_server.no_spot = on

    made = make_azure(azure_server, clock, BOTH)
    stock = Stock("all spot", limit=8, each=4, used=0, unit="vCPUs")
    spot = msgspec.structs.replace(as_spot(AZURE_OFFER), stock=stock)
    yield Cloud(made, AZURE_OFFER, spot, give_notice, sell, take_back, clock, 30.0, AZURE_ZONES)
    await made.close()


@pytest.fixture
async def kubernetes(virtual_cluster: VirtualCluster, clock: ManualClock) -> AsyncIterator[Cloud]:
    pool: dict[str, object] = {"market": "spot", "price_usd_h": SPOT_USD_H, "node_selector": {"pool": "spot"}}

    async def give_notice(name: str) -> None:
        virtual_cluster.drain(name)

    async def take_back(name: str) -> None:
        del virtual_cluster.pods[name]

    def sell(on: bool) -> None:
        virtual_cluster.without_nodes = {"spot"} if on else set()

    made = make_kubernetes(virtual_cluster, clock, (pool,))
    spot = as_spot(KUBERNETES_OFFER)
    yield Cloud(made, KUBERNETES_OFFER, spot, give_notice, sell, take_back, clock, notice_s=120.0)
    await made.close()


@pytest.fixture(params=[*NOTICING, "azure"])
def market(request: pytest.FixtureRequest) -> Cloud:
    found: Cloud = request.getfixturevalue(request.param)
    return found


async def only(provider: Provider, name: str) -> Instance:
    (found,) = [each for each in await provider.instances("lab") if each.name == name]
    return found


async def test_both_markets_are_offered_at_their_own_price(market: Cloud) -> None:
    offers = {offer.name: offer for offer in await market.provider.offers()}
    for each in (market.spot, market.on_demand):
        assert offers[each.name] == each


async def test_a_machine_has_no_notice_until_it_is_interrupted(market: Cloud) -> None:
    launched = await market.ask("a")
    assert launched.reclaim_at is None
    await market.until_runs("a")
    assert (await only(market.provider, "a")).reclaim_at is None


async def test_a_machine_that_is_taken_back_is_gone_its_bill_ends_and_why_stays_known(market: Cloud) -> None:
    await market.ask("a")
    await market.ask("b")
    await market.until_runs("a")
    await market.interrupt("a")
    await market.until_over("a")
    gone = await only(market.provider, "a")
    assert gone.ended_at is not None
    assert gone.billed_usd == pytest.approx(bill_usd(market.spot, gone.launched_at, gone.ended_at))
    assert gone.reclaim_at == pytest.approx(gone.ended_at, abs=2 * SPEED), (
        "that it was taken back stays known"
    )
    assert (await only(market.provider, "b")).ended_at is None, "another machine is none of its business"


@pytest.mark.parametrize("market", NOTICING, indirect=True)
async def test_notice_is_given_before_a_machine_is_taken_back(market: Cloud) -> None:
    await market.ask("a")
    await market.until_runs("a")
    await market.interrupt("a")
    noticed = await only(market.provider, "a")
    assert noticed.status == InstanceStatus.INTERRUPTING
    assert noticed.ended_at is None
    assert noticed.reclaim_at is not None
    assert noticed.reclaim_at > noticed.launched_at + market.notice_s
    await market.until_over("a")
    gone = await only(market.provider, "a")
    assert gone.ended_at is not None
    assert gone.ended_at >= noticed.reclaim_at - 1.0
    assert gone.reclaim_at == pytest.approx(noticed.reclaim_at, abs=1.0)


@pytest.mark.parametrize("market", NOTICING, indirect=True)
async def test_a_second_interruption_prolongs_nothing(market: Cloud) -> None:
    await market.ask("a")
    await market.interrupt("a")
    first = (await only(market.provider, "a")).reclaim_at
    await market.interrupt("a")
    assert (await only(market.provider, "a")).reclaim_at == pytest.approx(first, abs=1.0)


@pytest.mark.parametrize("market", ZONED, indirect=True)
async def test_a_machine_is_rented_in_the_zone_where_fewest_are_taken_back_and_says_where_it_is(
    market: Cloud,
) -> None:
    first, second = market.zones
    assert (await market.ask("a")).zone == first
    assert (await market.ask("b", interruptions_h={first: 0.2, "": 0.1})).zone == second
    assert {each.name: each.zone for each in await market.provider.instances("lab")} == {
        "a": first,
        "b": second,
    }
    await market.interrupt("a")
    await market.until_over("a")
    assert (await only(market.provider, "a")).zone == first, "that is where it was taken back"


async def test_a_machine_under_notice_may_be_given_back_before_it_is_taken(market: Cloud) -> None:
    await market.ask("a")
    await market.until_runs("a")
    await market.interrupt("a")
    await market.provider.terminate("a")
    await market.until_status("a", InstanceStatus.ENDED)
    gone = await only(market.provider, "a")
    assert gone.ended_at is not None
    assert gone.billed_usd == pytest.approx(bill_usd(market.spot, gone.launched_at, gone.ended_at))


async def test_what_is_sold_out_is_refused_until_it_is_back_and_the_other_market_goes_on(
    market: Cloud,
) -> None:
    market.sell_out(True)
    await refused(market, "a")
    await market.ask("b", market.on_demand)
    market.sell_out(False)
    assert (await market.ask("c")).offer == market.spot.name
    assert {each.name for each in await market.provider.instances("lab") if each.ended_at is None} == {
        "b",
        "c",
    }


async def refused(market: Cloud, name: str) -> None:
    """At once, or later by an end that says so and costs nothing."""
    try:
        await market.ask(name)
    except NoCapacity:
        assert await market.provider.instances("lab") == []
        return
    assert market.clock, "only a stand-in tells it late"
    market.clock.advance(2 * market.spot.delay_s + 1)
    told = await only(market.provider, name)
    assert (told.status, told.billed_usd) == (InstanceStatus.ENDED, 0.0)
    assert told.no_capacity

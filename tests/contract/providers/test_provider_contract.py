"""What every provider promises (`federator.ports.Provider`): held against the one in memory, alone and behind what decorates providers, the one of real processes, machines of a list, EC2 as moto speaks it, and a Compute Engine, an Azure and a Kubernetes of the tests' own.

All run on a clock that moves only when told to, so bills are exact.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import NoCapacity, NotFound
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Offer
from federator.ports import Provider
from federator_providers.fake import FakeProvider
from federator_providers.limits import LimitedProvider
from federator_providers.local.folder import TAG
from federator_providers.local.processes import kill_tagged
from federator_providers.reserved import RESERVED, Reservation, ReservedProvider
from tests.contract.providers.clouds import (
    AWS_OFFER,
    AZURE_OFFER,
    GCE_OFFER,
    KUBERNETES_OFFER,
    OFFER,
    PRICE_USD_H,
    SSH_OFFER,
    make_aws,
    make_azure,
    make_gce,
    make_kubernetes,
    make_local,
    make_ssh,
)
from tests.support.waiting import until
from tests.testbeds.azure import AzureServer
from tests.testbeds.ec2 import Ec2Proxy
from tests.testbeds.gce import GceServer
from tests.testbeds.kubernetes.virtual import VirtualCluster

RESERVED_OFFER = msgspec.structs.replace(
    OFFER, name=OFFER.name + RESERVED, minimum_billing_s=0.0, price_source="2 reserved"
)


@pytest.fixture
async def kubernetes(virtual_cluster: VirtualCluster, clock: ManualClock) -> AsyncIterator[Provider]:
    made = make_kubernetes(virtual_cluster, clock)
    yield made
    await made.close()


@pytest.fixture
async def azure(azure_server: AzureServer, clock: ManualClock) -> AsyncIterator[Provider]:
    made = make_azure(azure_server, clock)
    yield made
    await made.close()


@pytest.fixture
async def gce(gce_server: GceServer, clock: ManualClock) -> AsyncIterator[Provider]:
    made = make_gce(gce_server, clock)
    yield made
    await made.close()


@pytest.fixture
async def aws(ec2: Ec2Proxy, clock: ManualClock) -> AsyncIterator[Provider]:
    made = make_aws(ec2.url, clock)
    yield made
    await made.close()


@pytest.fixture
async def reserved(clock: ManualClock) -> Provider:
    """All that there is has been paid for."""
    inner = FakeProvider("p", clock, [OFFER])
    made = ReservedProvider(inner, clock, {OFFER.name: Reservation(2, PRICE_USD_H, None)})
    await made.instances("lab")  # it offers nothing before it knows what runs
    return made


@pytest.fixture(params=["fake", "limited", "reserved", "local", "ssh", "aws", "gce", "azure", "kubernetes"])
def provider(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Provider]:
    if request.param == "local":
        yield make_local(tmp_path / "machines", clock)
        for folder in (tmp_path / "machines").glob("*"):
            kill_tagged(TAG, str(folder))
    elif request.param == "ssh":
        yield make_ssh(tmp_path, clock)
        for folder in (*tmp_path.glob("one/*"), *tmp_path.glob("two/*")):
            kill_tagged(TAG, str(folder))
    elif request.param in ("reserved", "aws", "gce", "azure", "kubernetes"):
        yield request.getfixturevalue(request.param)
    elif request.param == "limited":
        inner = FakeProvider("p", clock, [OFFER])
        yield LimitedProvider(inner, clock, calls_per_s=1000.0, calls_at_once=1000)
    else:
        yield FakeProvider("p", clock, [OFFER])


@pytest.fixture
def offer(request: pytest.FixtureRequest) -> Offer:
    """The one thing that the provider under test rents."""
    kind = request.node.callspec.params["provider"]
    own = {
        "aws": AWS_OFFER,
        "gce": GCE_OFFER,
        "azure": AZURE_OFFER,
        "ssh": SSH_OFFER,
        "kubernetes": KUBERNETES_OFFER,
        "reserved": RESERVED_OFFER,
    }
    return own.get(kind, OFFER)


async def offered(provider: Provider, offer: Offer) -> Offer:
    """As it is now."""
    (found,) = [each for each in await provider.offers() if each.name == offer.name]
    return found


def ask(offer: Offer, name: str, federation: str = "lab") -> LaunchRequest:
    return LaunchRequest(
        name=name, offer=offer, federation=federation, tags={"lease": name}, user_data="secret"
    )


async def only(provider: Provider, name: str) -> Instance:
    (found,) = [each for each in await provider.instances("lab") if each.name == name]
    return found


async def end(provider: Provider, name: str) -> None:
    await provider.terminate(name)

    async def ended() -> bool:
        return (await only(provider, name)).status == InstanceStatus.ENDED

    await until(ended)


async def test_a_repeated_launch_finds_the_first_machine(
    provider: Provider, offer: Offer, clock: ManualClock
) -> None:
    first = await provider.launch(ask(offer, "a"))
    clock.advance(30)
    again = await provider.launch(ask(offer, "a"))
    assert (again.name, again.launched_at) == (first.name, first.launched_at)
    assert len(await provider.instances("lab")) == 1


async def test_launches_at_once_under_one_name_make_one_machine(provider: Provider, offer: Offer) -> None:
    answers = await asyncio.gather(*(provider.launch(ask(offer, "a")) for _ in range(3)))
    assert len({each.launched_at for each in answers}) == 1
    assert [each.name for each in await provider.instances("lab")] == ["a"]
    assert (await offered(provider, offer)).available == 1


async def test_a_name_is_not_launched_again_after_its_end(provider: Provider, offer: Offer) -> None:
    first = await provider.launch(ask(offer, "a"))
    await end(provider, "a")
    again = await provider.launch(ask(offer, "a"))
    assert again.status == InstanceStatus.ENDED
    assert again.launched_at == first.launched_at
    assert again.ended_at is not None


async def test_listing_shows_the_federations_own_machines_with_their_tags(
    provider: Provider, offer: Offer
) -> None:
    await provider.launch(ask(offer, "a", federation="lab"))
    await provider.launch(ask(offer, "b", federation="other"))
    (mine,) = await provider.instances("lab")
    assert mine.name == "a"
    assert mine.offer == offer.name
    assert mine.tags == {"lease": "a", "federation": "lab"}
    assert [each.name for each in await provider.instances("other")] == ["b"]
    assert await provider.instances("nobody") == []


async def test_a_machine_boots_and_then_runs(provider: Provider, offer: Offer, clock: ManualClock) -> None:
    launched = await provider.launch(ask(offer, "a"))
    assert launched.launched_at == clock.now()
    assert launched.ended_at is None
    clock.advance(offer.delay_s)

    async def runs() -> bool:
        return (await only(provider, "a")).status == InstanceStatus.RUNNING

    await until(runs)


async def test_ending_is_idempotent_and_an_unknown_name_is_fine(provider: Provider, offer: Offer) -> None:
    await provider.terminate("never-launched")
    await provider.launch(ask(offer, "a"))
    await end(provider, "a")
    at = (await only(provider, "a")).ended_at
    await provider.terminate("a")
    assert (await only(provider, "a")).ended_at == at
    assert await provider.instances("nobody") == []


async def test_an_ended_machine_is_listed_for_an_hour_at_least(
    provider: Provider, offer: Offer, clock: ManualClock
) -> None:
    await provider.launch(ask(offer, "a"))
    await end(provider, "a")
    clock.advance(3600)
    assert (await only(provider, "a")).status == InstanceStatus.ENDED


async def test_the_bill_starts_at_the_minimum_grows_by_the_second_and_stops(
    provider: Provider, offer: Offer, clock: ManualClock
) -> None:
    minimum_usd = offer.minimum_billing_s * PRICE_USD_H / 3600
    assert (await provider.launch(ask(offer, "a"))).billed_usd == pytest.approx(minimum_usd)
    clock.advance(59)
    assert (await only(provider, "a")).billed_usd == pytest.approx(max(0.059, minimum_usd))
    clock.advance(60)
    assert (await only(provider, "a")).billed_usd == pytest.approx(0.119)
    await end(provider, "a")
    clock.advance(1000)
    ended = await only(provider, "a")
    assert ended.ended_at == ended.launched_at + 119
    assert ended.billed_usd == pytest.approx(0.119)


async def test_offers_are_stable_but_for_what_is_left(provider: Provider, offer: Offer) -> None:
    before = await provider.offers()
    assert await offered(provider, offer) == offer
    await provider.launch(ask(offer, "a"))
    assert (await offered(provider, offer)).available == 1
    await end(provider, "a")
    assert await provider.offers() == before


async def test_more_than_there_is_has_no_capacity_until_one_ends(provider: Provider, offer: Offer) -> None:
    await provider.launch(ask(offer, "a"))
    await provider.launch(ask(offer, "b"))
    with pytest.raises(NoCapacity):
        await provider.launch(ask(offer, "c"))
    assert {each.name for each in await provider.instances("lab")} == {"a", "b"}
    await provider.launch(ask(offer, "a"))  # no new machine, so no capacity is needed
    await end(provider, "b")
    assert (await provider.launch(ask(offer, "c"))).status != InstanceStatus.ENDED


async def test_an_offer_that_does_not_exist_is_refused(provider: Provider, offer: Offer) -> None:
    ghost = LaunchRequest(
        name="a",
        offer=msgspec.structs.replace(offer, name="ghost"),
        federation="lab",
        tags={},
        user_data="",
    )
    with pytest.raises(NotFound, match="ghost"):
        await provider.launch(ghost)
    assert await provider.instances("lab") == []


async def test_machines_outlive_the_provider_object(provider: Provider, offer: Offer) -> None:
    await provider.launch(ask(offer, "a"))
    await provider.close()
    assert (await only(provider, "a")).ended_at is None

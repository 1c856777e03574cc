"""What every provider promises (`federator.ports.Provider`): held against the one in memory, the one of real processes, machines of a list, EC2 as moto speaks it, and a Compute Engine, an Azure and a Kubernetes of the tests' own.

All run on a clock that moves only when told to, so bills are exact.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import NoCapacity, NotFound
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market, Offer
from federator.ports import Provider
from federator_providers.aws import provider as aws_provider
from federator_providers.azure import provider as azure_provider
from federator_providers.fake import FakeProvider
from federator_providers.gce import provider as gce_provider
from federator_providers.kubernetes import provider as kubernetes_provider
from federator_providers.limits import LimitedProvider
from federator_providers.local import provider as local_provider
from federator_providers.local.folder import TAG
from federator_providers.local.processes import kill_tagged
from federator_providers.ssh import SshProvider
from federator_providers.ssh.address import Address
from federator_providers.ssh.host import Answer, Question, answer
from federator_providers.ssh.settings import read_settings
from tests.support.waiting import until
from tests.testbeds.azure import IMAGE as AZURE_IMAGE
from tests.testbeds.azure import SUBNET, SUBSCRIPTION, AzureServer
from tests.testbeds.ec2 import IMAGE, Ec2Proxy
from tests.testbeds.gce import IMAGE as GCE_IMAGE
from tests.testbeds.gce import PROJECT, GceServer
from tests.testbeds.kubernetes.virtual import VirtualCluster

PRICE_USD_H = 3.6  # a tenth of a cent a second
OFFER = Offer(
    name="local/box/on-demand",
    provider="p",
    region="local",
    instance_type="box",
    market=Market.ON_DEMAND,
    model="A100",
    gpu_memory_mib=40960,
    gpus=2,
    cpus_milli=4000,
    memory_mib=16384,
    price_usd_h=PRICE_USD_H,
    delay_s=120.0,
    teardown_s=10.0,
    minimum_billing_s=60.0,
    available=2,
)

AWS_OFFER = msgspec.structs.replace(
    OFFER,
    name="us-east-1/g5.xlarge/on-demand",
    region="us-east-1",
    instance_type="g5.xlarge",
    model="A10G",
    gpu_memory_mib=24576,
    gpus=1,
    teardown_s=60.0,
    egress_usd_per_gib=0.09,
)


GCE_OFFER = msgspec.structs.replace(
    OFFER,
    name="us-central1/g2-standard-4/on-demand",
    region="us-central1",
    instance_type="g2-standard-4",
    model="L4",
    gpu_memory_mib=24576,
    gpus=1,
    teardown_s=60.0,
    egress_usd_per_gib=0.12,
)

AZURE_OFFER = msgspec.structs.replace(
    OFFER,
    name="eastus/Standard_NC4as_T4_v3/on-demand",
    region="eastus",
    instance_type="Standard_NC4as_T4_v3",
    model="T4",
    gpu_memory_mib=16384,
    gpus=1,
    memory_mib=28672,
    teardown_s=60.0,
    egress_usd_per_gib=0.087,
)

SSH_OFFER = msgspec.structs.replace(OFFER, name="ssh/box/on-demand", region="ssh")
KUBERNETES_OFFER = msgspec.structs.replace(OFFER, name="kubernetes/box/on-demand", region="kubernetes")
BOX = {
    "instance_type": "box",
    "model": "A100",
    "gpu_memory": "40GiB",
    "gpus": 2,
    "cpus": 4,
    "memory": "16GiB",
    "price_usd_h": PRICE_USD_H,
    "boot_delay": "120s",
}


class Homes:
    """Machines of which each has a folder here. They are asked in threads, in place of over a connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def ask(self, machine: Address, question: Question) -> Answer:
        """What the program at the machine answers."""
        at_home = msgspec.structs.replace(question, state_dir=str(self.folder / machine.host))
        return await asyncio.to_thread(answer, at_home)


def make_ssh(folder: Path, clock: ManualClock) -> Provider:
    box = BOX | {"machines": ["one", "two"]}
    settings = {"command": ["/bin/sh", "-c", "sleep 300"], "offers": [box]}
    return SshProvider("p", read_settings("p", settings), clock, Homes(folder))


def make_local(state_dir: Path, clock: ManualClock) -> Provider:
    box = BOX | {"max_instances": 2}
    settings: dict[str, object] = {
        "state_dir": str(state_dir),
        "command": ["/bin/sh", "-c", "sleep 300"],
        "offers": [box],
    }
    return local_provider("p", settings, clock)


def make_aws(url: str, clock: ManualClock) -> Provider:
    box = {"instance_type": "g5.xlarge", "price_usd_h": PRICE_USD_H, "boot_delay": "120s", "max_instances": 2}
    settings: dict[str, object] = {
        "region": "us-east-1",
        "zones": ["us-east-1a"],
        "image": IMAGE,
        "offers": [box],
        "endpoint_url": url,
    }
    return aws_provider("p", settings, clock)


def make_gce(server: GceServer, clock: ManualClock) -> Provider:
    box = {
        "instance_type": "g2-standard-4",
        "price_usd_h": PRICE_USD_H,
        "boot_delay": "120s",
        "max_instances": 2,
    }
    settings: dict[str, object] = {
        "project": PROJECT,
        "region": "us-central1",
        "zones": ["us-central1-a"],
        "image": GCE_IMAGE,
        "offers": [box],
        "endpoint_url": server.url,
    }
    return gce_provider("p", settings, clock)


def make_azure(server: AzureServer, clock: ManualClock) -> Provider:
    box = {"price_usd_h": PRICE_USD_H, "boot_delay": "120s", "max_instances": 2}
    settings: dict[str, object] = {
        "subscription": SUBSCRIPTION,
        "resource_group": "burst",
        "region": "eastus",
        "image": AZURE_IMAGE,
        "subnet": SUBNET,
        "ssh_public_key": "ssh-ed25519 AAAA",
        "offers": [box | {"instance_type": "Standard_NC4as_T4_v3"}],
        "endpoint_url": server.url,
    }
    return azure_provider("p", settings, clock)


def make_kubernetes(cluster: VirtualCluster, clock: ManualClock) -> Provider:
    settings: dict[str, object] = {
        "kubeconfig": str(cluster.kubeconfig),
        "image": "federator.test/agent:1",
        "scale_down": "0s",
        "offers": [BOX | {"max_instances": 2}],
    }
    return kubernetes_provider("p", settings, clock)


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


@pytest.fixture(params=["fake", "limited", "local", "ssh", "aws", "gce", "azure", "kubernetes"])
def provider(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Provider]:
    if request.param == "local":
        yield make_local(tmp_path / "machines", clock)
        for folder in (tmp_path / "machines").glob("*"):
            kill_tagged(TAG, str(folder))
    elif request.param == "ssh":
        yield make_ssh(tmp_path, clock)
        for folder in (*tmp_path.glob("one/*"), *tmp_path.glob("two/*")):
            kill_tagged(TAG, str(folder))
    elif request.param in ("aws", "gce", "azure", "kubernetes"):
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
    }
    return own.get(kind, OFFER)


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
    assert (await provider.offers())[0].available == 1


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
    assert (await provider.launch(ask(offer, "a"))).billed_usd == pytest.approx(0.060)
    clock.advance(59)
    assert (await only(provider, "a")).billed_usd == pytest.approx(0.060)
    clock.advance(60)
    assert (await only(provider, "a")).billed_usd == pytest.approx(0.119)
    await end(provider, "a")
    clock.advance(1000)
    ended = await only(provider, "a")
    assert ended.ended_at == ended.launched_at + 119
    assert ended.billed_usd == pytest.approx(0.119)


async def test_offers_are_stable_but_for_what_is_left(provider: Provider, offer: Offer) -> None:
    (before,) = await provider.offers()
    assert before == offer
    await provider.launch(ask(offer, "a"))
    (during,) = await provider.offers()
    assert during.available == 1
    await end(provider, "a")
    assert await provider.offers() == [before]


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

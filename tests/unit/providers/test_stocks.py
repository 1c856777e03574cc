"""Offers that draw on one stock: what one of them takes, the others have no more."""

import pytest
from msgspec.structs import replace

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Invalid, NoCapacity
from federator.model.capacity import LaunchRequest, Market, Offer, Stock
from federator_providers.aws.quotas import counted
from federator_providers.aws.settings import QuotaSettings
from federator_providers.aws.settings import read_settings as read_aws
from federator_providers.fake import FakeProvider
from federator_providers.local.settings import read_settings as read_local

GPUS = Stock("L4", limit=10, unit="GPUs")
ONE = Offer("one", "p", "r", "t", Market.ON_DEMAND, "L4", 24576, 1, 4000, 16384, 1.0, 100.0, available=9)
CATALOGUE = [
    replace(ONE, stock=GPUS),
    replace(ONE, name="four", gpus=4, stock=replace(GPUS, each=4)),
    replace(ONE, name="apart"),
]


def ask(name: str, offer: int) -> LaunchRequest:
    return LaunchRequest(name, CATALOGUE[offer], "lab", {}, "")


async def test_what_is_rented_under_one_name_is_gone_under_the_other() -> None:
    fake = FakeProvider("p", ManualClock(), CATALOGUE)
    assert [offer.to_be_had for offer in await fake.offers()] == [9, 2, 9]
    await fake.launch(ask("a", 1))
    await fake.launch(ask("b", 1))
    one, four, apart = await fake.offers()
    assert (one.to_be_had, four.to_be_had, apart.to_be_had) == (2, 0, 9)
    assert one.stock == replace(GPUS, used=8)
    with pytest.raises(NoCapacity, match="L4 has 2 of 10 GPUs left, and four takes 4") as told:
        await fake.launch(ask("c", 1))
    assert (told.value.stock, told.value.each) == ("L4", 4)
    await fake.launch(ask("c", 0))
    await fake.terminate("a")
    assert [offer.to_be_had for offer in await fake.offers()] == [5, 1, 9]


async def test_the_limit_of_an_offer_of_its_own_holds_beside_its_stock() -> None:
    fake = FakeProvider("p", ManualClock(), [replace(CATALOGUE[0], available=1)])
    await fake.launch(ask("a", 0))
    with pytest.raises(NoCapacity, match="all machines of one") as told:
        await fake.launch(ask("b", 0))
    assert told.value.stock == ""


def test_what_others_use_of_a_stock_stays_used() -> None:
    offer = replace(ONE, stock=replace(GPUS, used=12))
    assert (offer.to_be_had, GPUS.left) == (0, 10)


def test_a_local_cloud_counts_gpus_of_a_model() -> None:
    given = {
        "state_dir": "/x",
        "command": ["x"],
        "gpu_quotas": {"A100": 8},
        "offers": [
            {"instance_type": "a2-highgpu-1g", "market": ["on-demand", "spot"]},
            {"instance_type": "p4d.24xlarge"},
            {"instance_type": "g6.xlarge"},
        ],
    }
    small, spot, large, other = read_local("cloud", given).offers
    assert small.stock == spot.stock == Stock("A100 GPUs", 8, each=1, unit="GPUs")
    assert large.stock == replace(small.stock, each=8)
    assert not other.stock
    with pytest.raises(Invalid, match="from 0 to"):
        read_local("cloud", given | {"gpu_quotas": {"A100": -1}})


AWS = {
    "region": "us-east-1",
    "zones": ["us-east-1a"],
    "image": "ami-1",
    "offers": [
        {"instance_type": "g5.xlarge", "market": ["on-demand", "spot"]},
        {"instance_type": "g6.12xlarge"},
        {"instance_type": "p5.48xlarge", "market": ["spot"]},
    ],
}


def test_quotas_of_ec2_count_vcpus_of_a_family_in_a_market() -> None:
    quotas = [
        {"families": ["g", "vt"], "vcpus": 64},
        {"families": ["p5"], "market": "spot", "vcpus": 192},
        {"families": ["p"], "market": "spot", "vcpus": 96},
    ]
    small, spot, large, p5 = read_aws("burst", AWS | {"quotas": quotas}).offers.values()
    assert small.stock == Stock("g+vt on-demand", 64, each=4, unit="vCPUs")
    assert large.stock == replace(small.stock, each=48)
    assert not spot.stock
    assert p5.stock == Stock("p5 spot", 192, each=192, unit="vCPUs")


@pytest.mark.parametrize(
    ("quota", "field"),
    [
        ({"families": [], "vcpus": 1}, "quotas[0].families"),
        ({"families": [""], "vcpus": 1}, "quotas[0].families[0]"),
        ({"families": ["g"], "vcpus": -1}, "quotas[0].vcpus"),
    ],
)
def test_a_quota_that_says_nothing_is_told_by_its_key(quota: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as told:
        read_aws("burst", AWS | {"quotas": [quota]})
    assert told.value.field == f"$.providers.burst.settings.{field}"


def test_a_quota_stands_there_once() -> None:
    with pytest.raises(Invalid, match="g on-demand is listed twice"):
        read_aws("burst", AWS | {"quotas": [{"families": ["g"], "vcpus": 1}] * 2})


def test_machines_of_others_count_while_they_run() -> None:
    def machine(kind: str, state: str = "running", **more: object) -> dict[str, object]:
        return {"InstanceType": kind, "State": {"Name": state}, **more}

    quotas = (QuotaSettings(("g",), 64), QuotaSettings(("p",), 192, "spot"))
    others = [
        machine("g5.xlarge"),
        machine("g5.xlarge", "stopped"),
        machine("g5.xlarge", InstanceLifecycle="spot"),
        machine("g9.huge", CpuOptions={"CoreCount": 16, "ThreadsPerCore": 2}),
        machine("p4d.24xlarge", InstanceLifecycle="spot"),
        machine("m5.large"),
    ]
    assert counted(quotas, others) == {"g on-demand": 36, "p spot": 96}

"""What EC2 does to those who rent from it, and that nothing is rented twice for it: real boto3 against moto, behind a proxy that makes trouble."""

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Forbidden, NoCapacity, TooMany, Unavailable
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator.ports import Provider
from federator_providers.aws import provider as entry_point
from federator_providers.aws.adapter import AwsProvider
from tests.contract.providers.conftest import SECRET
from tests.testbeds.ec2 import IMAGE, Ec2Proxy

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
ON_DEMAND, SPOT = "us-east-1/g5.xlarge/on-demand", "us-east-1/g5.xlarge/spot"
TOKEN = "one-time-join-token"
ATTEMPTS = 3
"""How often botocore asks before it gives up."""


@pytest.fixture
async def rented(ec2: Ec2Proxy, clock: ManualClock) -> AsyncIterator[Provider]:
    made = make(ec2, clock)
    yield made
    await made.close()


def make(ec2: Ec2Proxy, clock: ManualClock, **settings: object) -> AwsProvider:
    both = {"instance_type": "g5.xlarge", "market": ["on-demand", "spot"], "max_instances": 20}
    given: dict[str, object] = {"region": "us-east-1", "zones": [A, B, C], "image": IMAGE, "offers": [both]}
    return entry_point("p", given | ec2.addresses | settings, clock)


async def ask(
    provider: Provider,
    name: str = "a",
    offer: str = ON_DEMAND,
    token: str = TOKEN,
    interruptions_h: dict[str, float] | None = None,
) -> Instance:
    (wanted,) = [each for each in await provider.offers() if each.name == offer]
    user_data = f"join_token: {token}"
    return await provider.launch(LaunchRequest(name, wanted, "lab", {}, user_data, interruptions_h or {}))


async def only(provider: Provider) -> Instance:
    (found,) = await provider.instances("lab")
    return found


async def zones(ec2: Ec2Proxy) -> list[str]:
    return [machine["zone"] for machine in await ec2.living()]


async def test_a_reply_that_is_lost_once_is_asked_for_again_under_the_same_token(
    rented: Provider, ec2: Ec2Proxy
) -> None:
    ec2.lost["RunInstances"] = 1
    assert (await ask(rented)).name == "a"
    assert ec2.count("RunInstances") == 2
    assert len(await ec2.living()) == 1


async def test_a_launch_whose_reply_is_lost_for_good_is_found_by_the_next_one(
    rented: Provider, ec2: Ec2Proxy
) -> None:
    ec2.lost["RunInstances"] = ATTEMPTS
    with pytest.raises(Unavailable):
        await ask(rented)
    assert (await ask(rented, token="the next attempt's own")).name == "a"
    assert ec2.count("RunInstances") == ATTEMPTS
    assert len(await ec2.living()) == 1


async def test_a_launch_that_is_not_listed_yet_is_not_done_again(rented: Provider, ec2: Ec2Proxy) -> None:
    """Its zone was the second, the first has room again, and the join token is another: three ways to rent twice."""
    ec2.hides_new, ec2.sold_out = True, {A}
    ec2.lost["RunInstances"] = ATTEMPTS
    with pytest.raises(Unavailable):
        await ask(rented)
    ec2.sold_out = set()
    with pytest.raises(Unavailable, match="not listed yet"):
        await ask(rented, token="the next attempt's own")
    ec2.unlisted.clear()
    assert (await ask(rented)).name == "a"
    assert await zones(ec2) == [B]


async def test_of_two_machines_with_one_name_a_listing_ends_the_younger(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    """The one case that tokens cannot rule out: the dispatcher died between two zones, and EC2 was slow to list."""
    ec2.hides_new, ec2.sold_out = True, {A}
    first = await ask(rented)
    ec2.sold_out = set()
    clock.advance(5)
    successor = make(ec2, clock)
    await ask(successor)
    assert sorted(await zones(ec2)) == [A, B]
    ec2.unlisted.clear()
    assert (await only(successor)).launched_at == first.launched_at
    assert await zones(ec2) == [B]
    await successor.close()


async def test_zones_are_tried_in_turn_until_none_is_left(rented: Provider, ec2: Ec2Proxy) -> None:
    ec2.sold_out = {A, B}
    await ask(rented)
    assert await zones(ec2) == [C]
    ec2.sold_out = {A, B, C}
    last = f"{C}: InsufficientInstanceCapacity, {A}: .*, {B}: "  # those that had none a minute ago
    with pytest.raises(NoCapacity, match=last):
        await ask(rented, "b")
    assert [each.name for each in await rented.instances("lab")] == ["a"]
    ec2.sold_out = {B, C}
    await ask(rented, "b")
    assert sorted(await zones(ec2)) == [A, C]


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "Unsupported", "MaxSpotInstanceCountExceeded"])
async def test_a_quota_and_a_type_that_a_zone_lacks_are_no_capacity(
    rented: Provider, ec2: Ec2Proxy, code: str
) -> None:
    ec2.refusals["RunInstances"] = [(400, code)] * (3 if code == "Unsupported" else 1)
    with pytest.raises(NoCapacity, match=code):
        await ask(rented)
    assert await ec2.living() == []


async def test_throttling_is_waited_out_for_a_moment_and_then_told(rented: Provider, ec2: Ec2Proxy) -> None:
    ec2.refusals["RunInstances"] = [(503, "RequestLimitExceeded")]
    await ask(rented)
    ec2.refusals["DescribeInstances"] = [(503, "RequestLimitExceeded")] * ATTEMPTS
    with pytest.raises(TooMany, match="RequestLimitExceeded") as told:
        await rented.instances("lab")
    assert told.value.retry_after_s > 1
    assert (await only(rented)).name == "a"


async def test_faults_of_ec2_and_silence_are_transient(rented: Provider, ec2: Ec2Proxy) -> None:
    await ask(rented)
    ec2.refusals["TerminateInstances"] = [(500, "InternalError")] * ATTEMPTS
    with pytest.raises(Unavailable, match="InternalError"):
        await rented.terminate("a")
    assert (await only(rented)).status is InstanceStatus.RUNNING
    ec2.lost["DescribeInstances"] = ATTEMPTS
    with pytest.raises(Unavailable):
        await rented.instances("lab")


async def test_refused_credentials_are_permanent_and_stay_secret(
    rented: Provider, ec2: Ec2Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await ask(rented)
    ec2.refusals["DescribeInstances"] = [(403, "UnauthorizedOperation")]
    with pytest.raises(Forbidden, match="UnauthorizedOperation") as told:
        await rented.instances("lab")
    said = f"{told.value.describe()} {caplog.text}"
    assert SECRET not in said
    assert TOKEN not in said
    assert "Signature" not in said


async def test_long_listings_are_read_to_the_end(
    rented: Provider, ec2: Ec2Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator_providers.aws.adapter.PAGE_SIZE", 5)
    names = {f"m{number}" for number in range(7)}
    for name in names:
        await ask(rented, name)
    before = ec2.count("DescribeInstances")
    assert {each.name for each in await rented.instances("lab")} == names
    assert ec2.count("DescribeInstances") == before + 2


async def test_an_end_is_remembered_when_ec2_has_forgotten_it(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    await ask(rented)
    await rented.terminate("a")
    ended = await only(rented)
    assert ended.status is InstanceStatus.ENDED
    (machine,) = await ec2.machines()
    ec2.unlisted.add(machine["id"])
    clock.advance(3600)
    assert await only(rented) == ended
    assert await rented.launch(LaunchRequest("a", (await rented.offers())[0], "lab", {}, "")) == ended


async def test_spot_is_offered_at_the_dearest_zones_price_and_rented_in_the_cheapest(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    prices = {offer.name: offer.price_usd_h for offer in await rented.offers()}
    assert prices == {ON_DEMAND: 1.006, SPOT: 0.41246}, "without an answer of the API, the catalogue's"
    ec2.spot_usd_h = {("g5.xlarge", A): 0.5, ("g5.xlarge", B): 0.36, ("g5.xlarge", "us-east-1f"): 9.0}
    clock.advance(600)
    prices = {offer.name: offer.price_usd_h for offer in await rented.offers()}
    assert prices == {ON_DEMAND: 1.006, SPOT: 0.5}
    await ask(rented, offer=SPOT)
    assert await zones(ec2) == [B]
    (launch,) = [call for call in ec2.calls if call["Action"] == "RunInstances"]
    assert launch["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.50000"
    clock.advance(1000)
    assert (await only(rented)).billed_usd == pytest.approx(0.1)


async def test_a_cheaper_zone_is_passed_over_where_what_is_lost_there_costs_more(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    """An hour there is lost for every one that is taken back: 0.36 · 1.3 is less than 0.5 · 1.1, and 0.36 · 1.7 is more."""
    ec2.spot_usd_h = {("g5.xlarge", A): 0.5, ("g5.xlarge", B): 0.36, ("g5.xlarge", C): 0.9}
    await ask(rented, "a", SPOT, interruptions_h={"": 0.1, B: 0.3})
    await ask(rented, "b", SPOT, interruptions_h={"": 0.1, B: 0.7})
    assert {each.name: each.zone for each in await rented.instances("lab")} == {"a": B, "b": A}


async def test_spot_prices_are_asked_for_seldom_and_may_fail(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    ec2.refusals["DescribeSpotPriceHistory"] = [(500, "InternalError")] * ATTEMPTS
    assert len(await rented.offers()) == 2
    for _ in range(3):
        await rented.offers()
    assert ec2.count("DescribeSpotPriceHistory") == ATTEMPTS + 1
    clock.advance(600)
    await rented.offers()
    assert ec2.count("DescribeSpotPriceHistory") == ATTEMPTS + 2


async def test_prices_on_demand_are_the_price_lists_once_a_day_and_the_catalogues_till_then(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    async def on_demand() -> tuple[float, str]:
        (offer,) = [offer for offer in await rented.offers() if offer.name == ON_DEMAND]
        return offer.price_usd_h, offer.price_source

    ec2.refusals["GetProducts"] = [(400, "AccessDeniedException")]
    ec2.on_demand_usd_h = {"g5.xlarge": 1.25, "g5.4xlarge": 7.0}
    assert await on_demand() == (1.006, "catalogue of 2026-07-20")
    assert await on_demand() == (1.006, "catalogue of 2026-07-20")
    assert ec2.count("GetProducts") == 1, "not asked again at once"
    clock.advance(600)
    today = f"AWS price list, {datetime.fromtimestamp(clock.now(), UTC):%Y-%m-%d}"
    assert await on_demand() == (1.25, today)
    asked = ec2.calls[-2] if ec2.calls[-1]["Action"] != "GetProducts" else ec2.calls[-1]
    assert asked == {
        "Action": "GetProducts",
        "ServiceCode": "AmazonEC2",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "instanceType": "g5.xlarge",
        "regionCode": "us-east-1",
    }
    await ask(rented)
    clock.advance(3600)
    assert (await only(rented)).billed_usd == pytest.approx(1.25)
    ec2.on_demand_usd_h = {}
    assert await on_demand() == (1.25, today)
    assert ec2.count("GetProducts") == 2
    clock.advance(24 * 3600)
    assert await on_demand() == (1.006, "catalogue of 2026-07-20"), "no longer in the price list"


async def test_a_price_of_the_owners_own_is_not_replaced(ec2: Ec2Proxy, clock: ManualClock) -> None:
    ec2.on_demand_usd_h = {"g5.xlarge": 1.25}
    made = make(ec2, clock, offers=[{"instance_type": "g5.xlarge", "price_usd_h": 0.8}])
    (offer,) = await made.offers()
    assert (offer.price_usd_h, offer.price_source) == (0.8, "")
    assert ec2.count("GetProducts") == 0
    await made.close()


async def test_a_spot_machine_gets_notice_and_is_taken_back_with_its_bill_closed(
    rented: Provider, ec2: Ec2Proxy, clock: ManualClock
) -> None:
    await ask(rented, offer=SPOT)
    await ask(rented, "b", ON_DEMAND)
    (machine,) = [each["id"] for each in await ec2.living() if each["id"]][:1]
    assert {each.status for each in await rented.instances("lab")} == {InstanceStatus.RUNNING}
    clock.advance(100)
    ec2.give_notice(machine)
    noticed = {each.name: each for each in await rented.instances("lab")}
    assert noticed["a"].status is InstanceStatus.INTERRUPTING
    assert noticed["a"].reclaim_at == clock.now() + 120
    assert noticed["b"].status is InstanceStatus.RUNNING
    clock.advance(110)
    await ec2.take_back(machine)
    clock.advance(1000)
    gone = next(each for each in await rented.instances("lab") if each.name == "a")
    assert gone.status is InstanceStatus.ENDED
    assert gone.ended_at == gone.launched_at + 210
    assert gone.reclaim_at == noticed["a"].reclaim_at
    assert gone.billed_usd == pytest.approx(0.41246 * 210 / 3600)
    successor = make(ec2, clock)  # has seen no notice: the machine itself says why it ended
    after = next(each for each in await successor.instances("lab") if each.name == "a")
    assert after == msgspec.structs.replace(gone, reclaim_at=gone.ended_at)
    await successor.close()


async def test_a_launch_says_what_the_settings_say(ec2: Ec2Proxy, clock: ManualClock) -> None:
    ec2.refusals["RunInstances"] = [(400, "VcpuLimitExceeded")]
    made = make(
        ec2,
        clock,
        zones=[A],
        subnets={A: "subnet-1"},
        security_groups=["sg-1", "sg-2"],
        instance_profile="burst",
    )
    with pytest.raises(NoCapacity):
        await ask(made)
    (sent,) = [call for call in ec2.calls if call["Action"] == "RunInstances"]
    expected: dict[str, Any] = {
        "SubnetId": "subnet-1",
        "SecurityGroupId.1": "sg-1",
        "SecurityGroupId.2": "sg-2",
        "IamInstanceProfile.Name": "burst",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions.HttpTokens": "required",
        "ImageId": IMAGE,
        "Placement.AvailabilityZone": A,
    }
    assert {key: sent.get(key) for key in expected} == expected
    await made.close()


async def test_machines_of_one_family_are_taken_from_one_quota_whoever_rented_them(
    ec2: Ec2Proxy, clock: ManualClock
) -> None:
    small = {"instance_type": "g5.xlarge", "market": ["on-demand", "spot"], "max_instances": 20}
    large = {"instance_type": "g5.4xlarge", "max_instances": 20}
    quota = {"families": ["g"], "vcpus": 28}
    made = make(ec2, clock, offers=[small, large], quotas=[quota])
    stranger: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    stranger |= {"ClientToken": "theirs", "Placement": {"AvailabilityZone": B}}
    await made.ec2.call("run_instances", **stranger)
    await ask(made, "a", "us-east-1/g5.4xlarge/on-demand")
    await ask(made, "spot", SPOT)
    left = {offer.name: offer.to_be_had for offer in await made.offers()}
    assert left == {ON_DEMAND: 2, SPOT: 19, "us-east-1/g5.4xlarge/on-demand": 0}
    launches = ec2.count("RunInstances")
    with pytest.raises(NoCapacity, match="g on-demand has 8 of 28 vCPUs left") as told:
        await ask(made, "b", "us-east-1/g5.4xlarge/on-demand")
    assert (told.value.stock, told.value.each) == ("g on-demand", 16)
    assert ec2.count("RunInstances") == launches, "what the quota cannot hold is not asked for"
    assert {each.name for each in await made.instances("lab")} == {"a", "spot"}, "strangers are nobody's"
    await ask(made, "b")
    await made.close()


async def test_a_quota_that_ec2_says_is_used_up_is_named(ec2: Ec2Proxy, clock: ManualClock) -> None:
    made = make(ec2, clock, zones=[A, B], quotas=[{"families": ["g"], "vcpus": 64}])
    await ask(made, "first")
    ec2.refusals["RunInstances"] = [(400, "VcpuLimitExceeded")]
    with pytest.raises(NoCapacity, match="VcpuLimitExceeded") as told:
        await ask(made)
    assert (told.value.stock, told.value.each, told.value.used) == ("g on-demand", 4, 4)
    assert len(await ec2.living()) == 1, "the other zone was not asked: the quota is of the region"
    ec2.refusals["RunInstances"] = [(400, "InsufficientInstanceCapacity")] * 2
    with pytest.raises(NoCapacity) as told:
        await ask(made)
    assert told.value.stock == ""
    await made.close()

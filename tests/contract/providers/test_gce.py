"""What Compute Engine does to those who rent from it, and that nothing is rented twice for it: the provider and google-auth against a server of the tests' own."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Forbidden, Invalid, NoCapacity, TooMany, Unavailable
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator.ports import Provider
from federator_providers.gce import provider as entry_point
from federator_providers.gce.adapter import GceProvider
from tests.testbeds.gce import IMAGE, PROJECT, GceServer

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
ON_DEMAND, SPOT = "us-central1/g2-standard-4/on-demand", "us-central1/g2-standard-4/spot"
TOKEN = "one-time-join-token"


@pytest.fixture
async def rented(gce_server: GceServer, clock: ManualClock) -> AsyncIterator[GceProvider]:
    made = make(gce_server, clock)
    yield made
    await made.close()


def make(server: GceServer, clock: ManualClock, **settings: object) -> GceProvider:
    both = {"instance_type": "g2-standard-4", "market": ["on-demand", "spot"], "max_instances": 20}
    given: dict[str, object] = {
        "project": PROJECT,
        "region": "us-central1",
        "zones": [A, B, C],
        "image": IMAGE,
    }
    given |= {"offers": [both], "endpoint_url": server.url}
    return entry_point("p", given | settings, clock)


async def ask(
    provider: Provider, name: str = "lease-a", offer: str = ON_DEMAND, federation: str = "lab"
) -> Instance:
    (wanted,) = [each for each in await provider.offers() if each.name == offer]
    return await provider.launch(
        LaunchRequest(name, wanted, federation, {"queue": "a/B"}, f"join_token: {TOKEN}")
    )


async def only(provider: Provider) -> Instance:
    (found,) = await provider.instances("lab")
    return found


def inserted(server: GceServer) -> list[dict[str, Any]]:
    return [body for method, path, body in server.calls if method == "POST" and path.endswith("/instances")]


async def test_a_launch_whose_reply_is_lost_is_found_by_the_next_one(
    rented: GceProvider, gce_server: GceServer
) -> None:
    gce_server.lost = 1
    with pytest.raises(Unavailable):
        await ask(rented)
    assert (await ask(rented)).name == "lease-a"
    assert gce_server.living() == [(A, "lease-a")]
    assert len(inserted(gce_server)) == 1


async def test_a_launch_that_is_not_listed_yet_is_not_done_again(
    rented: GceProvider, gce_server: GceServer
) -> None:
    """Its zone was the second, and the first has room again."""
    gce_server.hides_new, gce_server.sold_out = True, {A}
    assert (await ask(rented)).name == "lease-a"
    gce_server.sold_out = set()
    assert (await ask(rented)).status is InstanceStatus.BOOTING
    assert gce_server.living() == [(B, "lease-a")]
    assert [each.name for each in await rented.instances("lab")] == ["lease-a"], "its own address says so"


async def test_of_two_machines_with_one_name_the_younger_is_ended(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock
) -> None:
    await ask(rented)
    clock.advance(10)
    gce_server.machines[B, "lease-a"] = gce_server.machines[A, "lease-a"] | {
        "id": "7",
        "zone": f"zones/{B}",
        "creationTimestamp": gce_server.now(),
    }
    assert (await only(rented)).status is InstanceStatus.BOOTING
    assert (await only(rented)).ended_at is None
    assert gce_server.living() == [(A, "lease-a")]


async def test_sold_out_zones_are_passed_over_and_then_asked_last(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock
) -> None:
    gce_server.sold_out = {A}
    await ask(rented)
    assert gce_server.living() == [(B, "lease-a")]
    gce_server.sold_out = {A, B}
    await ask(rented, "lease-b")
    assert (C, "lease-b") in gce_server.living()
    asked = len(inserted(gce_server))
    await ask(rented, "lease-c")
    assert len(inserted(gce_server)) == asked + 1, "C is asked first now"
    clock.advance(61)
    gce_server.sold_out = set()
    await ask(rented, "lease-d")
    assert (A, "lease-d") in gce_server.living()


async def test_no_zone_has_one_and_what_failed_late_is_not_there(
    rented: GceProvider, gce_server: GceServer
) -> None:
    gce_server.sold_out = {A, B, C}
    with pytest.raises(NoCapacity, match="us-central1-c: ZONE_RESOURCE_POOL_EXHAUSTED") as told:
        await ask(rented)
    assert told.value.stock == ""
    assert await rented.instances("lab") == []


@pytest.mark.parametrize(
    ("code", "quota"), [("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", False), ("QUOTA_EXCEEDED", True)]
)
async def test_a_launch_that_fails_after_it_was_told_of_costs_nothing_and_says_why(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock, code: str, quota: bool
) -> None:
    gce_server.slow = True
    assert (await ask(rented)).status is InstanceStatus.BOOTING
    clock.advance(30)
    if quota:
        gce_server.quotas = [{"metric": "NVIDIA_L4_GPUS", "limit": 1.0, "usage": 1.0}]
    else:
        gce_server.sold_out = {A}
    gce_server.finish("operation-0")
    gone = await only(rented)
    assert (gone.status, gone.billed_usd) == (InstanceStatus.ENDED, 0.0)
    assert (gone.no_capacity, gone.over_quota) == (f"{A}: {code}", quota)


async def test_a_zone_that_lacks_the_type_is_passed_over(gce_server: GceServer, clock: ManualClock) -> None:
    made = make(gce_server, clock, zones=[C, A], offers=[{"instance_type": "a2-highgpu-1g"}])
    await ask(made, offer="us-central1/a2-highgpu-1g/on-demand")
    assert gce_server.living() == [(A, "lease-a")]
    await made.close()


async def test_quotas_of_the_region_limit_a_gpu_model_whoever_has_them(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock
) -> None:
    standard = {"metric": "NVIDIA_L4_GPUS", "limit": 3.0, "usage": 1.0}
    gce_server.quotas = [standard, {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 0.0, "usage": 0.0}]
    assert {offer.name: offer.to_be_had for offer in await rented.offers()} == {ON_DEMAND: 2, SPOT: 2}
    await ask(rented)
    await ask(rented, "lease-b", SPOT)
    launches = len(inserted(gce_server))
    with pytest.raises(NoCapacity, match="NVIDIA_L4_GPUS has 0 of 3 GPUs left") as told:
        await ask(rented, "lease-c")
    assert (told.value.stock, told.value.each, told.value.used) == ("NVIDIA_L4_GPUS", 1, 3)
    assert len(inserted(gce_server)) == launches, "what the quota cannot hold is not asked for"
    gce_server.quotas = [
        standard | {"limit": 9.0},
        {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 4.0, "usage": 0.0},
    ]
    clock.advance(61)
    assert {offer.name: offer.stock.name for offer in await rented.offers() if offer.stock} == {
        ON_DEMAND: "NVIDIA_L4_GPUS",
        SPOT: "PREEMPTIBLE_NVIDIA_L4_GPUS",
    }


async def test_a_quota_that_google_says_is_used_up_is_named_and_no_other_zone_is_asked(
    rented: GceProvider, gce_server: GceServer
) -> None:
    gce_server.quotas = [{"metric": "NVIDIA_L4_GPUS", "limit": 1.0, "usage": 0.0}]
    await rented.offers()
    gce_server.quotas[0]["usage"] = 1.0
    with pytest.raises(NoCapacity, match="QUOTA_EXCEEDED") as told:
        await ask(rented)
    assert (told.value.stock, told.value.each, told.value.used) == ("NVIDIA_L4_GPUS", 1, 0)
    assert len(inserted(gce_server)) == 1


async def test_a_spot_machine_gets_notice_and_is_taken_back_with_its_bill_closed(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock
) -> None:
    await ask(rented, offer=SPOT)
    assert inserted(gce_server)[0]["scheduling"] == {
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
    }
    clock.advance(130)
    assert (await only(rented)).status is InstanceStatus.RUNNING
    gce_server.preempt(A, "lease-a")
    noticed = await only(rented)
    assert (noticed.status, noticed.reclaim_at) == (InstanceStatus.INTERRUPTING, clock.now() + 30)
    clock.advance(20)
    gce_server.take_back(A, "lease-a")
    clock.advance(1000)
    gone = await only(rented)
    assert gone.status is InstanceStatus.ENDED
    assert gone.ended_at == gone.launched_at + 150
    assert gone.reclaim_at == noticed.reclaim_at
    assert gone.billed_usd == pytest.approx(0.39734 * 150 / 3600)


async def test_a_successor_knows_a_machine_and_a_name_that_is_spent(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock
) -> None:
    first = await ask(rented)
    successor = make(gce_server, clock)
    assert await only(successor) == await only(rented)
    clock.advance(200)
    await rented.terminate("lease-a")
    await rented.instances("lab")
    assert not gce_server.living()
    later = make(gce_server, clock)
    spent = await ask(later)
    assert (spent.status, spent.launched_at, spent.ended_at) == (
        InstanceStatus.ENDED,
        first.launched_at,
        first.launched_at + 200,
    )
    assert not gce_server.living()
    await successor.close()
    await later.close()


async def test_a_machine_that_has_shut_itself_down_has_ended_and_is_deleted(
    rented: GceProvider, gce_server: GceServer, clock: ManualClock
) -> None:
    await ask(rented)
    clock.advance(300)
    gce_server.power_off(A, "lease-a")
    clock.advance(50)
    ended = await only(rented)
    assert ended.ended_at == ended.launched_at + 300
    assert await only(rented) == ended
    assert (A, "lease-a") not in gce_server.machines


async def test_ending_is_asked_for_once_until_it_has_failed(
    rented: GceProvider, gce_server: GceServer
) -> None:
    gce_server.slow = True
    await ask(rented)
    for _ in range(3):
        await rented.terminate("lease-a")
    assert gce_server.count("DELETE", "instances") == 1
    (deletion,) = [name for name, each in gce_server.operations.items() if each["operationType"] == "delete"]
    gce_server.operations[deletion] |= {"status": "DONE", "error": {"errors": [{"code": "INTERNAL_ERROR"}]}}
    await rented.terminate("lease-a")
    assert gce_server.count("DELETE", "instances") == 2


async def test_a_zone_that_does_not_answer_has_not_lost_its_machines(
    rented: GceProvider, gce_server: GceServer
) -> None:
    await ask(rented)
    gce_server.unreachable = A
    with pytest.raises(Unavailable, match="UNREACHABLE"):
        await rented.instances("lab")
    gce_server.unreachable = ""
    assert (await only(rented)).ended_at is None


async def test_a_launch_says_what_the_settings_say(gce_server: GceServer, clock: ManualClock) -> None:
    n1 = {"instance_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4", "gpus": 2, "price_usd_h": 1.1}
    made = make(
        gce_server,
        clock,
        offers=[n1],
        subnetwork="regions/us-central1/subnetworks/burst",
        public_ip=True,
        service_account="jobs@test-project.iam.gserviceaccount.com",
        network_tags=["burst"],
        disk="250GiB",
        disk_type="pd-ssd",
    )
    await ask(made, offer="us-central1/n1-standard-8+2xnvidia-tesla-t4/on-demand", federation="Our Lab")
    (sent,) = inserted(gce_server)
    assert sent["machineType"] == f"zones/{A}/machineTypes/n1-standard-8"
    accelerator = {"acceleratorType": f"zones/{A}/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 2}
    assert sent["guestAccelerators"] == [accelerator]
    assert sent["networkInterfaces"] == [
        {
            "subnetwork": "regions/us-central1/subnetworks/burst",
            "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
        }
    ]
    assert sent["serviceAccounts"][0]["email"] == "jobs@test-project.iam.gserviceaccount.com"
    assert sent["tags"] == {"items": ["burst"]}
    disk = {"sourceImage": IMAGE, "diskSizeGb": "250", "diskType": f"zones/{A}/diskTypes/pd-ssd"}
    assert sent["disks"] == [{"boot": True, "autoDelete": True, "initializeParams": disk}]
    (found,) = await made.instances("Our Lab")
    assert found.tags == {"queue": "a/B", "federation": "Our Lab"}, "no label could hold these"
    await made.close()


async def test_without_a_word_of_it_machines_have_no_address_and_no_account(
    rented: GceProvider, gce_server: GceServer
) -> None:
    await ask(rented)
    (sent,) = inserted(gce_server)
    assert sent["networkInterfaces"] == [{"network": "global/networks/default"}]
    assert "serviceAccounts" not in sent
    script = sent["metadata"]["items"][0]["value"]
    assert "FEDERATOR_NOTICES=gce" in script
    assert TOKEN in script


async def test_an_instance_of_somebody_else_is_left_alone(rented: GceProvider, gce_server: GceServer) -> None:
    await ask(rented)
    stranger = gce_server.machines.pop((A, "lease-a")) | {"name": "lease-x", "labels": {}}
    gce_server.machines[A, "lease-x"] = stranger
    with pytest.raises(Invalid, match="that this federation has not launched"):
        await ask(rented, "lease-x")
    await rented.terminate("lease-x")
    assert gce_server.living() == [(A, "lease-x")]


async def test_a_name_that_no_instance_can_have_is_refused(
    rented: GceProvider, gce_server: GceServer
) -> None:
    with pytest.raises(Invalid, match="lower-case"):
        await ask(rented, "Lease")
    assert inserted(gce_server) == []


@pytest.mark.parametrize(
    ("status", "reason", "situation"),
    [
        (403, "rateLimitExceeded", TooMany),
        (429, "rateLimitExceeded", TooMany),
        (403, "forbidden", Forbidden),
        (503, "backendError", Unavailable),
        (400, "resourceNotReady", Unavailable),
        (400, "invalid", Invalid),
    ],
)
async def test_trouble_is_a_named_situation(
    rented: GceProvider, gce_server: GceServer, status: int, reason: str, situation: type[Exception]
) -> None:
    gce_server.refuses = {"aggregated": (status, reason)}
    with pytest.raises(situation, match=reason):
        await rented.instances("lab")


async def test_quotas_that_may_not_be_read_cost_quotas_and_nothing_else(
    gce_server: GceServer, clock: ManualClock
) -> None:
    gce_server.quotas = [{"metric": "NVIDIA_L4_GPUS", "limit": 0.0, "usage": 0.0}]
    gce_server.refuses = {"regions": (403, "forbidden")}
    made = make(gce_server, clock)
    assert [offer.to_be_had for offer in await made.offers()] == [20, 20]
    gce_server.refuses = {}
    clock.advance(61)
    assert [offer.to_be_had for offer in await made.offers()] == [0, 0]
    await made.close()


async def test_credentials_that_are_missing_or_refused_are_told(
    gce_server: GceServer, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    made = make(gce_server, clock)
    with pytest.raises(Forbidden, match="DefaultCredentialsError"):
        await made.offers()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(gce_server.credentials))
    await made.offers()
    gce_server.forget_tokens()
    with pytest.raises(Forbidden, match="authError"):
        await made.offers()
    await made.offers()
    await made.close()


async def test_neither_tokens_nor_user_data_are_logged(
    rented: GceProvider, gce_server: GceServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await ask(rented)
    gce_server.refuses = {"aggregated": (400, "invalid")}
    with pytest.raises(Invalid):
        await rented.instances("lab")
    assert TOKEN not in caplog.text
    assert not any(token in caplog.text for token in gce_server.tokens)

"""What Azure does to those who rent from it, and that nothing is rented twice for it: the provider against a server of the tests' own."""

import logging
from collections.abc import AsyncIterator

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import FederatorError, Forbidden, Invalid, NoCapacity, TooMany, Unavailable
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator.ports import Provider
from federator_providers.azure import adapter, calls
from federator_providers.azure import provider as entry_point
from federator_providers.azure.adapter import AzureProvider
from tests.testbeds.azure import GROUP, IMAGE, SECRET, SUBNET, SUBSCRIPTION, AzureServer

ON_DEMAND, SPOT = "eastus/Standard_NC4as_T4_v3/on-demand", "eastus/Standard_NC4as_T4_v3/spot"
TOKEN = "one-time-join-token"


@pytest.fixture
async def rented(
    azure_server: AzureServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AzureProvider]:
    monkeypatch.setattr(adapter, "LOOK_EVERY_S", 0.01)
    both = {"instance_type": "Standard_NC4as_T4_v3", "market": ["on-demand", "spot"]}
    settings: dict[str, object] = {
        "subscription": SUBSCRIPTION,
        "resource_group": GROUP,
        "region": "eastus",
        "zones": ["1", "2"],
        "image": IMAGE,
        "subnet": SUBNET,
        "ssh_public_key": "ssh-ed25519 AAAA",
        "offers": [both | {"spot_price_usd_h": 0.2, "max_instances": 20}],
        "endpoint_url": azure_server.url,
    }
    made = entry_point("p", settings, clock)
    yield made
    await made.close()


async def ask(provider: Provider, name: str = "lease-a", offer: str = ON_DEMAND) -> Instance:
    (wanted,) = [each for each in await provider.offers() if each.name == offer]
    return await provider.launch(LaunchRequest(name, wanted, "lab", {"queue": "a/B"}, f"join_token: {TOKEN}"))


async def test_a_launch_whose_reply_is_lost_or_that_is_not_listed_yet_is_not_done_again(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    """A `PUT` without an answer is sent again at once, by the HTTP client itself."""
    azure_server.lost, azure_server.hides_new = 1, True
    assert (await ask(rented)).status is InstanceStatus.BOOTING
    assert len(azure_server.launches()) == 2
    assert (await ask(rented)).name == "lease-a"
    assert azure_server.living() == ["lease-a"]
    assert [each.name for each in await rented.instances("lab")] == ["lease-a"], "its own address says so"


async def test_a_zone_without_room_is_passed_over_and_leaves_nothing(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    azure_server.sold_out = {"1"}
    await ask(rented)
    assert [body["zones"] for body in azure_server.launches()] == [["1"], ["2"]]
    await ask(rented, "lease-b")
    assert azure_server.launches()[-1]["zones"] == ["2"], "the other one is asked last for a while"
    azure_server.sold_out = {"1", "2"}
    with pytest.raises(NoCapacity, match="2: ZonalAllocationFailed, 1: ZonalAllocationFailed"):
        await ask(rented, "lease-c")
    assert sorted(azure_server.machines) == ["lease-a", "lease-b"]


async def test_a_launch_that_fails_later_costs_nothing_and_is_cleared_away(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    await ask(rented)
    azure_server.machines["lease-a"]["properties"]["provisioningState"] = "Failed"
    (failed,) = await rented.instances("lab")
    assert (failed.status, failed.billed_usd) == (InstanceStatus.ENDED, 0.0)
    assert "found no room" in failed.no_capacity
    await rented.instances("lab")
    assert azure_server.machines == {}


async def test_spot_is_asked_for_with_the_most_that_is_paid_and_its_eviction_is_seen(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    await ask(rented, offer=SPOT)
    properties = azure_server.launches()[0]["properties"]
    assert (properties["priority"], properties["billingProfile"]) == ("Spot", {"maxPrice": 0.2})
    azure_server.evict("lease-a")
    (gone,) = await rented.instances("lab")
    assert (gone.status, gone.reclaim_at) == (InstanceStatus.ENDED, gone.ended_at)
    await ask(rented, "lease-b", offer=SPOT)
    await rented.terminate("lease-b")
    (given_back,) = [each for each in await rented.instances("lab") if each.name == "lease-b"]
    assert (given_back.status, given_back.reclaim_at) == (InstanceStatus.ENDED, None)


async def test_all_pages_are_read_and_machines_of_others_are_none_of_ours(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    for name in ("a", "b", "c"):
        await ask(rented, name)
    azure_server.page_size = 2
    azure_server.machines["c"]["tags"] = {}
    assert [each.name for each in await rented.instances("lab")] == ["a", "b"]
    with pytest.raises(Invalid, match="has not launched"):
        await ask(rented, "c")


async def test_an_operation_that_is_forgotten_leaves_its_machine(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    azure_server.forgets_operations = True
    assert (await ask(rented)).status is InstanceStatus.BOOTING
    assert azure_server.living() == ["lease-a"]


async def test_a_machine_that_cannot_be_looked_at_is_not_taken_for_gone(
    rented: AzureProvider, azure_server: AzureServer
) -> None:
    await ask(rented)
    azure_server.refuses_machines = (409, "AllocationFailed", "")
    with pytest.raises(Unavailable, match="AllocationFailed"):
        await rented.terminate("lease-a")
    azure_server.hides_new = True
    with pytest.raises(Unavailable, match="AllocationFailed"):
        await rented.instances("lab")
    azure_server.refuses_machines = None
    assert [each.status for each in await rented.instances("lab")] == [InstanceStatus.BOOTING]


async def test_a_listing_that_never_ends_is_given_up(
    rented: AzureProvider, azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_PAGES", 3)
    azure_server.circles = True
    with pytest.raises(Unavailable, match="over 3 pages"):
        await rented.instances("lab")


@pytest.mark.parametrize("error", ["text", None, ["list"], {"code": None}])
async def test_an_error_of_any_shape_is_a_named_one(
    rented: AzureProvider, azure_server: AzureServer, error: object
) -> None:
    azure_server.errors = [error]
    with pytest.raises(Invalid, match="400"):
        await rented.instances("lab")


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ((409, "OperationNotAllowed", "exceeding approved quota"), NoCapacity),
        ((409, "SkuNotAvailable", "not here"), NoCapacity),
        ((429, "TooManyRequests", ""), TooMany),
        ((503, "ServerBusy", ""), Unavailable),
        ((403, "AuthorizationFailed", ""), Forbidden),
        ((400, "InvalidParameter", "size"), Invalid),
    ],
)
async def test_what_azure_answers_is_told_in_our_words(
    rented: AzureProvider,
    azure_server: AzureServer,
    refusal: tuple[int, str, str],
    error: type[FederatorError],
) -> None:
    (offer,) = [each for each in await rented.offers() if each.name == ON_DEMAND]
    if error is NoCapacity:
        azure_server.refuses_launches = refusal
    else:
        azure_server.refuses = refusal
    with pytest.raises(error) as told:
        await rented.launch(LaunchRequest("lease-a", offer, "lab", {}, ""))
    assert azure_server.machines == {}
    quota = refusal[1] == "OperationNotAllowed"
    if isinstance(told.value, NoCapacity):
        assert told.value.stock == ("NCas_T4_v3 on-demand" if quota else "")
    assert len(azure_server.launches()) == (0 if error is not NoCapacity else 1 if quota else 2)


async def test_it_signs_in_by_secret_or_as_the_machine_and_says_which_is_missing(
    rented: AzureProvider, azure_server: AzureServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rented.offers()
    azure_server.tokens.clear()
    with pytest.raises(Forbidden):
        await rented.offers()
    await rented.offers()
    clock.advance(3500)
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", azure_server.url)
    await rented.offers()
    assert azure_server.signed_in == ["secret", "secret", "identity"]
    clock.advance(3500)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    with pytest.raises(Forbidden, match="invalid_client"):
        await rented.offers()


async def test_neither_secrets_nor_user_data_are_logged(
    rented: AzureProvider, azure_server: AzureServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await ask(rented)
    assert TOKEN.encode() in azure_server.scripts()[0]
    for secret in (SECRET, TOKEN, *azure_server.tokens):
        assert secret not in caplog.text

"""Machines that are paid for already: offered first and for less, counted, billed at their own price, and given back before their reservation ends."""

import asyncio

import pytest
from msgspec.structs import replace

from federator.kernel.clock import ManualClock
from federator.kernel.errors import NoCapacity
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Stock
from federator_providers.fake import FakeProvider
from federator_providers.reserved import TAG, Reservation, ReservedProvider
from tests.support.dispatch import OFFER

FURTHER = replace(OFFER, name="r/box/on-demand", price_usd_h=3.6, delay_s=120.0, available=5)
NAME = FURTHER.name + "/reserved"
DAY_S = 86400.0


def make(
    clock: ManualClock, until_at: float | None = None, price_usd_h: float = 0.0
) -> tuple[FakeProvider, ReservedProvider]:
    inner = FakeProvider("p", clock, [FURTHER])
    terms = Reservation(2, price_usd_h, until_at)
    return inner, ReservedProvider(inner, clock, {FURTHER.name: terms})


async def left(provider: ReservedProvider) -> dict[str, int]:
    return {offer.name: offer.available for offer in await provider.offers()}


async def launch(provider: ReservedProvider, name: str) -> Instance:
    offer = replace(FURTHER, name=NAME, price_usd_h=0.0)
    return await provider.launch(LaunchRequest(name, offer, "lab", {"lease": name}, "secret"))


async def test_what_is_reserved_is_an_offer_of_its_own_beside_what_is_left() -> None:
    clock = ManualClock()
    _, provider = make(clock, clock.now() + DAY_S)
    assert await left(provider) == {NAME: 0, FURTHER.name: 5}, "what runs there is not known yet"
    await provider.instances("lab")
    reserved, further = await provider.offers()
    assert (reserved.available, reserved.price_usd_h) == (2, 0.0)
    assert (further.available, further.price_usd_h) == (3, 3.6)
    assert reserved.price_source.startswith("2 reserved until 2025-10-10")
    await launch(provider, "a")
    assert await left(provider) == {NAME: 1, FURTHER.name: 3}


async def test_more_than_is_reserved_is_not_to_be_had_at_that_price_until_one_ends() -> None:
    _, provider = make(ManualClock())
    await provider.instances("lab")
    await launch(provider, "a")
    await launch(provider, "b")
    with pytest.raises(
        NoCapacity, match=r"no machine of .* is left of what is paid for already \(2 reserved\)"
    ):
        await launch(provider, "c")
    assert (await launch(provider, "a")).status is InstanceStatus.BOOTING, "a repeated launch"
    await provider.terminate("b")
    await provider.instances("lab")
    assert (await launch(provider, "c")).status is InstanceStatus.BOOTING


async def test_a_reserved_machine_is_billed_at_its_own_price_after_a_restart_too() -> None:
    clock = ManualClock()
    inner, provider = make(clock, price_usd_h=1.0)
    await provider.instances("lab")
    await launch(provider, "a")
    await provider.launch(LaunchRequest("b", FURTHER, "lab", {}, "secret"))
    clock.advance(3600)
    other = ReservedProvider(inner, clock, {})
    reserved, further = await other.instances("lab")
    assert (reserved.offer, reserved.tags) == (NAME, {"lease": "a", "federation": "lab"})
    assert further.offer == FURTHER.name
    assert [reserved.billed_usd, further.billed_usd] == pytest.approx([1.0, 3.6])


async def test_its_machines_have_notice_before_the_reservation_ends_and_no_new_ones_begin() -> None:
    clock = ManualClock()
    until_at = clock.now() + DAY_S
    _, provider = make(clock, until_at)
    await provider.instances("lab")
    await launch(provider, "a")
    clock.advance(DAY_S - 601)
    (running,) = await provider.instances("lab")
    assert (running.status, running.reclaim_at) == (InstanceStatus.RUNNING, None)
    assert await left(provider) == {NAME: 0, FURTHER.name: 4}
    clock.advance(1)
    (noticed,) = await provider.instances("lab")
    assert (noticed.status, noticed.reclaim_at) == (InstanceStatus.INTERRUPTING, until_at)


async def test_a_reservation_of_no_offer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    provider = ReservedProvider(
        FakeProvider("p", clock, [FURTHER]), clock, {"r/bx/on-demand": Reservation(2, 0.0, None)}
    )
    await provider.offers()
    await provider.offers()
    (told,) = caplog.messages
    assert "providers.p.reserved: there is no offer r/bx/on-demand" in told


async def test_launches_at_the_same_moment_take_no_more_than_is_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, provider = make(ManualClock())
    real = inner.launch

    async def launched(request: LaunchRequest) -> Instance:
        await asyncio.sleep(0)  # as a cloud is waited for
        return await real(request)

    monkeypatch.setattr(inner, "launch", launched)
    await provider.instances("lab")
    made = await asyncio.gather(*(launch(provider, name) for name in "abcd"), return_exceptions=True)
    assert [isinstance(each, NoCapacity) for each in made] == [False, False, True, True]
    assert await left(provider) == {NAME: 0, FURTHER.name: 3}


async def test_a_listing_that_was_asked_for_before_a_launch_does_not_free_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, provider = make(ManualClock())
    await provider.instances("lab")
    real = inner.instances

    async def late(federation: str) -> object:
        listed = await real(federation)
        await launch(provider, "a")
        return listed

    monkeypatch.setattr(inner, "instances", late)
    await provider.instances("lab")
    assert (await left(provider))[NAME] == 1


@pytest.mark.parametrize("tag", ["nan", "inf", "-5", "free"])
async def test_a_price_that_somebody_has_changed_to_none_hides_no_machine(tag: str) -> None:
    clock = ManualClock()
    inner, provider = make(clock)
    tags = {"lease": "a", TAG: tag}
    await inner.launch(LaunchRequest("a", FURTHER, "lab", tags, "secret"))
    clock.advance(3600)
    (told,) = await provider.instances("lab")
    assert told.offer == NAME
    assert told.billed_usd == pytest.approx(3.6)


async def test_machines_of_several_offers_are_reserved_while_their_prices_fit_what_is_committed() -> None:
    clock = ManualClock()
    large = replace(FURTHER, name="r/large/on-demand", price_usd_h=12.0, stock=Stock("GPUs", 16, each=8))
    takes = {FURTHER.name: 250, large.name: 800}
    plan = Reservation(1000, 0.0, None, takes)
    inner = FakeProvider("p", clock, [FURTHER, large])
    provider = ReservedProvider(inner, clock, dict.fromkeys(takes, plan))
    await provider.instances("lab")
    assert await left(provider) == {NAME: 4, FURTHER.name: 1, large.name + "/reserved": 1, large.name: 4}
    boxes, _, larges, _ = await provider.offers()
    assert boxes.stock == Stock(
        "commitment for r/box/on-demand", 1000, each=250, used=0, unit="cents an hour"
    )
    assert boxes.price_source == "10.00 USD an hour committed"
    assert larges.stock == large.stock, "a quota of the account counts as before"
    await provider.launch(LaunchRequest("a", larges, "lab", {}, "secret"))
    assert await left(provider) == {NAME: 0, FURTHER.name: 5, large.name + "/reserved": 0, large.name: 4}
    with pytest.raises(NoCapacity, match=r"10\.00 USD an hour committed") as told:
        await launch(provider, "b")
    assert told.value.stock == "", "the same machine may be had at the normal price"
    await provider.launch(LaunchRequest("c", FURTHER, "lab", {}, "secret"))
    clock.advance(3600)
    assert {each.name: each.billed_usd for each in await provider.instances("lab")} == pytest.approx(
        {"a": 0.0, "c": 3.6}
    )
    await provider.terminate("a")
    await provider.instances("lab")
    assert (await left(provider))[NAME] == 4

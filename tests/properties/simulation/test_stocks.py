"""Machines of several sizes that are made of the same GPUs: however they are asked for, ended and lost, the cloud never has more out than there are."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.kernel.clock import ManualClock
from federator.kernel.errors import NoCapacity
from federator.model.capacity import InstanceStatus, LaunchRequest, Market, Offer, Stock
from federator_providers.fake import FakeProvider

ONE = Offer("x1", "p", "r", "t", Market.ON_DEMAND, "L4", 24576, 1, 4000, 16384, 1.0, 100.0, available=1000)
SIZES = (1, 2, 4, 8)
ALONE = replace(ONE, name="alone", available=5)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["x1", "x2", "x4", "x8", "alone", "end", "vanish", "wait"]), st.integers(0, 40)
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(steps=STEPS, gpus=st.integers(1, 20))
def test_the_stock_is_never_exceeded(steps: list[tuple[str, int]], gpus: int) -> None:
    asyncio.run(_play(steps, gpus))


async def _play(steps: list[tuple[str, int]], gpus: int) -> None:
    clock = ManualClock()
    made = [
        replace(ONE, name=f"x{size}", gpus=size, available=96 // size, stock=Stock("L4", gpus, each=size))
        for size in SIZES
    ]
    offers = {offer.name: offer for offer in [*made, ALONE]}
    cloud = FakeProvider("p", clock, list(offers.values()), slow_to_end=True)
    for number, (what, index) in enumerate(steps):
        if what in offers:
            told = {offer.name: offer.to_be_had for offer in await cloud.offers()}
            try:
                await cloud.launch(LaunchRequest(f"m{number}", offers[what], "lab", {}, ""))
                assert told[what] >= 1
            except NoCapacity:
                assert told[what] == 0
        elif what == "wait":
            clock.advance(float(index))
        elif out := await _out(cloud):
            name = out[index % len(out)][0]
            await cloud.terminate(name) if what == "end" else cloud.vanish(name)
        out = await _out(cloud)
        used = sum(offers[offer].gpus for _, offer in out if offer != "alone")
        left = {offer.name: offer.to_be_had for offer in await cloud.offers()}
        assert used <= gpus
        assert [left[offer.name] for offer in made] == [(gpus - used) // size for size in SIZES]
        assert left["alone"] == 5 - sum(offer == "alone" for _, offer in out)


async def _out(cloud: FakeProvider) -> list[tuple[str, str]]:
    """Machines that are not over yet, with their offers."""
    listed = await cloud.instances("lab")
    return [(each.name, each.offer) for each in listed if each.status is not InstanceStatus.ENDED]

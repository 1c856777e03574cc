"""The switches of the provider in memory do what real clouds do."""

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import NoCapacity, Unavailable
from federator.model.capacity import InstanceStatus, LaunchRequest, Market, Offer
from federator_providers.fake import FakeProvider

OFFER = Offer("o", "p", "r", "t", Market.SPOT, "L4", 24576, 1, 4000, 16384, 3.6, 100.0, available=3)
ASK = LaunchRequest("a", OFFER, "lab", {}, "")


async def test_sold_out_and_faults_are_answers() -> None:
    fake = FakeProvider("p", ManualClock(), [OFFER], sold_out={"o"}, faults=[Unavailable("down")])
    with pytest.raises(Unavailable):
        await fake.launch(ASK)
    assert (await fake.offers())[0].available == 0
    with pytest.raises(NoCapacity):
        await fake.launch(ASK)
    fake.sold_out.clear()
    assert (await fake.launch(ASK)).name == "a"


async def test_a_machine_boots_is_given_notice_and_vanishes() -> None:
    clock = ManualClock()
    fake = FakeProvider("p", clock, [OFFER])
    assert (await fake.launch(ASK)).status == InstanceStatus.BOOTING
    clock.advance(99.0)
    assert (await fake.instances("lab"))[0].status == InstanceStatus.BOOTING
    clock.advance(1.0)
    assert (await fake.instances("lab"))[0].status == InstanceStatus.RUNNING
    fake.interrupt("a")
    assert (await fake.instances("lab"))[0].status == InstanceStatus.INTERRUPTING
    clock.advance(120.0)
    fake.vanish("a")
    (gone,) = await fake.instances("lab")
    assert (gone.status, gone.ended_at) == (InstanceStatus.ENDED, clock.now())
    assert gone.billed_usd == pytest.approx(0.22)

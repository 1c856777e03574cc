"""The spot market of the local provider: its settings, and chance that can be repeated."""

import time
from pathlib import Path

import pytest

from federator.kernel.clock import ManualClock, ScaledClock
from federator.kernel.errors import Invalid, NoCapacity, NotFound
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market
from federator_providers.local import LocalProvider, interrupt, provider
from federator_providers.local.__main__ import main
from federator_providers.local.catalogue import CATALOGUE
from federator_providers.local.folder import TAG
from federator_providers.local.market import next_fate, sold_out
from federator_providers.local.processes import kill_tagged
from federator_providers.local.settings import read_settings
from tests.support.waiting import until

BOTH: dict[str, object] = {"instance_type": "g6.xlarge", "market": ["on-demand", "spot"], "boot_delay": "0s"}


def read(offer: dict[str, object], **settings: object) -> dict[Market, float]:
    read = read_settings("p", {"state_dir": "/x", "command": ["run"], "offers": [offer], **settings})
    return {each.market: each.price_usd_h for each in read.offers}


def test_spot_is_offered_only_where_settings_say_so() -> None:
    row = CATALOGUE["g6.xlarge"]
    assert set(read({"instance_type": "g6.xlarge"})) == {Market.ON_DEMAND}
    assert read(BOTH) == {Market.ON_DEMAND: row.on_demand_usd_h, Market.SPOT: row.spot_usd_h}
    assert read(BOTH | {"market": ["spot"], "spot_price_usd_h": 0.1}) == {Market.SPOT: 0.1}


def test_spot_is_cheaper_in_the_whole_catalogue() -> None:
    assert all(0 < (row.spot_usd_h or 0) < (row.on_demand_usd_h or 0) for row in CATALOGUE.values())


@pytest.mark.parametrize(
    ("offer", "settings", "field"),
    [
        ({"market": []}, {}, "offers[0].market"),
        ({"market": ["sport"]}, {}, "offers[0].market[0]"),
        ({"market": ["spot", "spot"]}, {}, "offers[0].instance_type"),
        ({"spot_price_usd_h": -1}, {}, "offers[0].spot_price_usd_h"),
        ({}, {"spot": {"notice": "soon"}}, "spot.notice"),
        ({}, {"spot": {"interruptions_per_hour": -1}}, "spot.interruptions_per_hour"),
        ({}, {"spot": {"no_capacity_share": 1.5}}, "spot.no_capacity_share"),
        ({}, {"spot": {"sead": 1}}, "spot.sead"),
    ],
)
def test_a_mistake_names_its_key(offer: dict[str, object], settings: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(BOTH | offer, **settings)
    assert caught.value.field == f"$.providers.p.settings.{field}"


def test_a_machine_of_ones_own_making_needs_a_spot_price_only_on_the_spot_market() -> None:
    own = {"instance_type": "box", "gpus": 0, "cpus": 1, "memory": "1GiB", "price_usd_h": 1.0}
    assert read(own) == {Market.ON_DEMAND: 1.0}
    with pytest.raises(Invalid) as caught:
        read(own | {"market": ["on-demand", "spot"]})
    assert caught.value.field == "$.providers.p.settings.offers[0].spot_price_usd_h"


def test_the_same_seed_has_the_same_in_store_and_another_one_has_not(tmp_path: Path) -> None:
    def fates(name: str, seed: int) -> list[tuple[bool, float]]:
        (tmp_path / name).mkdir()
        return [next_fate(tmp_path / name, seed, 0.5, 0.3) for _ in range(200)]

    one, again, other = fates("one", 7), fates("again", 7), fates("other", 8)
    assert one == again != other
    refused, lives = [fate[0] for fate in one], [fate[1] for fate in one]
    assert 30 < sum(refused) < 90, "about three of ten find nothing"
    assert 5000 < sum(lives) / len(lives) < 9500, "one interruption in two hours, on average"


async def launch(made: LocalProvider, market: Market, name: str) -> InstanceStatus:
    offer = next(each for each in await made.offers() if each.market is market)
    return (await made.launch(LaunchRequest(name, offer, "lab", {}, ""))).status


async def test_a_market_without_capacity_refuses_spot_launches_although_it_lists_them(tmp_path: Path) -> None:
    settings = {"state_dir": str(tmp_path), "command": ["true"], "offers": [BOTH]}
    made = provider("p", settings | {"spot": {"no_capacity_share": 1.0}}, ManualClock())
    assert all(offer.available for offer in await made.offers())
    with pytest.raises(NoCapacity):
        await launch(made, Market.SPOT, "a")
    assert not (tmp_path / "a").exists()
    await launch(made, Market.ON_DEMAND, "b")
    assert (tmp_path / "b").exists()
    kill_tagged(TAG, str(tmp_path / "b"))


async def test_the_market_takes_spot_machines_back_by_itself_and_leaves_the_others(tmp_path: Path) -> None:
    clock = ScaledClock(factor=1000.0, origin_at=time.time())
    settings = {"state_dir": str(tmp_path), "command": ["sleep", "300"], "offers": [BOTH]}
    made = provider("p", settings | {"spot": {"interruptions_per_hour": 1000.0}}, clock)
    await launch(made, Market.SPOT, "a")
    await launch(made, Market.ON_DEMAND, "b")
    try:

        async def ended() -> bool:
            found.update({each.name: each for each in await made.instances("lab")})
            return found["a"].ended_at is not None

        found: dict[str, Instance] = {}
        await until(ended, "the market to take it back")
        assert found["a"].reclaim_at is not None
        assert found["b"].ended_at is found["b"].reclaim_at is None
    finally:
        for name in "ab":
            kill_tagged(TAG, str(tmp_path / name))


def test_a_person_interrupts_and_sells_out_from_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["interrupt", str(tmp_path), "ghost"]) == 1
    assert "no machine ghost" in capsys.readouterr().err
    with pytest.raises(NotFound):
        interrupt(tmp_path, "ghost")
    for offer in ("x/spot", "y/spot"):
        assert main(["sell-out", str(tmp_path), offer]) == 0
    assert main(["restock", str(tmp_path), "x/spot"]) == 0
    assert sold_out(tmp_path) == {"y/spot"}

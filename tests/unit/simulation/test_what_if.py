"""Changes to a world in a few letters, and what is said of those that cannot be."""

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.simulation.what_if import changed
from tests.unit.simulation.tiny import renting_world, site, world

WORLD = renting_world()


def test_a_pool_is_added_to_a_site_or_makes_a_new_one() -> None:
    found, told = changed(WORLD, add_pool=("lab=8xh100x4", "lab=8xH100x1", "far=2xL4x1"))
    lab, far = found.sites
    assert [(p.name, p.model, p.nodes, p.gpus_per_node) for p in lab.pools] == [
        ("main", "A100", 1, 4),
        ("new-1", "H100", 4, 8),
        ("new-2", "H100", 1, 8),
    ]
    assert [(p.name, p.model, p.nodes, p.gpus_per_node) for p in far.pools] == [("main", "L4", 1, 2)]
    assert told == (
        "4 hosts of 8 H100 more at lab",
        "1 host of 8 H100 more at lab",
        "a new site far with 1 host of 2 L4",
    )
    assert found.gpus == 4 + 32 + 8 + 2
    assert changed(WORLD, add_pool=("lab=8xa100x1",)).world.sites[0].pools[1].model == "A100"


def test_a_site_is_drained_and_so_is_a_cloud() -> None:
    two = msgspec.structs.replace(WORLD, sites=(site("lab"), site("far")))
    found, told = changed(two, drain=("far",))
    assert [each.name for each in found.sites] == ["lab"]
    assert told == ("nothing starts at far",)
    assert found.offers
    for name in ("cloud", "rented"):
        found, told = changed(two, drain=(name,))
        assert found.offers == ()
        assert len(found.sites) == 2
        assert told == (f"nothing is rented from {name}",)


def test_prices_of_sites_and_offers() -> None:
    found, told = changed(WORLD, price=("lab=0.30", "cloud/A100x4=8 USD"))
    assert found.sites[0].price_usd_gpu_h == 0.3
    assert found.offers[0].price_usd_h == 8.0
    assert told == (
        "lab costs 0.3 USD per GPU-hour (was 0)",
        "cloud/A100x4 costs 8 USD an hour (was 10)",
    )
    assert changed(WORLD, add_pool=("new=1xL4x1",), price=("new=2",)).world.sites[1].price_usd_gpu_h == 2.0


@pytest.mark.parametrize("text", ["", "lab", "lab=", "lab=8xH100", "lab=0xH100x4", "lab=8xH100x0", "=8xH100x4", "Lab!=1xL4x1"])  # fmt: skip
def test_a_pool_that_cannot_be_read_is_answered_with_the_grammar(text: str) -> None:
    with pytest.raises(Invalid, match="lab=8xH100x4") as caught:
        changed(WORLD, add_pool=(text,))
    assert caught.value.field == "--add-pool"


@pytest.mark.parametrize("text", ["lab", "lab=", "lab=cheap", "=3", "lab=-1"])
def test_a_price_that_cannot_be_read_is_answered_with_the_grammar(text: str) -> None:
    with pytest.raises(Invalid, match=r"lab=0\.30") as caught:
        changed(WORLD, price=(text,))
    assert caught.value.field == "--price"


def test_what_is_not_there_is_answered_with_what_is() -> None:
    with pytest.raises(Invalid, match="there is no 'mars' in this world") as caught:
        changed(WORLD, drain=("mars",))
    assert caught.value.remedy == "there are lab, rented"
    with pytest.raises(Invalid) as caught:
        changed(WORLD, price=("mars=1",))
    assert caught.value.remedy == "there are lab, cloud/A100x4"
    with pytest.raises(Invalid, match="the only site"):
        changed(world(), drain=("lab",))

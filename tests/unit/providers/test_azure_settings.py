"""Settings of the `azure` provider: the offers that they make, and mistakes told by their key before any money is spent."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Stock
from federator_providers.azure.settings import read_settings
from tests.testbeds.azure import GROUP, IMAGE, SUBNET, SUBSCRIPTION

BOX: dict[str, Any] = {"instance_type": "Standard_NC24ads_A100_v4"}
GIVEN: dict[str, Any] = {
    "subscription": SUBSCRIPTION,
    "resource_group": GROUP,
    "region": "eastus",
    "image": IMAGE,
    "subnet": SUBNET,
    "ssh_public_key": "ssh-ed25519 AAAA",
    "offers": [BOX],
}


def test_each_market_is_an_offer_and_spot_costs_what_is_paid_at_most() -> None:
    both = BOX | {"market": ["on-demand", "spot"], "spot_price_usd_h": 1.6}
    on_demand, spot = read_settings("burst", GIVEN | {"offers": [both]}).offers.values()
    assert (on_demand.name, on_demand.price_usd_h) == ("eastus/Standard_NC24ads_A100_v4/on-demand", 3.673)
    assert on_demand.price_source == "skypilot-catalog v6"
    assert (spot.market, spot.price_usd_h, spot.price_source) == (Market.SPOT, 1.6, "")
    assert (spot.model, spot.gpus, spot.gpu_memory_mib) == ("A100", 1, 80 * 1024)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"subscription": "mine"}, "subscription", "id"),
        ({"resource_group": "a/b"}, "resource_group", "name"),
        ({"region": "East US"}, "region", "short name"),
        ({"zones": ["1", "1"]}, "zones", "twice"),
        ({"image": "federator"}, "image", "/subscriptions/"),
        ({"subnet": "burst"}, "subnet", "/subscriptions/"),
        ({"endpoint_url": "management"}, "endpoint_url", "https"),
        ({"client_secret": "x"}, "client_secret", "no field"),
        ({"offers": [{"instance_type": "Standard_D2"}]}, "offers[0].instance_type", "Standard_NC4as_T4_v3"),
        ({"offers": [BOX | {"market": ["spot"]}]}, "offers[0].spot_price_usd_h", "no spot prices"),
        ({"region": "westus"}, "offers[0].price_usd_h", "eastus only"),
        ({"offers": [BOX, BOX]}, "offers[1].instance_type", "twice"),
    ],
)
def test_mistakes_name_their_key_and_a_remedy(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid) as told:
        read_settings("burst", GIVEN | change)
    assert told.value.field == f"$.providers.burst.settings.{field}"
    assert says in told.value.describe()


def test_sizes_of_one_family_and_all_spot_machines_draw_on_one_quota() -> None:
    sizes = ["Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_NC4as_T4_v3"]
    entries = [
        {"instance_type": size, "market": ["on-demand", "spot"], "spot_price_usd_h": 1.0, "max_instances": 2}
        for size in sizes
    ]
    offers = read_settings("burst", GIVEN | {"offers": entries}).offers.values()
    single, single_spot, double, _, other, other_spot = (offer.stock for offer in offers)
    assert single == Stock("NCads_H100_v5 on-demand", 240, each=40, unit="vCPUs"), "as many as may be rented"
    assert double == Stock("NCads_H100_v5 on-demand", 240, each=80, unit="vCPUs")
    assert other == Stock("NCas_T4_v3 on-demand", 8, each=4, unit="vCPUs")
    assert single_spot == Stock("all spot", 248, each=40, unit="vCPUs")
    assert other_spot == Stock("all spot", 248, each=4, unit="vCPUs")

"""Settings of the `gce` provider: the offers that they make, and mistakes told by their key before any money is spent."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator_providers.gce.settings import read_settings

GIVEN: dict[str, Any] = {
    "project": "my-project",
    "region": "us-central1",
    "zones": ["us-central1-a"],
    "image": "projects/my-project/global/images/family/federator",
    "offers": [{"instance_type": "a2-ultragpu-8g", "market": ["on-demand", "spot"]}],
}
T4 = {"instance_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4"}


def test_each_market_is_an_offer_with_the_catalogues_figures() -> None:
    configuration = read_settings("burst", GIVEN)
    on_demand, spot = configuration.offers.values()
    assert (on_demand.name, on_demand.market) == ("us-central1/a2-ultragpu-8g/on-demand", Market.ON_DEMAND)
    assert (spot.name, spot.market) == ("us-central1/a2-ultragpu-8g/spot", Market.SPOT)
    assert (on_demand.price_usd_h, spot.price_usd_h) == (40.55038, 22.07637)
    assert on_demand.price_source == "catalogue of 2026-07-30"
    assert (spot.model, spot.gpus, spot.gpu_memory_mib) == ("A100", 8, 80 * 1024)
    assert (spot.cpus_milli, spot.memory_mib) == (96_000, 1360 * 1024)
    assert set(configuration.quotas.values()) == {"NVIDIA_A100_80GB_GPUS"}


def test_gpus_are_attached_to_n1_at_a_price_of_ones_own() -> None:
    (offer,) = read_settings(
        "burst", GIVEN | {"offers": [T4 | {"gpus": 2, "price_usd_h": 1.1}]}
    ).offers.values()
    assert offer.name == "us-central1/n1-standard-8+2xnvidia-tesla-t4/on-demand"
    assert (offer.model, offer.gpus, offer.gpu_memory_mib) == ("T4", 2, 16 * 1024)
    assert (offer.cpus_milli, offer.memory_mib) == (8000, 30 * 1024)
    assert (offer.price_usd_h, offer.price_source) == (1.1, "")


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"project": "My Project"}, "project", "its id"),
        ({"zones": []}, "zones", "at least 1"),
        ({"zones": ["us-east4-a"]}, "zones", "not in us-central1"),
        ({"zones": ["us-central1-a"] * 2}, "zones", "twice"),
        ({"network_tags": ["No"]}, "network_tags", "lower-case"),
        ({"disk": "1GiB"}, "disk", "10GiB or more"),
        ({"disk_type": "floppy"}, "disk_type", "pd-balanced"),
        ({"endpoint_url": "compute"}, "endpoint_url", "https"),
        ({"private_key": "x"}, "private_key", "no field"),
        ({"offers": []}, "offers", "at least 1"),
        ({"offers": [{"instance_type": "p9.huge"}]}, "offers[0].instance_type", "a3-highgpu-8g"),
        ({"offers": [{"instance_type": "n1-standard-8"}]}, "offers[0].accelerator", "nvidia-tesla-t4"),
        ({"offers": [T4]}, "offers[0].price_usd_h", "no prices of n1"),
        ({"offers": [T4 | {"gpus": 3, "price_usd_h": 1}]}, "offers[0].gpus", "1, 2, 4 or 8"),
        ({"offers": [T4 | {"accelerator": "tpu"}]}, "offers[0].accelerator", "not known"),
        ({"offers": [T4 | {"instance_type": "g2-standard-4"}]}, "offers[0].instance_type", "no accelerator"),
        ({"offers": [{"instance_type": "g2-standard-4"}] * 2}, "offers[1].instance_type", "twice"),
        (
            {"region": "us-east4", "zones": ["us-east4-a"], "offers": [{"instance_type": "g2-standard-4"}]},
            "offers[0].price_usd_h",
            "us-central1 only",
        ),
    ],
)
def test_mistakes_are_told_by_their_key(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as told:
        read_settings("burst", GIVEN | change)
    assert told.value.field == f"$.providers.burst.settings.{field}"

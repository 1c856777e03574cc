"""Settings of the `kubernetes` provider: the offers that they make, and mistakes told by their key before any pod is made."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator_providers.kubernetes.settings import read_settings

BOX: dict[str, Any] = {
    "instance_type": "a100",
    "node_selector": {"eks.amazonaws.com/nodegroup": "burst"},
    "model": "A100",
    "gpu_memory": "80GiB",
    "gpus": 8,
    "cpus": 90,
    "memory": "1TiB",
    "price_usd_h": 32.77,
}
GIVEN: dict[str, Any] = {"image": "registry.example/agent:1", "offers": [BOX]}


def test_a_pool_is_an_offer_with_a_boot_time_and_a_tail() -> None:
    made = read_settings("burst", GIVEN | {"offers": [BOX | {"market": "spot"}], "scale_down": "1m"})
    (offer,) = made.offers.values()
    assert (offer.name, offer.market) == ("kubernetes/a100/spot", Market.SPOT)
    assert (offer.gpus, offer.cpus_milli, offer.memory_mib) == (8, 90_000, 2**20)
    assert (offer.delay_s, offer.teardown_s) == (360.0, 70.0)
    assert made.selectors == {offer.name: {"eks.amazonaws.com/nodegroup": "burst"}}


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"namespace": "Mine"}, "namespace", "small letters"),
        ({"pod": {"containers": []}}, "pod.containers", "own"),
        ({"container": {"resources": {}}}, "container.resources", "own"),
        ({"token": "x"}, "token", "no field"),
        ({"offers": [BOX | {"gpus": 0}]}, "offers[0].gpus", "model and gpus"),
        ({"offers": [BOX, BOX]}, "offers[1].instance_type", "twice"),
        ({"offers": [BOX | {"boot_delay": "0s"}]}, "offers[0].boot_delay", ""),
    ],
)
def test_mistakes_name_their_key_and_a_remedy(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid) as told:
        read_settings("burst", GIVEN | change)
    assert told.value.field == f"$.providers.burst.settings.{field}"
    assert says in told.value.describe()

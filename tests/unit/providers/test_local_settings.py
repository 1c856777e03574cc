"""Settings of the local provider: every mistake names its key, and every key changes the offers."""

from pathlib import Path

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.wire.yamltext import read_document
from federator_providers.local import provider
from federator_providers.local.catalogue import CATALOGUE
from federator_providers.local.settings import LocalConfiguration, read_settings

OWN = {
    "instance_type": "box",
    "model": "A100",
    "gpu_memory": "40GiB",
    "gpus": 2,
    "cpus": 4.5,
    "memory": "16GiB",
    "price_usd_h": 3,
}


def read(**changes: object) -> LocalConfiguration:
    return read_settings("cloud", {"state_dir": "/x", "command": ["run"], **changes})


def read_offer(**changes: object) -> LocalConfiguration:
    return read(offers=[{**OWN, **changes}])


@pytest.mark.parametrize(
    ("settings", "field", "says"),
    [
        ("text", "$.providers.cloud.settings", "write a mapping"),
        ({"command": ["x"]}, "$.providers.cloud.settings.state_dir", "missing"),
        ({"state_dir": "/x"}, "$.providers.cloud.settings.command", "missing"),
        ({"state_dir": "/x", "command": []}, "$.providers.cloud.settings.command", "at least 1"),
        ({"state_dir": "", "command": ["x"]}, "$.providers.cloud.settings.state_dir", "empty"),
        ({"state_dir": "/x", "command": "x"}, "$.providers.cloud.settings.command", "a list"),
        ({"state_dir": "/x", "command": ["x"], "offer": []}, "$.providers.cloud.settings.offer", "offers"),
        ({"state_dir": "/x", "command": ["x"], "keep_ended": "5m"}, "$.providers.cloud.settings.keep_ended", "3600s"),
        (
            {"state_dir": "/x", "command": ["x"], "egress_usd_per_gib": -1},
            "$.providers.cloud.settings.egress_usd_per_gib",
            "from 0 to",
        ),
        (
            {"state_dir": "/x", "command": ["x"], "offers": [{"instance_type": "p9"}]},
            "$.providers.cloud.settings.offers[0].model",
            "p5.48xlarge",
        ),
        (
            {"state_dir": "/x", "command": ["x"], "offers": [{"instance_type": "g6.xlarge"}] * 2},
            "$.providers.cloud.settings.offers[1].instance_type",
            "twice",
        ),
    ],
)  # fmt: skip
def test_a_mistake_names_its_key(settings: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_settings("cloud", settings)
    assert caught.value.field == field
    assert says in caught.value.describe()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("price_usd_h", -1),
        ("price_usd_h", "cheap"),
        ("gpus", -1),
        ("cpus", -1),
        ("max_instances", -1),
        ("memory", "16"),
        ("gpu_memory", "a lot"),
        ("boot_delay", 90),
        ("minimum_billing", "1"),
        ("teardown", "soon"),
        ("colour", "red"),
    ],
)
def test_a_mistake_in_an_offer_names_its_key(key: str, value: object) -> None:
    with pytest.raises(Invalid) as caught:
        read_offer(**{key: value})
    assert caught.value.field == f"$.providers.cloud.settings.offers[0].{key}"


def test_an_offer_is_what_was_said() -> None:
    (offer,) = read_offer(boot_delay="90s", minimum_billing="2m", teardown="5s", max_instances=7).offers
    assert (offer.name, offer.provider, offer.region) == ("local/box/on-demand", "cloud", "local")
    assert (offer.market, offer.instance_type, offer.model) == (Market.ON_DEMAND, "box", "A100")
    assert (offer.gpus, offer.gpu_memory_mib, offer.cpus_milli, offer.memory_mib) == (2, 40960, 4500, 16384)
    assert (offer.price_usd_h, offer.available) == (3.0, 7)
    assert (offer.delay_s, offer.minimum_billing_s, offer.teardown_s) == (90.0, 120.0, 5.0)


def test_region_and_egress_are_on_every_offer() -> None:
    offers = read(region="eu", egress_usd_per_gib=0.09).offers
    assert {offer.region for offer in offers} == {"eu"}
    assert {offer.egress_usd_per_gib for offer in offers} == {0.09}
    assert all(offer.name.startswith("eu/") for offer in offers)


def test_the_catalogue_fills_in_what_is_not_said() -> None:
    (offer,) = read(offers=[{"instance_type": "p4d.24xlarge", "price_usd_h": 1.0}]).offers
    assert (offer.model, offer.gpus, offer.gpu_memory_mib) == ("A100", 8, 40960)
    assert offer.price_usd_h == 1.0
    assert offer.delay_s > 0


def test_without_offers_the_whole_catalogue_is_offered() -> None:
    assert {offer.instance_type for offer in read().offers} == set(CATALOGUE)


def test_a_machine_without_gpus_needs_no_model() -> None:
    (offer,) = read(
        offers=[{"instance_type": "cpu", "gpus": 0, "cpus": 8, "memory": "8GiB", "price_usd_h": 0.4}]
    ).offers
    assert (offer.model, offer.gpus, offer.gpu_memory_mib) == ("", 0, 0)


async def test_a_name_that_would_leave_the_folder_is_refused(tmp_path: Path) -> None:
    made = provider("cloud", {"state_dir": str(tmp_path), "command": ["x"]}, ManualClock())
    for name in ("../up", ".hidden", "", "a/b"):
        with pytest.raises(Invalid, match="cannot name an instance"):
            await made.terminate(name)


def test_the_guides_example_is_accepted() -> None:
    guide = Path(__file__).parents[3] / "docs" / "howto" / "burst-provider-local.md"
    example = guide.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    value = read_document(example).value
    assert isinstance(value, dict)
    settings = read_settings("burst", value["providers"]["burst"]["settings"])
    assert [offer.name for offer in settings.offers] == [
        "local/a2-highgpu-1g/on-demand",
        "local/a2-highgpu-1g/spot",
        "local/p4d.24xlarge/on-demand",
        "local/spare-box/on-demand",
    ]
    assert (settings.notice_s, settings.interruptions_per_h) == (120.0, 0.1)

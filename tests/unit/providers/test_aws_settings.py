"""Settings of the `aws` provider: the offers that they make, and mistakes told by their key before any money is spent."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator_providers.aws.settings import read_settings
from federator_providers.boot import boot_script

GIVEN: dict[str, Any] = {
    "region": "us-east-1",
    "zones": ["us-east-1a"],
    "image": "ami-1",
    "offers": [{"instance_type": "p4d.24xlarge", "market": ["on-demand", "spot"]}],
}


def test_each_market_is_an_offer_with_the_catalogues_figures() -> None:
    on_demand, spot = read_settings("burst", GIVEN).offers.values()
    assert (on_demand.name, on_demand.market) == ("us-east-1/p4d.24xlarge/on-demand", Market.ON_DEMAND)
    assert (spot.name, spot.market) == ("us-east-1/p4d.24xlarge/spot", Market.SPOT)
    assert (on_demand.price_usd_h, spot.price_usd_h) == (21.95764, 7.24602)
    assert (spot.model, spot.gpus, spot.gpu_memory_mib) == ("A100", 8, 40 * 1024)
    assert (spot.cpus_milli, spot.memory_mib) == (96_000, 1152 * 1024)


def test_a_price_of_ones_own_counts_and_elsewhere_must_be_written() -> None:
    offer = {"instance_type": "g5.xlarge", "price_usd_h": 1.2}
    there = GIVEN | {"region": "eu-central-1", "zones": ["eu-central-1b"], "offers": [offer]}
    (made,) = read_settings("burst", there).offers.values()
    assert made.price_usd_h == 1.2


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"region": ""}, "region", "empty"),
        ({"zones": []}, "zones", "at least 1"),
        ({"zones": ["eu-west-1a"]}, "zones", "not in us-east-1"),
        ({"subnets": {"us-east-1b": "subnet-1"}}, "subnets", "not in zones"),
        ({"calls_at_once": 0}, "calls_at_once", "1 to 64"),
        ({"egress_usd_per_gib": -1.0}, "egress_usd_per_gib", "from 0 to"),
        ({"refresh_prices_every": "1s"}, "refresh_prices_every", "too short"),
        ({"secret_key": "x"}, "secret_key", "no field"),
        ({"offers": []}, "offers", "at least 1"),
        ({"offers": [{"instance_type": "p9.huge"}]}, "offers[0].instance_type", "p5.48xlarge"),
        ({"offers": [{"instance_type": "g5.xlarge", "market": []}]}, "offers[0].market", "at least 1"),
        ({"offers": [{"instance_type": "g5.xlarge"}] * 2}, "offers[1].instance_type", "twice"),
        (
            {"offers": [{"instance_type": "g5.xlarge", "max_instances": -1}]},
            "offers[0].max_instances",
            "from 0 to",
        ),
        (
            {"region": "us-west-2", "zones": ["us-west-2a"], "offers": [{"instance_type": "g5.xlarge"}]},
            "offers[0].price_usd_h",
            "us-east-1 only",
        ),
    ],
)
def test_a_mistake_names_its_key_and_the_remedy(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid) as told:
        read_settings("burst", GIVEN | change)
    assert told.value.field == f"$.providers.burst.settings.{field}"
    assert says in told.value.describe()


def test_the_boot_script_keeps_the_user_data_to_its_owner_and_runs_the_command(tmp_path: Path) -> None:
    secret = '{"join_token": "$HOME `id` \'x\'"}'
    script = boot_script(secret + "\n", 'cp "$FEDERATOR_USER_DATA_FILE" "$FEDERATOR_AGENT_STATE_DIR"', "ec2")
    boot_dir = tmp_path / "boot"
    subprocess.run(
        ["/bin/sh"], input=script, text=True, check=True, env={"FEDERATOR_BOOT_DIR": str(boot_dir)}
    )
    assert (boot_dir / "state").read_text() == secret + "\n"
    assert (boot_dir / "user-data").stat().st_mode & 0o777 == 0o600

"""The example of a site file is one that the agent takes."""

from pathlib import Path

from federator.model.whose import Whose
from federator_agent.config import parse

EXAMPLE = Path(__file__).parents[4] / "agents" / "install" / "slurm" / "site.yaml"


def test_the_example() -> None:
    settings = parse(EXAMPLE.read_text(), str(EXAMPLE), {})
    assert settings.slurm is not None
    assert settings.slurm.partitions == ("gpu", "cpu")
    assert settings.slurm.account(Whose("research/vision")).qos == "low"
    assert settings.slurm.account(Whose("other")).account == "guests"

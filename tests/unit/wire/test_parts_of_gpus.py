"""Parts of a GPU in a job file: to the thousandth, of one GPU, and nothing else is changed by there being such a thing."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Accelerators, JobSpec
from federator.wire.jobfile import encode_spec, read_job


def read(gpus: object, nodes: int = 1) -> JobSpec:
    return read_job({"run": "x", "nodes": nodes, "resources": {"gpus": gpus}}, now=0.0).spec


@pytest.mark.parametrize(
    ("gpus", "milli", "models"),
    [
        (0.5, 500, ()),
        ("0.5", 500, ()),
        ("A100:0.25", 250, ("A100",)),
        ({"count": 0.125, "models": ["A100"]}, 125, ("A100",)),
    ],
)
def test_a_part_of_a_gpu_is_counted_in_thousandths(gpus: object, milli: int, models: tuple[str, ...]) -> None:
    spec = read(gpus, nodes=3)
    assert spec.resources.gpus == Accelerators(count=1, models=models, share_milli=milli)
    assert spec.gpus_total == 3 * milli / 1000
    assert (spec.resources.gpus.each, spec.resources.gpus.total) == (milli, milli / 1000)


def test_whole_gpus_are_written_as_before_there_were_parts() -> None:
    spec = read(2.0, nodes=2)
    assert (spec.gpus_total, spec.resources.gpus.each) == (4, 2)
    assert b"share_milli" not in encode_spec(spec)


@pytest.mark.parametrize("gpus", [1.5, "A100:2.25", -0.5, 0.0004, "0.33333", "0.5:0.5", float("nan")])
def test_what_is_no_part_of_one_gpu_is_refused_with_what_would_be(gpus: object) -> None:
    with pytest.raises(Invalid, match=r"write .*0\.(5|125)") as caught:
        read(gpus)
    assert caught.value.field == "$.resources.gpus"


@pytest.mark.parametrize(
    ("gpus", "says", "instead"),
    [
        ("A100:1g.10gb", "'1g.10gb' is a MIG profile", "write A100:0.143"),
        ("A100-3g.40gb", "'3g.40gb' is a MIG profile", "write A100:0.5"),
        ("A100:80GB:1g.20gb:2", "'1g.20gb' is a MIG profile", "write A100:80GB:0.25"),
        ("A30:1g.6gb", "'1g.6gb' is a MIG profile", "write A30:0.25"),
        ("1g.10gb", "'1g.10gb' is a MIG profile", "write 0.143"),
        ("A100:5g.40gb", "'5g.40gb' is no MIG profile that a GPU has", "write A100:1"),
        ("H100:9g.90gb", "'9g.90gb' is no MIG profile that a GPU has", "write H100:1"),
        ({"models": ["A100-2g.20gb"]}, "'2G.20GB' is a MIG profile", "write A100:0.286"),
    ],
)
def test_a_mig_profile_is_named_with_the_part_of_a_gpu_to_write(
    gpus: object, says: str, instead: str
) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        read(gpus)
    assert caught.value.remedy == instead
    assert str(caught.value.field).startswith("$.resources.gpus")
    read(instead.removeprefix("write "))

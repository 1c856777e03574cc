"""How wide a job may run is said in the unit in which its forms differ."""

import pytest

from federator.model.jobs import Accelerators, Form, JobSpec, Resources
from federator.wire.widths import width_of, widths


def node(gpus: int) -> Resources:
    return Resources(gpus=Accelerators(count=gpus))


@pytest.mark.parametrize(
    ("forms", "span", "third"),
    [
        ((), "", ""),
        ((Form(1, node(4), 0.6), Form(8, node(4), 3.0)), "1-8 nodes", "8 of 1-8 nodes"),
        ((Form(2, node(2), 0.6), Form(2, node(8), 1.5)), "4-16 GPUs", "16 of 4-16 GPUs"),
        ((Form(2, Resources(gpus=Accelerators(count=4, models=("H100",))), 2.0),), "", ""),
    ],
)
def test_the_narrowest_and_the_widest(forms: tuple[Form, ...], span: str, third: str) -> None:
    spec = JobSpec(name="j", run="true", nodes=2, resources=node(4), forms=forms or JobSpec(name="").forms)
    assert widths(spec) == span
    assert width_of(spec, len(forms)) == third

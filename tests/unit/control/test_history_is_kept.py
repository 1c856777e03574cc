"""What the history keeps between runs is what it would find anew: it forgets all that a run says something of."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from federator.control.reports.history import History
from federator.model.jobs import JobSpec, JobStatus

SPEED = {"A100": 1.0, "H100": 2.0}
SPEC = JobSpec(name="a", run="true", estimate_s=3600.0, speed=SPEED)
MODELS = ("A100", "H100", "L4")
ASKED = [(queue, name, owner) for queue in "qr" for name in "abcd" for owner in "xy"]


def ended(dice: Random, number: int) -> tuple[Any, Any]:
    """A job that has succeeded, and its placement."""
    placement = SimpleNamespace(form=0, model=dice.choice(MODELS))
    job = SimpleNamespace(
        status=JobStatus.SUCCEEDED, started_at=0.0, finished_at=3600.0 * dice.lognormvariate(0.0, 0.4), queue=dice.choice("qr"),
        kin=dice.choice("abcd"), owner=dice.choice("xy"), spec_hash="s", placement=f"p{number}", saved_s=0.0, epoch=1,
    )  # fmt: skip
    return job, placement


def told(history: History) -> list[Any]:
    """All that it says."""
    return [
        (history.speeds(*asked, SPEED), history.leaning(*asked, SPEED), history.runs(*asked[:2]))
        for asked in ASKED
    ]


@pytest.mark.parametrize("seed", range(10))
def test_what_was_asked_between_changes_nothing(seed: int) -> None:
    dice = Random(seed)
    made = [ended(dice, number) for number in range(40)]
    placements = {job.placement: placement for job, placement in made}
    records: Any = SimpleNamespace(spec=lambda _: SPEC, known_placement=placements.get)
    asked = History()
    for count, (job, _) in enumerate(made, 1):
        asked.learn(job, records)
        fresh = History()
        for each, _ in made[:count]:
            fresh.learn(each, records)
        assert told(asked) == told(fresh)

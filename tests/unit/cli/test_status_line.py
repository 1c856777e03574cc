"""The line that says how far a job or an array is."""

import re

from msgspec.structs import replace

from federator.cli.status_line import state_of, state_of_array
from federator.model.jobs import JobStatus
from federator.model.plans import Waiting
from tests.unit.cli.answers import NOW, an_array, detail


def test_a_job_that_waits_is_told_with_its_place_and_start() -> None:
    waiting = Waiting(job="job-1", kind="capacity", because="north is full\n")
    told = replace(
        detail(JobStatus.PENDING, placement=None),
        waiting=waiting,
        before=2,
        expected_start_at=NOW + 720,
    )
    assert re.fullmatch(
        r"train PENDING \w+: starts in 12m, 2 jobs before it, north is full ", state_of(told, NOW)
    )


def test_a_job_that_runs_and_an_array() -> None:
    told = replace(detail(JobStatus.RUNNING), expected_finish_at=NOW + 60)
    assert re.fullmatch(r"train RUNNING \w+ at north: ends in 1m", state_of(told, NOW))
    assert state_of(detail(JobStatus.SUCCEEDED, 0), NOW) == "train SUCCEEDED"
    assert state_of_array(an_array(), NOW) == "sweep[0-9]: 2 FAILED, 8 SUCCEEDED"

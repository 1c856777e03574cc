"""What an object says of its job."""

import msgspec
import pytest
from msgspec.structs import replace

from federator.model.jobs import JobSpec
from federator.operator import status as said
from federator.operator.objects import Condition, FederatedJob, Meta, Status
from federator.wire.http import ArrayDetail, JobRow

JOB = FederatedJob(
    metadata=Meta(name="a", namespace="n", uid="u", generation=3), spec={"run": "true", "priority": 5}
)
ROW = JobRow(id="j", name="a", owner="ada", queue="q", status="RUNNING", priority=5, nodes=1, gpus=1, models="", site="north",
    because="runs", started_at=100.0, expected_finish_at=3600.0, spent_usd=1.234)  # fmt: skip


def kinds(status: Status) -> dict[str, str]:
    return {each.type: each.status for each in status.conditions}


def array(tasks: dict[str, int], *, finished_at: float | None) -> ArrayDetail:
    return ArrayDetail(id="a", name="a", indices="0-3", owner="ada", queue="q", spec=JobSpec(name="a"), tasks=tasks, submitted_at=0.0,
        started_at=1.0, finished_at=finished_at)  # fmt: skip


def test_a_line_of_the_list_is_mirrored() -> None:
    status = said.mirrored(said.submitted(JOB, "j", 50.0), ROW, 200.0)
    assert (status.phase, status.site, status.message, status.cost_usd) == (
        "Running",
        "north",
        "runs",
        "1.23",
    )
    assert (status.started, status.expected_finish) == ("1970-01-01T00:01:40Z", "1970-01-01T01:00:00Z")
    assert status.observed_generation == 3
    assert kinds(status) == {"Submitted": "True"}
    assert not status.over


@pytest.mark.parametrize(
    ("ended", "condition"), [("SUCCEEDED", "Complete"), ("FAILED", "Failed"), ("CANCELLED", "Failed")]
)
def test_an_end_is_a_condition_to_wait_for(ended: str, condition: str) -> None:
    status = said.mirrored(said.submitted(JOB, "j", 50.0), replace(ROW, status=ended), 200.0)
    assert kinds(status)[condition] == "True"
    assert status.over


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = said.conditioned(Status(), 60.0, Condition(type="X", status="True", reason="A"))
    again = said.conditioned(first, 120.0, Condition(type="X", status="True", reason="B"))
    turned = said.conditioned(again, 180.0, Condition(type="X", status="False", reason="B"))
    times = [each.conditions[0].last_transition_time for each in (first, again, turned)]
    assert times == ["1970-01-01T00:01:00Z", "1970-01-01T00:01:00Z", "1970-01-01T00:03:00Z"]


@pytest.mark.parametrize(
    ("tasks", "finished_at", "phase"),
    [
        ({"SUCCEEDED": 3, "RUNNING": 1}, None, "Running"),
        ({"SUCCEEDED": 4}, 9.0, "Succeeded"),
        ({"SUCCEEDED": 3, "FAILED": 1}, 9.0, "Failed"),
        ({"CANCELLED": 4}, 9.0, "Cancelled"),
    ],
)
def test_an_array_is_what_its_tasks_come_to(
    tasks: dict[str, int], finished_at: float | None, phase: str
) -> None:
    status = said.mirrored_array(Status(), array(tasks, finished_at=finished_at), 10.0)
    assert (status.phase, status.tasks) == (phase, tasks)
    assert status.over == (finished_at is not None)


def test_what_differs_from_what_was_submitted_is_named_and_nothing_is_no_value() -> None:
    submitted = said.submitted(JOB, "j", 0.0)
    same = replace(JOB, status=submitted, spec={"priority": 5, "run": "true", "team": None})
    assert said.differing(same) == ()
    other = replace(same, spec={"run": "false", "deadline": "2026-12-01T08:00:00Z"})
    assert said.differing(other) == ("deadline", "priority", "run")


def test_a_forecast_that_moves_can_wait_and_a_phase_cannot() -> None:
    before = said.mirrored(said.submitted(JOB, "j", 50.0), ROW, 200.0)
    later = said.mirrored(before, replace(ROW, expected_finish_at=7200.0, spent_usd=2.0), 300.0)
    assert said.only_forecast_moved(before, later)
    assert not said.only_forecast_moved(before, replace(later, phase="Succeeded"))
    assert not said.only_forecast_moved(before, replace(later, site="south"))


def test_a_record_that_is_gone_is_over_and_not_successful() -> None:
    status = said.forgotten(said.submitted(JOB, "j", 0.0), 10.0)
    assert status.over
    assert "Complete" not in kinds(status)


def test_messages_have_a_bound() -> None:
    status = said.refused(JOB, "invalid", "x" * 5000, 0.0)
    assert len(status.message) <= said.LONGEST
    assert len(msgspec.json.encode(status)) < 4 * said.LONGEST


@pytest.mark.parametrize("at", [float("inf"), float("nan"), -1.0, 253402300800.0, 1e300])
def test_moments_that_have_no_date_are_left_out(at: float) -> None:
    status = said.mirrored(said.submitted(JOB, "j", 50.0), replace(ROW, expected_finish_at=at), 200.0)
    assert status.expected_finish == ""

"""The demonstration may not end well when something was lost, run twice, rented without a cause or left unpaid."""

import msgspec
import pytest

from federator.cli.demo.findings import checks
from federator.cli.demo.outage import losses
from federator.cli.demo.processes import RunningRank
from federator.cli.demo.result import JobResult, LeaseResult, Result, Survival
from federator.cli.demo.story import worth_explaining
from federator.model.capacity import BurstEvidence
from federator.model.jobs import Job, JobStatus

EVIDENCE = BurstEvidence(
    job="j", policy="BurstPolicy/p", mode="economic", home_finish_at=200.0, burst_finish_at=90.0, deadline_at=100.0,
    cost_usd=1.0, value_usd=9.0, decision="dec",
)  # fmt: skip
LEASE = LeaseResult(
    id="l", offer="o", status="GONE", billed_usd=1.0, provider_status="ENDED", provider_billed_usd=1.0,
    evidence=EVIDENCE,
)  # fmt: skip
JOB = JobResult(
    name="train", id="j", owner="ada", queue="q", status="SUCCEEDED", site="lab", market="owned", submitted_at=0.0,
    started_at=1.0, finished_at=2.0, deadline_at=100.0, met=True, attempts=1, gpus=1,
)  # fmt: skip
SURVIVAL = Survival(
    killed_pid=1, new_pid=2, down_s=4.0, jobs_before=1, jobs_after=1, running_before=1, kept=1, worked_on=1
)
RESULT = Result(
    speed=60.0, began_at=0.0, took_s=50.0, jobs=(JOB,), leases=(LEASE,), spent_usd=1.0, cap_usd=60.0,
    gpu_hours={"lab": 1.0}, survival=SURVIVAL,
)  # fmt: skip


def broken(result: Result, journal: tuple[str, ...] = ()) -> list[str]:
    return [check.name for check in checks(result, journal) if not check.holds]


def test_a_good_run_passes() -> None:
    assert broken(RESULT) == []


def with_lease(**fields: object) -> Result:
    return msgspec.structs.replace(RESULT, leases=(msgspec.structs.replace(LEASE, **fields),))


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (
            msgspec.structs.replace(RESULT, jobs=(msgspec.structs.replace(JOB, status="FAILED"),)),
            "every accepted job has been done",
        ),
        (
            msgspec.structs.replace(
                RESULT, survival=msgspec.structs.replace(SURVIVAL, faults=("job x is gone",))
            ),
            "kill -9 of the dispatcher lost nothing",
        ),
        (
            msgspec.structs.replace(RESULT, survival=msgspec.structs.replace(SURVIVAL, jobs_after=0)),
            "kill -9 of the dispatcher lost nothing",
        ),
        (with_lease(evidence=None), "every rental had a cause"),
        (
            with_lease(evidence=msgspec.structs.replace(EVIDENCE, home_finish_at=99.0)),
            "every rental had a cause",
        ),
        (with_lease(evidence=msgspec.structs.replace(EVIDENCE, policy="")), "every rental had a cause"),
        (with_lease(status="READY"), "everything rented has been given back"),
        (with_lease(provider_status="RUNNING"), "everything rented has been given back"),
        (with_lease(provider_billed_usd=1.2), "the bill is right, and under the cap"),
        (msgspec.structs.replace(RESULT, spent_usd=61.0), "the bill is right, and under the cap"),
    ],
)
def test_what_must_not_be_is_found(result: Result, name: str) -> None:
    assert broken(result) == [name]


def test_a_second_copy_is_found() -> None:
    line = '{"what": "start", "at": 1, "job": "j", "placement": "p", "rank": 0}'
    assert broken(RESULT, (line, line)) == ["nothing ran twice"]


def job(**fields: object) -> Job:
    given = {"id": "j", "name": "train", "owner": "ada", "queue": "q", "status": JobStatus.RUNNING, "spec_hash": "s",
             "submitted_at": 0.0, "placement": "p1", "epoch": 1}  # fmt: skip
    return Job(**(given | fields))  # type: ignore[arg-type]


def test_a_job_that_ended_during_the_outage_is_no_loss() -> None:
    assert losses({"j": job()}, {"j": job(status=JobStatus.SUCCEEDED)}, set()) == []


def test_a_job_that_failed_by_itself_and_was_retried_is_no_loss() -> None:
    assert losses({"j": job()}, {"j": job(placement="p2", epoch=2, errors=1)}, set()) == []


def test_a_job_that_is_gone_or_was_started_again_is_found() -> None:
    assert losses({"j": job()}, {}, set()) == ["job train (j) is gone"]
    assert losses({"j": job()}, {"j": job(placement="p2", epoch=2)}, set()) == [
        "job train was started again: p1 became p2"
    ]


def test_two_living_attempts_of_one_job_are_found() -> None:
    """A gang's ranks are one attempt; another placement of the same job is a second copy."""
    gang = {RunningRank("j", "p1", "0"), RunningRank("j", "p1", "1")}
    assert losses({"j": job()}, {"j": job()}, gang) == []
    assert losses({"j": job()}, {"j": job()}, gang | {RunningRank("j", "p2", "0")}) == ["job j runs 2 times"]


def test_the_burst_and_the_most_pressed_of_those_that_stayed_are_explained() -> None:
    burst = msgspec.structs.replace(JOB, name="burst", market="on-demand", burst=EVIDENCE)
    later = msgspec.structs.replace(JOB, name="later", deadline_at=900.0)
    undue = msgspec.structs.replace(JOB, name="undue", deadline_at=None, met=None)
    result = msgspec.structs.replace(RESULT, jobs=(undue, later, JOB, burst))
    assert [each.name for each in worth_explaining(result)] == ["burst", "train"]

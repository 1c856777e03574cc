"""Elastic work goes on in another form of its own only, once it has settled: wider for itself, narrower for a job that waits."""

from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.plans import Preempt, Severity
from federator.model.snapshot import BusyView
from federator.planning.checks import check_actions
from tests.support.worlds import NOW, a_job, a_plan, a_pool, a_world, busy

FORMS = tuple(
    Form(1, Resources(gpus=Accelerators(count=gpus)), times) for gpus, times in ((1, 0.5), (4, 1.8))
)
RUNS = busy("pl-1", "job-1", gpus=2, waits_as=a_job("job-1", gpus=2, forms=FORMS, elastic=True), saves=True)
NARROWER, WIDER = 1, 2


def stop(form: int, beneficiary: str) -> Preempt:
    return Preempt(
        job="job-1", revision=3, placement="pl-1", beneficiary=beneficiary, because="it pays", form=form
    )


def faults(action: Preempt, runs: BusyView = RUNS, free: tuple[int, int] = (2, 4)) -> list[str]:
    pool = a_pool(free=tuple(Shape(gpus, 60_000, 200_000, 1) for gpus in free), busy=(runs,))
    found = check_actions(a_world([a_job()], [pool]), a_plan(action))
    return [finding.text for finding in found if finding.severity is Severity.FATAL]


def test_it_goes_on_wider_for_itself_and_narrower_for_one_that_waits() -> None:
    assert faults(stop(WIDER, "job-1")) == []
    assert faults(stop(NARROWER, "job-a"), free=(0, 0)) == []
    assert faults(stop(NARROWER, "job-a")) == ["job-a has room there without this job"]


def test_not_the_other_way_round_nor_for_one_that_does_not_wait() -> None:
    assert faults(stop(NARROWER, "job-1")) == [
        "a job goes on wider for itself alone, and narrower for another"
    ]
    assert faults(stop(WIDER, "job-a")) == ["a job goes on wider for itself alone, and narrower for another"]
    assert faults(stop(NARROWER, "job-9")) == ["the beneficiary job-9 does not wait"]


def test_only_in_another_form_that_it_has() -> None:
    assert faults(stop(0, "job-1")) == ["the job runs in form 0 and may not go on in form 0"]
    assert faults(stop(3, "job-1")) == ["the job runs in form 0 and may not go on in form 3"]
    assert faults(stop(WIDER, "job-1"), replace(RUNS, waits_as=None)) != []


def test_not_before_it_has_settled() -> None:
    assert faults(stop(WIDER, "job-1"), replace(RUNS, started_at=NOW - 599.0)) != []
    assert faults(stop(WIDER, "job-1"), replace(RUNS, displaced_at=NOW - 599.0)) != []
    assert faults(stop(WIDER, "job-1"), replace(RUNS, started_at=NOW - 600.0)) == []

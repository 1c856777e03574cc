"""The demonstration's world is data that the product accepts, and the two changes to it change what they say and nothing else."""

import pytest

from federator.cli.demo.world import load_world, tightened, without_deadlines
from federator.kernel.errors import Invalid
from federator.model.rules import QueueTerms
from federator.wire.jobfile import read_job
from federator_policies.documents import compile_set, load

NOW = 1_800_000_000.0


def test_every_job_file_is_accepted() -> None:
    jobs = [read_job(job.job, now=NOW) for job in load_world().jobs]
    assert sum(max(1, len(job.array)) for job in jobs) == 18
    assert sum(job.spec.nodes > 1 for job in jobs) == 1
    assert any(job.after for job in jobs)


def test_a_job_file_with_only_run_is_among_them() -> None:
    assert any(set(job.job) == {"run"} for job in load_world().jobs)


def test_only_one_job_has_a_deadline_that_is_near() -> None:
    """More than one would burst for a reason that the reader is not told about."""
    due = [request.spec.name for job in load_world().jobs if (request := read_job(job.job, now=NOW)).deadline_at
           and request.deadline_at < NOW + 2 * 3600]  # fmt: skip
    assert due == ["review-figures"]


def test_without_deadlines_nothing_is_ever_due() -> None:
    world = without_deadlines(load_world())
    assert all(read_job(job.job, now=NOW).deadline_at is None for job in world.jobs)
    rules = compile_set(load(world.policy_text))
    assert [rule.deadline_budget_s for rule in rules if isinstance(rule, QueueTerms)] == [None] * 4
    before = compile_set(load(load_world().policy_text))
    assert len(rules) == len(before), "only deadline budgets go, no rule"
    assert [job.name for job in world.jobs] == [job.name for job in load_world().jobs]


def test_tightening_changes_that_job_alone() -> None:
    before, after = load_world(), tightened(load_world(), "nightly-embed=45m")
    changed = {old.name for old, new in zip(before.jobs, after.jobs, strict=True) if old != new}
    assert changed == {"nightly-embed"}
    job = next(job for job in after.jobs if job.name == "nightly-embed")
    assert read_job(job.job, now=NOW).deadline_at == NOW + 45 * 60


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("no-such-job=1h", "there is no job 'no-such-job'"),
        ("pretrain=soon", "is not a duration"),
        ("pretrain", "is not JOB=DURATION"),
        ("=1h", "is not JOB=DURATION"),
    ],
)
def test_a_tightening_that_makes_no_sense_is_refused(given: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        tightened(load_world(), given)
    assert refused.value.field == "--tighten"

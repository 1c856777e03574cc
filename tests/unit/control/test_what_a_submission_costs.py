"""What a request of many jobs costs, in counts: what does not depend on the job is found once for all that are written together."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from federator.control.administration.authority import Authority
from federator.control.record.shares import Shares
from federator.control.submission.acceptance import Submission
from federator.control.submission.group_commit import GROUP
from federator.model.jobs import Job
from federator.store.blobs import MemoryBlobs
from federator.store.memory import MemoryStore
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, World, make_world

GROUPS = 5
KEPT = 5
"""Limits of what has ended, beside that of what is queued."""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def count(where: type, name: str) -> None:
        real: Callable[..., Any] = getattr(where, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(where, name, counting)

    count(MemoryBlobs, "free_bytes")
    count(Authority, "rights")
    count(Authority, "teams_of")
    count(MemoryBlobs, "has")
    count(Shares, "refuse_over")
    count(MemoryStore, "commit")
    return counts


def _asked(world: World, number: int, workdir: str) -> Submission:
    document = {"run": f"echo {number}", "resources": {"gpus": 1}, "workdir": f"sha256:{workdir}"}
    request = read_job(document, now=world.clock.now())
    return Submission(request, f"client-{number}", str(number))


async def test_jobs_that_are_written_together_are_held_to_the_limits_together(counts: Counter[str]) -> None:
    world, many = await make_world(), GROUPS * GROUP
    workdir = await world.upload(b"all of them use it")
    asked = [_asked(world, number, workdir) for number in range(many)]
    counts.clear()
    answers = await world.core.intake.submit_many(ADA, asked)
    assert all(isinstance(world.job(answer.jobs[0]), Job) for answer in answers)  # type: ignore[union-attr]
    assert counts == {
        "free_bytes": GROUPS,
        "rights": GROUPS,
        "teams_of": 2 * GROUPS,
        "has": GROUPS,
        "refuse_over": many + KEPT * GROUPS,
        "commit": GROUPS,
    }

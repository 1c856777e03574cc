"""When what Slurm says of a job that has passed its gate is an end."""

from types import SimpleNamespace
from typing import Any

import pytest

from federator.kernel.clock import ManualClock
from federator.model.placements import Cause
from federator_agent.core.events import RankEnded
from federator_agent.slurm.folder import Exit, Marks
from federator_agent.slurm.output import Job
from federator_agent.slurm.queue import QueueSnapshot
from federator_agent.slurm.rank_watch import RankWatch

TOLD = Marks({}, {}, {0: Exit(0, 1.0)}, frozenset({0}))


async def ends(*jobs: Job) -> list[RankEnded]:
    """What is told of the one rank, which has saved itself and exited with 0, after each of these looks."""
    told: list[Any] = []
    folder: Any = SimpleNamespace(signalled=False, said=lambda: "")
    watch = RankWatch(SimpleNamespace(), folder, "p1", "7", ManualClock(), told.append)  # type: ignore[arg-type]
    watch.add((0,))
    for job in jobs:
        watch.judge(QueueSnapshot([job], 0.0), TOLD)
    return told


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "FAILED"])
async def test_a_job_that_was_put_back_is_an_interruption(state: str) -> None:
    """`FAILED`: it has begun again, and found that it had begun before."""
    completing = Job("7", "p1", "COMPLETING", restarts=1)
    [end] = await ends(completing, Job("7", "p1", state, restarts=1))
    assert (end.exit_code, end.cause) == (None, Cause.EVICTED)
    assert "back into Slurm's queue" in end.detail


@pytest.mark.parametrize(("state", "restarts"), [("COMPLETING", 1), ("RUNNING", 1), ("PENDING", 0)])
async def test_what_may_still_run_has_not_ended(state: str, restarts: int) -> None:
    """`PENDING` and never put back: slurmctld has lost its latest state, and its nodes may run what it does not know of."""
    assert await ends(Job("7", "p1", state, restarts=restarts)) == []

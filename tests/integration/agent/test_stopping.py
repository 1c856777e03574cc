"""How work is ended: on an explicit order, by its time limit, by a failed rank; with its grace, and without mercy after it."""

import asyncio
import contextlib
import os
import secrets
import signal
from pathlib import Path

import pytest

from federator.model.placements import Cause, DesiredEntry, Order, PlacementStatus
from federator_agent.local import traces
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until

SAVES = "trap 'echo saved >$FEDERATOR_CHECKPOINT_DIR/state; exit 0' USR1; echo ready; while :; do sleep 0.02; done"
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


async def _ready(dispatcher: FakeDispatcher, placement: str) -> None:
    await dispatcher.until(lambda: "ready" in dispatcher.log(placement))


async def test_a_job_saves_itself_on_its_signal_and_finds_its_checkpoint_again(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run=SAVES), job="job-1", signal="USR1"))
    await _ready(dispatcher, "p1")
    await dispatcher.stop_placement("p1")
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.checkpointed) == (PlacementStatus.STOPPED, Cause.STOPPED, True)
    again = dispatcher.spec(run="echo $FEDERATOR_RESUME; cat $FEDERATOR_CHECKPOINT_DIR/state")
    await dispatcher.want(entry("p2", again, job="job-1", resume=True))
    assert (await dispatcher.ended("p2")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p2") == "1\nsaved\n"


async def test_what_does_not_end_within_its_grace_is_killed(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run=DEAF), grace_s=0.3))
    await _ready(dispatcher, "p1")
    await dispatcher.stop_placement("p1")
    end = await dispatcher.ended("p1")
    assert (end.status, end.checkpointed, end.exit_code) == (PlacementStatus.STOPPED, False, 137)


async def test_the_time_limit_ends_a_job(dispatcher: FakeDispatcher, agent: AgentProcess) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="sleep 600"), max_duration_s=0.3, grace_s=0.2))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause) == (PlacementStatus.FAILED, Cause.MAX_DURATION)
    assert end.started_at is not None
    assert end.ended_at is not None
    assert 0.3 <= end.ended_at - end.started_at < 60


async def test_a_time_limit_may_be_changed_while_it_runs(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    first = entry("p1", dispatcher.spec(run="echo ready; sleep 600"), max_duration_s=3600.0)
    await dispatcher.want(first)
    await _ready(dispatcher, "p1")
    await dispatcher.want(entry("p1", first.spec_hash, max_duration_s=0.1))
    assert (await dispatcher.ended("p1")).cause is Cause.MAX_DURATION


async def test_one_failed_rank_ends_its_gang_with_its_exit_code(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    others = f"while [ ! -e {tmp_path}/0 ] || [ ! -e {tmp_path}/2 ]; do sleep 0.02; done"
    run = f"if [ $FEDERATOR_NODE_RANK = 1 ]; then {others}; exit 9; fi; touch {tmp_path}/$FEDERATOR_NODE_RANK; sleep 600"
    await dispatcher.want(entry("p1", dispatcher.spec(run=run, nodes=3), nodes=3))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.EXIT, 9)
    assert "rank 1" in end.detail
    assert [rank.exit_code for rank in end.ranks] == [143, 9, 143]


async def test_what_a_rank_leaves_behind_is_ended_with_it(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    marker = f"7654.{secrets.randbelow(10**9):09}"  # others may run this test at the same time
    await dispatcher.want(entry("p1", dispatcher.spec(run=f"setsid sleep {marker} & sleep 0.1")))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    process = await asyncio.create_subprocess_exec("pgrep", "-f", f"^sleep {marker}")
    assert await process.wait() == 1


async def test_absence_from_the_desired_set_stops_nothing(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    await dispatcher.want(
        entry("p1", dispatcher.spec(run=f"echo ready; while [ ! -e {go} ]; do sleep 0.02; done; exit 2"))
    )
    await _ready(dispatcher, "p1")
    await dispatcher.want(forget=("p1",))
    await dispatcher.until(lambda: dispatcher.acks[-1].generation == dispatcher.generation)
    go.touch()
    assert (await dispatcher.ended("p1")).exit_code == 2


async def test_a_stop_for_what_never_came_is_answered_and_keeps_it_from_starting(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    spec = dispatcher.spec(run="true")
    await dispatcher.want(entry("p1", spec, order=Order.STOP))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.STOPPED
    late: DesiredEntry = entry("p1", spec, order=Order.RUN)
    await dispatcher.want(late, entry("p2", spec))
    await dispatcher.ended("p2")
    assert {report.status for report in dispatcher.statuses["p1"]} == {PlacementStatus.STOPPED}


async def test_a_stopped_set_up_leaves_nothing_running(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    marker = f"7655.{secrets.randbelow(10**9):09}"
    await dispatcher.want(entry("p1", dispatcher.spec(run="true", setup=f"echo ready; sleep {marker}")))
    await _ready(dispatcher, "p1")
    await dispatcher.stop_placement("p1")
    assert (await dispatcher.ended("p1")).status is PlacementStatus.STOPPED
    process = await asyncio.create_subprocess_exec("pgrep", "-f", f"sleep {marker}")
    assert await process.wait() == 1


async def test_a_set_up_that_hangs_is_ended_by_the_jobs_limit(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    marker = f"7656.{secrets.randbelow(10**9):09}"
    spec = dispatcher.spec(run="true", setup=f"echo ready; sleep {marker}")
    await dispatcher.want(entry("p1", spec, max_duration_s=2.0))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.MAX_DURATION, None)
    process = await asyncio.create_subprocess_exec("pgrep", "-f", f"sleep {marker}")
    assert await process.wait() == 1


TOLD_OR_NOT = [(True, PlacementStatus.LOST, Cause.EVICTED), (False, PlacementStatus.SUCCEEDED, Cause.EXIT)]


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize(("shim", "status", "cause"), TOLD_OR_NOT)
async def test_what_the_host_tells_to_end_has_not_succeeded(
    dispatcher: FakeDispatcher,
    agent: AgentProcess,
    *,
    shim: bool,
    status: PlacementStatus,
    cause: Cause,
    away: bool,
) -> None:
    """A shutdown sends TERM to every process, the shim too. Where somebody sends it to the job's own processes alone, the code is all that is known."""
    saves = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    await dispatcher.want(entry("p1", dispatcher.spec(run=saves)))
    await _ready(dispatcher, "p1")
    if away:
        await agent.end(signal.SIGTERM)
    _terminate(agent.placement("p1") / "rank-0", shim=shim)
    if away:
        await until((agent.placement("p1") / "rank-0" / "exit").exists, "its end")
        await agent.start()
    end = await dispatcher.ended("p1")
    assert "saved\n" in dispatcher.log("p1")
    assert (end.status, end.cause) == (status, cause), end


async def test_what_the_host_tells_to_end_and_the_agent_too_is_stopped(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run=SAVES), signal="USR1"))
    await _ready(dispatcher, "p1")
    shim = traces.read_shim(agent.placement("p1") / "rank-0")
    assert shim is not None
    os.kill(shim.pid, signal.SIGTERM)
    await dispatcher.stop_placement("p1")
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.checkpointed) == (PlacementStatus.STOPPED, Cause.STOPPED, True)


def _terminate(rank: Path, *, shim: bool) -> None:
    """TERM to all processes of a rank, as systemd does to all of a host; or to all but its shim."""
    found = traces.read_shim(rank)
    assert found is not None
    for pid in traces.processes(rank):
        if shim or pid != found.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

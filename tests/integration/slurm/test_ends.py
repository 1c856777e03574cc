"""How Slurm's own decisions end a job, each told by its true cause: local work first, limits, lost nodes, an administrator."""

import contextlib
from pathlib import Path

import pytest

from federator.model.placements import Cause, PlacementStatus
from tests.integration.slurm.conftest import Agents, SlurmAgent, gpus
from tests.support.waiting import until
from tests.testbeds.slurm import Slurm, SlurmFailed

RUNNING, LOST = PlacementStatus.RUNNING, PlacementStatus.LOST


async def _stop_it(agent: SlurmAgent, how: str) -> None:
    """What somebody at the site does to a job that runs."""
    job = await agent.job()
    if how == "scancel":
        await agent.slurm.command("scancel", job)
    elif how == "preempt":
        local = ("--partition=local", "--nodes=4", "--exclusive", "--output=/dev/null")
        await agent.slurm.submit("#!/bin/sh\nsleep 1000\n", *local)
    else:
        await agent.slurm.command("scontrol", "update", "nodename=n1", "state=down", "reason=test")


@pytest.mark.parametrize(
    ("how", "status", "cause", "words"),
    [
        ("scancel", LOST, Cause.EVICTED, "cancelled at the site"),
        ("preempt", LOST, Cause.EVICTED, "preempted"),
        ("down", LOST, Cause.NODE_LOST, "node"),
    ],
)
async def test_a_job_that_the_site_takes_off_has_not_failed(
    agents: Agents, east: Slurm, how: str, status: PlacementStatus, cause: Cause, words: str
) -> None:
    """Although its command ends with a code of its own on Slurm's TERM, one rank long before the other."""
    agent = await agents.of(east)
    run = 'trap "exit 4" TERM; [ $FEDERATOR_NODE_RANK = 0 ] && trap "sleep 0.6; exit 0" TERM; while :; do sleep 0.05; done'
    await agent.run_job(run, nodes=2, resources=gpus(8))
    await agent.is_(RUNNING)
    try:
        await _stop_it(agent, how)
        end = await agent.ended()
    finally:
        if how == "down":
            await _up(east)
    assert (end.status, end.cause) == (status, cause), end
    assert words in end.detail


async def test_a_preempted_job_has_its_grace(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    """In a partition with a grace Slurm goes on to say RUNNING while the command already ends; that is no failure of its own."""
    agent = await agents.of(east)
    ready = tmp_path / "ready"
    run = f'trap "echo saved; exit 4" TERM; touch {ready}; while :; do sleep 0.05; done'
    await agent.run_job(run, queue="polite", resources=gpus(8))
    await until(ready.exists, "it to run")
    await agent.is_(RUNNING)
    await _stop_it(agent, "preempt")
    end = await agent.ended()
    assert "saved\n" in agent.log()
    assert (end.status, end.cause) == (LOST, Cause.EVICTED), end


SAVES = 'trap "echo saved; exit 0" TERM; touch {ready}; while :; do sleep 0.05; done'


@pytest.mark.parametrize("how", ["scancel", "preempt", "signal"])
async def test_a_job_that_saves_itself_and_exits_well_when_it_is_told_to_go_has_not_succeeded(
    agents: Agents, east: Slurm, tmp_path: Path, how: str
) -> None:
    """`signal`: `scancel --signal=TERM`, of which Slurm itself keeps nothing. `scontrol requeue` is refused: it is submitted with `--no-requeue`."""
    agent = await agents.of(east)
    ready = tmp_path / "ready"
    await agent.run_job(
        SAVES.format(ready=ready), queue="polite" if how == "preempt" else "", resources=gpus(8)
    )
    await until(ready.exists, "it to run")
    await agent.is_(RUNNING)
    if how == "signal":
        with pytest.raises(SlurmFailed):
            await east.command("scontrol", "requeue", await agent.job())
        await east.command("scancel", "--signal=TERM", await agent.job())
    else:
        await _stop_it(agent, how)
    end = await agent.ended()
    assert "saved\n" in agent.log()
    assert (end.status, end.cause) == (LOST, Cause.EVICTED), end


async def _requeue(slurm: Slurm, job: str, how: str) -> None:
    """As an operator forces it upon a job that was submitted with `--no-requeue`."""
    await slurm.command("scontrol", "update", f"jobid={job}", "requeue=1")
    await slurm.command("scontrol", how, job)


@pytest.mark.parametrize("how", ["requeue", "requeuehold"])
@pytest.mark.parametrize("away", [False, True], ids=["seen", "with-the-agent-away"])
async def test_a_requeue_that_is_forced_is_an_interruption_at_once_and_runs_nothing_twice(
    agents: Agents, east: Slurm, tmp_path: Path, how: str, *, away: bool
) -> None:
    """Slurm would begin it again after two minutes, or when somebody releases it. The federation knows as soon as nothing of it runs."""
    agent = await agents.of(east)
    begun = tmp_path / "begun"
    await agent.run_job(f'trap "exit 0" TERM; echo >>{begun}; while :; do sleep 0.05; done')
    await until(begun.exists, "it to run")
    await agent.is_(RUNNING)
    job = await agent.job()
    if away:
        await agent.kill()
        await _requeue(east, job, how)
        await agent.has("PENDING")
        if how == "requeuehold":
            await east.command("scontrol", "release", job)
        await east.command("scontrol", "update", f"jobid={job}", "starttime=now")
        await agent.has("FAILED")
        await agent.start()
    else:
        await _requeue(east, job, how)
    end = await agent.ended()
    assert (end.status, end.cause) == (LOST, Cause.EVICTED), end
    assert "back into Slurm's queue" in end.detail
    assert (await agent.jobs())[0].split()[0] == ("FAILED" if away else "PENDING")
    assert begun.read_text() == "\n"


async def test_a_requeue_at_the_gate_runs_nothing(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    """The agent learns of both at once: that its ranks are there, and that they are not any more."""
    agent = await agents.of(east)
    silent, begun = tmp_path / "silent", tmp_path / "begun"
    agent.replace("squeue", f'while [ -e {silent} ]; do sleep 0.05; done; exec $REAL "$@"')
    agent.replace("sbatch", f'touch {silent}; exec $REAL "$@"')
    await agent.run_job(f"touch {begun}")
    folder = agent.shared / "placements" / agent.id()
    await until((folder / "at-gate-0").exists, "its rank to come to the gate")
    await _requeue(east, await agent.job(), "requeuehold")
    await agent.has("PENDING")
    silent.unlink()
    end = await agent.ended()
    assert (end.status, end.cause) == (LOST, Cause.EVICTED), end
    await agent.has("CANCELLED")
    assert not begun.exists()


async def test_a_slurmd_that_dies_and_a_time_limit(agents: Agents, east: Slurm) -> None:
    """Slurm takes half a minute over either, and the agent waits with it: a node that does not answer proves nothing."""
    agent = await agents.of(east)
    await agent.run_job("exec sleep 1000", nodes=2, resources=gpus(8))
    await agent.is_(RUNNING)
    saves = SAVES.format(ready="at-work")
    await agent.run_job(saves, placement="p2", resources=gpus(8))
    await agent.is_(RUNNING, "p2")
    await agent.slurm.command("scontrol", "update", f"jobid={await agent.job('p2')}", "endtime=now")
    last = agent.dispatcher.last(agent.id())
    assert last is not None
    node = last.ranks[1].node
    east.kill(node)
    try:
        lost, limited = await agent.ended(), await agent.ended("p2")
    finally:
        east.start(node)
        await _up(east)
    assert (lost.status, lost.cause) == (LOST, Cause.NODE_LOST), lost
    assert (limited.status, limited.cause) == (PlacementStatus.FAILED, Cause.MAX_DURATION), limited
    assert "time limit" in limited.detail


async def _up(slurm: Slurm) -> None:
    """Wait until no node is down: one whose slurmd has come back may be told to go on."""

    async def holds() -> bool:
        with contextlib.suppress(SlurmFailed):
            await slurm.command("scontrol", "update", f"nodename={','.join(slurm.nodes)}", "state=resume")
        return "down" not in await slurm.command("sinfo", "--noheader", "--format=%T")

    await until(holds, "its nodes to come back")


async def test_a_slurmctld_that_is_away_ends_nothing(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    """The site says that it does not answer and lends nothing; what runs goes on, and ends as it does."""
    agent = await agents.of(east)
    go = tmp_path / "go"
    await agent.run_job(f"while [ ! -e {go} ]; do sleep 0.05; done; exit 3")
    await agent.is_(RUNNING)
    east.stop("slurmctld")
    try:
        dispatcher = agent.dispatcher
        report = await dispatcher.until(
            lambda: (last := dispatcher.reports[-1]).health.startswith("Slurm") and last
        )
        assert not report.pools[0].free
        assert dispatcher.last(agent.id()).status is RUNNING  # type: ignore[union-attr]
    finally:
        east.start("slurmctld")
    await dispatcher.until(lambda: dispatcher.reports[-1].health == "ok")
    go.touch()
    end = await agent.ended()
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 3)

"""The agent is killed in every phase of a job: nothing runs twice, nothing is lost, and every end is the true one."""

from pathlib import Path

from federator.model.placements import Cause, PlacementStatus
from tests.integration.slurm.conftest import Agents, SlurmAgent, gpus
from tests.support.waiting import until
from tests.testbeds.slurm import Slurm

SUBMIT_AND_KILL = '"$REAL" "$@" >/dev/null && kill -KILL $PPID'
"""The reply is lost together with who asked."""
LOSE_REPLY = (
    '"$REAL" "$@" >/dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1'
)
NEVER_ARRIVES = 'echo once >>"$0.asked"; echo "sbatch: error: Unable to contact slurm controller" >&2; exit 1'


def _once(tmp_path: Path, then: str = "exit 6") -> str:
    """A command that notes each of its starts."""
    return f"echo start >>{tmp_path}/starts; {then}"


async def _ends_once(agent: SlurmAgent, tmp_path: Path) -> None:
    """It has one job in Slurm, one start and its own exit code."""
    end = await agent.ended()
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.EXIT, 6), end
    assert (tmp_path / "starts").read_text() == "start\n"
    assert len(await agent.jobs()) <= 1


async def test_killed_before_it_was_submitted(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    agent = await agents.of(east)
    setting_up, go = tmp_path / "setting-up", tmp_path / "go"
    setup = f"touch {setting_up}; while [ ! -e {go} ]; do sleep 0.05; done"
    await agent.run_job(_once(tmp_path), setup=setup)
    await until(setting_up.exists, "the set-up to run")
    await agent.kill()
    go.touch()
    await agent.start()
    await _ends_once(agent, tmp_path)


async def test_killed_before_the_reply_of_sbatch(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    agent = await agents.of(east)
    agent.replace("sbatch", SUBMIT_AND_KILL)
    await agent.run_job(_once(tmp_path))
    await agent.wait()
    assert len(await agent.jobs()) == 1
    agent.replace("sbatch", NEVER_ARRIVES)
    await agent.start()
    await _ends_once(agent, tmp_path)
    assert not (agent.programs / "sbatch.asked").exists()


async def test_a_lost_reply_is_looked_for(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    agent = await agents.of(east)
    agent.replace("sbatch", LOSE_REPLY)
    await agent.run_job(_once(tmp_path))
    await _ends_once(agent, tmp_path)


async def test_what_was_to_be_submitted_and_cannot_be_found_is_lost(agents: Agents, east: Slurm) -> None:
    """And never submitted again."""
    agent = await agents.of(east)
    agent.replace("sbatch", NEVER_ARRIVES)
    await agent.run_job("true")
    end = await agent.ended()
    assert (end.status, end.cause) == (PlacementStatus.LOST, Cause.NODE_LOST), end
    assert "not submitted twice" in end.detail
    assert (agent.programs / "sbatch.asked").read_text() == "once\n"
    assert await agent.jobs() == []


async def test_killed_while_it_waits_in_slurms_queue(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    agent = await agents.of(east)
    local = await east.submit(
        "#!/bin/sh\nsleep 1000\n", "--partition=narrow", "--exclusive", "--output=/dev/null"
    )
    await agent.run_job(_once(tmp_path), queue="narrow", resources=gpus(8))
    await agent.has("PENDING")
    await agent.kill()
    await east.command("scancel", local)
    await agent.has("RUNNING")
    assert not (tmp_path / "starts").exists()
    await agent.start()
    await _ends_once(agent, tmp_path)


async def test_killed_while_it_runs(agents: Agents, east: Slurm, tmp_path: Path) -> None:
    agent = await agents.of(east)
    go = tmp_path / "go"
    await agent.run_job(_once(tmp_path, f"while [ ! -e {go} ]; do sleep 0.05; done; exit 6"))
    await agent.is_(PlacementStatus.RUNNING)
    await agent.kill()
    sessions = agent.dispatcher.sessions
    await agent.start()
    await agent.dispatcher.until(lambda: agent.dispatcher.sessions > sessions)
    go.touch()
    await _ends_once(agent, tmp_path)


async def test_killed_and_the_job_ends_meanwhile(
    agents: Agents, east: Slurm, west: Slurm, tmp_path: Path
) -> None:
    """At one cluster Slurm still knows how; the other has forgotten that there was such a job, and its marks tell."""
    for slurm, forgets in ((east, False), (west, True)):
        agent = await agents.of(slurm)
        here = tmp_path / ("west" if forgets else "east")
        here.mkdir()
        run = _once(here, f"while [ ! -e {here}/go ]; do sleep 0.05; done; exit 6")
        await agent.run_job(run)
        await agent.is_(PlacementStatus.RUNNING)
        await agent.kill()
        (here / "go").touch()
        await agent.has(*(() if forgets else ("FAILED",)))
        await agent.start()
        await _ends_once(agent, here)


async def test_cancelled_and_forgotten_while_the_agent_is_away(agents: Agents, west: Slurm) -> None:
    """What Slurm has written into the job's output is all that is left to tell an eviction from a failure."""
    agent = await agents.of(west)
    await agent.run_job("exec sleep 1000")
    await agent.is_(PlacementStatus.RUNNING)
    await agent.kill()
    await west.command("scancel", await agent.job())
    await agent.has()
    await agent.start()
    end = await agent.ended()
    assert (end.status, end.cause) == (PlacementStatus.LOST, Cause.EVICTED), end

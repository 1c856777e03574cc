"""The agent is killed while work runs: nothing runs twice, nothing is lost, and every exit code is the true one."""

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path

from aiohttp import WSCloseCode

from federator.kernel.systemd import GRACE_S
from federator.model.jobs import Accelerators, Resources
from federator.model.placements import Cause, PlacementStatus
from federator.model.spans import trace_id
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.agent.test_staging import archive
from tests.support.waiting import until

KILL = signal.SIGKILL
LEFT_S = 20.0
"""What the units and the chart leave before they kill."""


async def _running(dispatcher: FakeDispatcher, placement: str) -> None:
    await dispatcher.until(
        lambda: (last := dispatcher.last(placement)) and last.status is PlacementStatus.RUNNING
    )


async def _shim_pid(agent: AgentProcess, placement: str, rank: int = 0) -> int:
    """A rank counts as started once its shim is spawned; the shim writes who it is a moment later."""
    written = agent.placement(placement) / f"rank-{rank}" / "shim"
    return int((await _words_in(written))[0])


async def _words_in(path: Path) -> list[str]:
    """What somebody writes, once it is there whole."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"), f"a line in {path.name}")
    return path.read_text().split()


async def test_work_that_goes_on_is_found_again_with_its_exit_code(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    go = [tmp_path / "go-0", tmp_path / "go-1"]
    wait = f"while [ ! -e {tmp_path}/go-$FEDERATOR_NODE_RANK ]; do sleep 0.02; done"
    spec = dispatcher.spec(
        run=f"echo once >>{tmp_path}/starts; {wait}; echo end; exit $((FEDERATOR_NODE_RANK * 5))",
        nodes=2,
        resources=Resources(gpus=Accelerators(count=2)),
    )
    await dispatcher.want(entry("p1", spec, nodes=2))
    await _running(dispatcher, "p1")
    await agent.end(KILL)
    await agent.start()
    await dispatcher.until(lambda: dispatcher.sessions >= 2 and dispatcher.reports[-1].counted == ("p1",))
    assert sorted(shape.gpus for shape in dispatcher.reports[-1].pools[0].free) == [0, 4]
    go[0].touch()
    await dispatcher.until(lambda: dispatcher.log("p1") == "end\n")
    go[1].touch()
    end = await dispatcher.ended("p1")
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 5)
    assert [rank.exit_code for rank in end.ranks] == [0, 5]
    assert (tmp_path / "starts").read_text() == "once\nonce\n"
    assert [dispatcher.log("p1", rank) for rank in (0, 1)] == ["end\n", "end\n"]


async def test_it_ends_in_time_with_work_in_every_stage_and_its_work_goes_on(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    """Rolled out anew, drained or shut down while it is busy; who ends it kills after 20 seconds."""
    go, ended = tmp_path / "go", tmp_path / "set-up"
    runs = dispatcher.spec(run=f"while [ ! -e {go} ]; do echo line; sleep 0.02; done; exit 5", nodes=2)
    deaf = f"trap '' TERM; touch {ended}.begun; while [ ! -e {go} ]; do sleep 0.02; done"
    sets_up = dispatcher.spec(run="true", setup=deaf)
    fetches = dispatcher.spec(run="true", workdir=dispatcher.blob(archive({"main.sh": "true"})))
    dispatcher.blobs_come.clear()
    try:
        await dispatcher.want(
            entry("p1", runs, nodes=2, pool="gpu"),
            entry("p2", sets_up, pool="gpu"),
            entry("p3", fetches, pool="cpu"),
        )
        await _running(dispatcher, "p1")
        await dispatcher.until(lambda: dispatcher.blob_gets)
        await until(Path(f"{ended}.begun").exists, "the set-up")
        async with asyncio.timeout(LEFT_S):
            assert await agent.end() == 0, agent.output.read_text()
    finally:
        dispatcher.blobs_come.set()
    assert GRACE_S < LEFT_S
    await agent.start()
    await dispatcher.until(lambda: dispatcher.sessions >= 2)
    go.touch()
    assert (await dispatcher.ended("p1")).exit_code == 5
    for placement in ("p2", "p3"):
        assert (await dispatcher.ended(placement)).status is PlacementStatus.SUCCEEDED


async def test_its_lines_are_json_and_name_the_trace_of_the_job_where_the_site_file_says_so(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await agent.end()
    agent.output.write_text("")
    agent.config.write_text(agent.config.read_text() + "log_format: json\n")
    await agent.start()
    job, placement = "job-01k742sg0013452znrksnf95fy", "pl-01k742sg0013452znrksnf95fz"
    await dispatcher.want(entry(placement, dispatcher.spec(run="sleep 600"), job=job))
    await _running(dispatcher, placement)
    await dispatcher.stop_placement(placement)
    await dispatcher.ended(placement)
    lines = [json.loads(line) for line in agent.output.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warning"}
    (about,) = {line["trace_id"] for line in lines if placement in line["event"]}
    assert about == f"{trace_id(job):032x}"
    assert any("trace_id" not in line for line in lines)


async def test_a_site_file_that_has_changed_is_taken_on_hangup_and_one_with_mistakes_is_not(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    go, told = tmp_path / "go", socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with told:
        await agent.end()
        told.bind(str(tmp_path / "notify"))
        told.settimeout(30.0)
        agent.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3600000000"}
        await agent.start()
        assert await asyncio.to_thread(told.recv, 100) == b"READY=1"
        assert await asyncio.to_thread(told.recv, 100) == b"WATCHDOG=1"
        spec = dispatcher.spec(
            run=f"echo once >>{tmp_path}/starts; while [ ! -e {go} ]; do sleep 0.02; done; exit 6"
        )
        await dispatcher.want(entry("p1", spec))
        await _running(dispatcher, "p1")
        site, pid, sessions = agent.config.read_text(), agent.pid, dispatcher.sessions
        for wrong, said in (
            (site + "ca: /no/such/file\n", "$.ca"),
            (re.sub("(?s)pools:.*", "kube: {image: i}\n", site), "$.kube: cannot change"),
            ("nodes: many\n", "nodes"),
            (site.replace("site: here", "site: there"), r"$.site: cannot change"),
        ):
            agent.config.write_text(wrong)
            os.kill(pid, signal.SIGHUP)
            await agent.has_said("all goes on as before")
            await agent.has_said(said)
        assert dispatcher.sessions == sessions
        agent.config.write_text(site + "lend: {gpus: {gpu: 3}}\n")
        os.kill(pid, signal.SIGHUP)
        await dispatcher.until(lambda: dispatcher.sessions > sessions and _gpus(dispatcher) == 3)
        assert await asyncio.to_thread(told.recv, 100) == b"READY=1"
    alive = agent.state / "alive"
    await dispatcher.until(lambda: alive.read_text() == "connected\n")
    go.touch()
    end = await dispatcher.ended("p1")
    assert (end.status, end.exit_code, agent.pid) == (PlacementStatus.FAILED, 6, pid)
    assert (tmp_path / "starts").read_text() == "once\n"
    assert await agent.end() == 0, "it is the same process, and ends as told"


def _gpus(dispatcher: FakeDispatcher) -> int:
    return sum(shape.gpus * shape.count for pool in dispatcher.reports[-1].pools for shape in pool.free)


async def test_work_that_ended_meanwhile_is_told_as_it_was(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    spec = dispatcher.spec(run=f"while [ ! -e {go} ]; do sleep 0.02; done; exit 6")
    await dispatcher.want(entry("p1", spec))
    await _running(dispatcher, "p1")
    await agent.end(KILL)
    go.touch()
    exit_file = agent.placement("p1") / "rank-0" / "exit"
    await until(exit_file.exists, "the end of the work")
    told_before = len(dispatcher.statuses["p1"])
    await agent.start()
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.EXIT, 6)
    assert all(
        report.seq > dispatcher.statuses["p1"][told_before - 1].seq
        for report in dispatcher.statuses["p1"][told_before:]
    )


async def test_a_rank_whose_shim_is_gone_is_lost_and_nothing_of_it_runs(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    spec = dispatcher.spec(run=f"setsid sleep 777 & echo $! $$ >{tmp_path}/pids; wait")
    await dispatcher.want(entry("p1", spec))
    await _running(dispatcher, "p1")
    pids = await _words_in(tmp_path / "pids")
    await agent.end(KILL)
    os.kill(await _shim_pid(agent, "p1"), KILL)
    await agent.start()
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause) == (PlacementStatus.LOST, Cause.NODE_LOST)
    assert "without an exit code" in end.detail
    for pid in pids:
        assert not _alive(int(pid))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or while it is read
        return False


async def test_a_shim_killed_under_a_running_agent_is_a_loss_too(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="sleep 777", nodes=2), nodes=2))
    await _running(dispatcher, "p1")
    os.kill(await _shim_pid(agent, "p1", rank=1), KILL)
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause) == (PlacementStatus.LOST, Cause.NODE_LOST)
    assert "rank 1" in end.detail


async def test_a_terminal_status_outlives_dispatcher_and_agent(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    dispatcher.acknowledge = False
    await dispatcher.want(entry("p1", dispatcher.spec(run="exit 4")))
    first = await dispatcher.ended("p1")
    await dispatcher.stop()
    await agent.end(KILL)
    await agent.start()
    dispatcher.acknowledge = True
    dispatcher.statuses.clear()
    await dispatcher.start()
    assert await dispatcher.ended("p1") == first
    await dispatcher.want(forget=("p1",))
    await dispatcher.until(lambda: dispatcher.reports[-1].counted == ())
    await agent.gone("p1")


async def test_a_stop_that_came_before_the_crash_is_carried_through(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    spec = dispatcher.spec(run="trap '' TERM; echo ready; while :; do sleep 0.05; done")
    await dispatcher.want(entry("p1", spec, grace_s=1.0))
    await dispatcher.until(lambda: "ready" in dispatcher.log("p1"))
    await dispatcher.stop_placement("p1")
    await dispatcher.until(lambda: dispatcher.acks[-1].generation == 2)
    await agent.end(KILL)
    await agent.start()
    end = await dispatcher.ended("p1")
    assert (end.status, end.checkpointed) == (PlacementStatus.STOPPED, False)


async def test_two_agents_on_one_state_directory_are_refused(agent: AgentProcess) -> None:
    code, output = await agent.run("serve")
    assert code == 1
    assert "another agent is running" in output


async def test_ending_the_agent_does_not_end_its_work(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    spec = dispatcher.spec(run=f"while [ ! -e {go} ]; do sleep 0.02; done; exit 8")
    await dispatcher.want(entry("p1", spec))
    await _running(dispatcher, "p1")
    assert await agent.end(signal.SIGTERM) == 0
    go.touch()
    await agent.start()
    assert (await dispatcher.ended("p1")).exit_code == 8


async def test_an_agent_that_is_stopped_says_goodbye_and_one_that_is_killed_cannot(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.until(lambda: dispatcher.acks)
    assert await agent.end(signal.SIGTERM) == 0
    await dispatcher.until(lambda: dispatcher.close_codes)
    assert dispatcher.close_codes == [WSCloseCode.GOING_AWAY]
    await agent.start()
    await dispatcher.until(lambda: dispatcher.sessions == 2)
    await agent.end(KILL)
    await dispatcher.until(lambda: len(dispatcher.close_codes) == 2)
    assert dispatcher.close_codes[1] != WSCloseCode.GOING_AWAY


async def test_probes_do_not_take_the_sign_of_life_of_an_agent_that_was_killed(tmp_path: Path) -> None:
    """It is gone before anything that may take long: here the agent has not even joined."""
    agent = AgentProcess(tmp_path, "http://127.0.0.1:1")
    agent.state.mkdir()
    (agent.state / "alive").write_text("connected\n")
    code, said = await agent.run("serve")
    assert (code, "has not joined" in said) == (1, True)
    assert not (agent.state / "alive").exists()

"""The link breaks, comes back, refuses, changes its mind; the owner pauses. The work does not notice."""

from pathlib import Path

from federator.model.placements import Cause, PlacementStatus
from federator.wire.link import ZIPPED_LOGS, Allotments, Refusal, encode
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import TOKEN, FakeDispatcher
from tests.support.waiting import until
from tests.unit.agent.test_local_jobs import ALLOTMENT


async def test_a_cut_link_comes_back_and_nothing_is_missing(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    spec = dispatcher.spec(run=f"echo before; while [ ! -e {go} ]; do sleep 0.02; done; echo after; exit 1")
    await dispatcher.want(entry("p1", spec))
    await dispatcher.until(lambda: "before" in dispatcher.log("p1"))
    await dispatcher.stop()
    go.touch()
    await until((agent.placement("p1") / "rank-0" / "exit").exists, "the end of the work")
    await dispatcher.start()
    assert (await dispatcher.ended("p1")).exit_code == 1
    assert dispatcher.log("p1") == "before\nafter\n"


async def test_a_log_goes_on_from_where_the_dispatchers_copy_ends(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    dispatcher.fail_logs = 2
    await dispatcher.want(entry("p1", dispatcher.spec(run="seq 1 200000")))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p1") == "".join(f"{number}\n" for number in range(1, 200_001))


async def test_logs_are_compressed_on_the_way_to_a_dispatcher_that_takes_them_so(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    dispatcher.takes = (*dispatcher.takes, ZIPPED_LOGS)
    sessions = dispatcher.sessions
    await dispatcher.cut()
    await dispatcher.until(lambda: dispatcher.sessions > sessions)
    dispatcher.fail_logs = 2
    await dispatcher.want(entry("p1", dispatcher.spec(run="seq 1 200000")))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p1") == "".join(f"{number}\n" for number in range(1, 200_001))
    assert dispatcher.log_bytes < len(dispatcher.log("p1")) / 2


async def test_a_log_goes_on_as_it_is_to_an_older_dispatcher_that_takes_its_place(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    older, dispatcher.takes = dispatcher.takes, (*dispatcher.takes, ZIPPED_LOGS)
    dispatcher.fail_logs = 10_000
    sessions = dispatcher.sessions
    await dispatcher.cut()
    await dispatcher.until(lambda: dispatcher.sessions > sessions)
    await dispatcher.want(entry("p1", dispatcher.spec(run="seq 1 200000")))
    await dispatcher.until(lambda: dispatcher.log_bytes)
    await dispatcher.stop()
    dispatcher.takes, dispatcher.fail_logs = older, 0
    dispatcher.sessions += 1  # the ticket of the one before is worth nothing here
    await dispatcher.start()
    await dispatcher.ended("p1")
    assert dispatcher.log("p1") == "".join(f"{number}\n" for number in range(1, 200_001))


async def test_a_new_store_is_told_everything_again_and_the_old_one_is_not_gone_back_to(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(
        entry("p1", dispatcher.spec(run="exit 3")), entry("p2", dispatcher.spec(run="sleep 600"))
    )
    await dispatcher.ended("p1")
    await dispatcher.until(lambda: (last := dispatcher.last("p2")) and last.status is PlacementStatus.RUNNING)
    dispatcher.statuses.clear()
    dispatcher.incarnation, dispatcher.generation, dispatcher.desired = "inc-2", 0, {}
    await dispatcher.cut()
    assert (await dispatcher.ended("p1")).exit_code == 3
    await dispatcher.until(lambda: (last := dispatcher.last("p2")) and last.status is PlacementStatus.RUNNING)
    sessions = dispatcher.sessions
    dispatcher.incarnation = "inc-1"
    await dispatcher.cut()
    await agent.has_said("given up")
    assert dispatcher.sessions == sessions


async def test_an_older_term_is_not_obeyed(dispatcher: FakeDispatcher, agent: AgentProcess) -> None:
    await dispatcher.until(lambda: dispatcher.acks)
    dispatcher.term = 5
    await dispatcher.cut()
    await dispatcher.until(lambda: dispatcher.sessions >= 2 and len(dispatcher.acks) >= 2)
    acks = len(dispatcher.acks)
    dispatcher.term = 4
    await dispatcher.want(entry("p1", dispatcher.spec(run="true")))
    await dispatcher.until(lambda: len(dispatcher.acks) > acks)
    assert dispatcher.acks[-1].generation == 0
    dispatcher.term = 5
    await dispatcher.want(entry("p2", dispatcher.spec(run="true")))
    await dispatcher.ended("p2")
    assert "p1" not in dispatcher.statuses


async def test_a_refused_agent_waits_as_long_as_it_was_told(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    dispatcher.refuse = Refusal("full", "come back later", retry_after_s=0.1)
    await dispatcher.cut()
    await agent.has_said("come back later")
    dispatcher.refuse = None
    await dispatcher.until(lambda: dispatcher.sessions >= 2)


async def test_an_agent_that_is_not_let_in_any_more_has_no_allotment(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.until(lambda: dispatcher.acks)
    for socket in dispatcher.sockets:
        await socket.send_str(encode(Allotments((ALLOTMENT,))).decode())
    journal = agent.placement("p1").parents[1] / "journal"
    await until(lambda: ALLOTMENT.policy in journal.read_text(), "the allotment to be kept")
    dispatcher.refuse = Refusal("unauthenticated", "the key was revoked")
    await dispatcher.cut()
    await until(lambda: '"allotments":[]' in journal.read_text(), "the allotment to be given up")


async def test_a_paused_site_refuses_new_work_and_keeps_what_runs(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="echo ready; sleep 600")))
    await dispatcher.until(lambda: "ready" in dispatcher.log("p1"))
    assert (await agent.run("pause"))[0] == 0
    await dispatcher.until(lambda: dispatcher.reports[-1].paused)
    await dispatcher.want(entry("p2", dispatcher.spec(run="true")))
    end = await dispatcher.ended("p2")
    assert (end.status, end.cause, "paused" in end.detail) == (PlacementStatus.REFUSED, Cause.CANNOT, True)
    code, output = await agent.run("status")
    assert code == 0
    assert "running, paused" in output
    assert "p1 job running" in output
    assert (await agent.run("resume"))[0] == 0
    await dispatcher.until(lambda: not dispatcher.reports[-1].paused)
    await dispatcher.want(entry("p3", dispatcher.spec(run="true")))
    assert (await dispatcher.ended("p3")).status is PlacementStatus.SUCCEEDED


async def test_only_who_has_the_token_can_join(dispatcher: FakeDispatcher, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, dispatcher.url)
    code, output = await agent.run("join", "--token", "guessed")
    assert (code, "join token is not known" in output) == (1, True)
    code, output = await agent.run("serve")
    assert (code, "has not joined" in output) == (1, True)
    code, output = await agent.run("join", "--token", TOKEN)
    assert (code, "joined" in output) == (0, True), output
    assert dispatcher.keys


async def test_a_rented_machine_joins_by_its_user_data(dispatcher: FakeDispatcher, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, dispatcher.url, more=f"join_token: {TOKEN}\nmember: rented-1\n")
    await agent.start_as_instance()
    try:
        await dispatcher.until(lambda: dispatcher.reports)
        assert list(dispatcher.keys) == ["rented-1"]
    finally:
        await agent.end()


async def test_check_proves_an_installation(dispatcher: FakeDispatcher, agent: AgentProcess) -> None:
    code, output = await agent.run("check")
    assert code == 0, output
    assert "2 hosts, each 4 GPUs A100" in output
    await dispatcher.stop()
    code, output = await agent.run("check")
    assert (code, "cannot be reached" in output) == (1, True)


async def test_an_agent_leaves_only_when_its_work_is_over(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="sleep 600")))
    await dispatcher.until(lambda: (last := dispatcher.last("p1")) and last.status is PlacementStatus.RUNNING)
    await agent.end()
    code, output = await agent.run("leave")
    assert (code, "p1" in output) == (1, True)
    await agent.start()
    await dispatcher.stop_placement("p1")
    await dispatcher.ended("p1")
    await agent.gone("p1")
    await agent.end()
    assert (await agent.run("leave"))[0] == 0
    assert not (agent.state / "key").exists()


async def test_reports_ask_for_renewals_and_a_slow_agent_does_not_promise_to_fence(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    assert dispatcher.reports[-1].self_fencing
    await agent.end()
    agent.config.write_text(agent.config.read_text().replace("report_every: 1s", "report_every: 11s"))
    dispatcher.reports.clear()
    await agent.start()
    await dispatcher.until(lambda: dispatcher.reports)
    assert not dispatcher.reports[-1].self_fencing

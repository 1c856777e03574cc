"""Code in, results out: work directories, set-up once per site, outputs; and archives that try to break out."""

import contextlib
import io
import os
import signal
import tarfile
from pathlib import Path

import pytest

from federator.kernel.ids import content_hash
from federator.model.jobs import InputFrom
from federator.model.placements import Cause, PlacementStatus
from federator.wire.link import OutputArchive
from federator_agent.local import traces
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until


def archive(files: dict[str, str], links: dict[str, str] | None = None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            member.mode = 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return data.getvalue()


async def test_a_work_directory_is_where_the_job_runs_and_each_placement_has_its_own(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    workdir = dispatcher.blob(archive({"main.sh": "cat data/in; echo dirt >>data/in", "data/in": "clean\n"}))
    spec = dispatcher.spec(command=("sh", "main.sh"), workdir=workdir)
    for name in ("p1", "p2"):
        await dispatcher.want(entry(name, spec))
        assert (await dispatcher.ended(name)).status is PlacementStatus.SUCCEEDED
        assert dispatcher.log(name) == "clean\n"
    assert dispatcher.blob_gets == 1


async def test_the_set_up_runs_once_per_site_and_shows_its_output(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    setup = f"echo setting up; echo x >>{tmp_path}/setups; echo made >made"
    spec = dispatcher.spec(run="cat made", setup=setup, nodes=2)
    await dispatcher.want(entry("p1", spec, nodes=2), entry("p2", spec, nodes=2))
    for name in ("p1", "p2"):
        assert (await dispatcher.ended(name)).status is PlacementStatus.SUCCEEDED
        assert dispatcher.log(name) == "setting up\nmade\n"
        assert dispatcher.log(name, 1) == "made\n"
    await dispatcher.want(entry("p3", spec, nodes=2))
    await dispatcher.ended("p3")
    assert "done before" in dispatcher.log("p3")
    assert (tmp_path / "setups").read_text() == "x\n"


async def test_a_failed_set_up_fails_the_job_and_is_tried_again_next_time(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    spec = dispatcher.spec(run="true", setup=f"echo no luck; test -e {tmp_path}/luck")
    await dispatcher.want(entry("p1", spec))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.SETUP, 1)
    assert "no luck" in dispatcher.log("p1")
    (tmp_path / "luck").touch()
    await dispatcher.want(entry("p2", spec))
    assert (await dispatcher.ended("p2")).status is PlacementStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("setup", "number", "cause"),
    [
        ('trap "exit 0" TERM', signal.SIGTERM, Cause.EVICTED),
        ('trap "exit 3" TERM', signal.SIGTERM, Cause.EVICTED),
        (":", signal.SIGTERM, Cause.EVICTED),
        (":", signal.SIGKILL, Cause.NODE_LOST),
    ],
    ids=["saves-itself", "exits-with-3", "dies", "is-killed-with-its-shim"],
)
async def test_a_set_up_that_is_told_to_end_is_interrupted_and_has_not_failed(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path, setup: str, number: int, cause: Cause
) -> None:
    """As a host sends it to everybody that it has. Whoever waits for the set-up is lost here, and it is made anew for who comes next."""
    gate = tmp_path / "gate"
    spec = dispatcher.spec(
        run="true", setup=f"{setup}; echo ready; while [ ! -e {gate} ]; do sleep 0.05; done"
    )
    await dispatcher.want(entry("p1", spec), entry("p2", spec))
    for name in ("p1", "p2"):
        await dispatcher.until(lambda name=name: "ready" in dispatcher.log(name))  # type: ignore[misc]
    (directory,) = (agent.state / "setups").iterdir()
    for pid in traces.processes(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    for name in ("p1", "p2"):
        end = await dispatcher.ended(name)
        assert (end.status, end.cause) == (PlacementStatus.LOST, cause), end
        assert "in its set-up" in end.detail
    gate.touch()
    await dispatcher.want(entry("p3", spec))
    assert (await dispatcher.ended("p3")).status is PlacementStatus.SUCCEEDED


async def test_outputs_are_there_before_the_job_is_over(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    run = "mkdir -p results/deep; echo a >results/a; echo b >results/deep/b; echo no >other; ln -s /etc/passwd results/p"
    await dispatcher.want(entry("p1", dispatcher.spec(run=run, outputs=("results/**",))))
    await dispatcher.until(lambda: "p1" in dispatcher.outputs)
    with tarfile.open(fileobj=io.BytesIO(dispatcher.outputs["p1"])) as tar:
        assert sorted(tar.getnames()) == ["results/a", "results/deep/b"]
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED


async def test_outputs_that_were_made_here_are_not_fetched_for_who_reads_them_here(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    """This dispatcher has no archive to give."""
    making = dispatcher.spec(run="head -c 1010000 /dev/urandom >model", outputs=("model",))
    await dispatcher.want(entry("p1", making))
    await dispatcher.ended("p1")
    made = dispatcher.outputs["p1"]
    dispatcher.outputs_of_others = ((OutputArchive("job-1", "train", content_hash(made), len(made)),),)
    reading = dispatcher.spec(
        run="wc -c <$FEDERATOR_INPUTS_DIR/train/model", inputs_from=(InputFrom("job-1", "train"),)
    )
    await dispatcher.want(entry("p2", reading))
    assert (await dispatcher.ended("p2")).status is PlacementStatus.SUCCEEDED
    assert "1010000\n" in dispatcher.log("p2")


async def test_archives_that_lead_outside_are_refused(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    hostile = {
        "up": archive({"../../../escaped": "x"}),
        "absolute": archive({"/tmp/escaped": "x"}),
        "link": archive({}, {"l": "/etc"}),
        "uplink": archive({}, {"d/l": "../../x"}),
        "torn": archive({"a": "b" * 10_000})[:-20],
    }
    for name, data in hostile.items():
        spec = dispatcher.spec(name=name, run="true", workdir=dispatcher.blob(data))
        await dispatcher.want(entry(name, spec))
        end = await dispatcher.ended(name)
        assert (end.status, end.cause) == (PlacementStatus.FAILED, Cause.STAGING), name
    assert not list(agent.state.rglob("escaped"))


async def test_a_missing_work_directory_fails_the_job_with_the_reason(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="true", workdir="0" * 64)))
    end = await dispatcher.ended("p1")
    assert (end.cause, "no such blob" in end.detail) == (Cause.STAGING, True)


async def test_a_command_that_does_not_exist_ends_with_127(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(command=("no-such-program",))))
    end = await dispatcher.ended("p1")
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 127)
    assert "no-such-program" in dispatcher.log("p1")


async def test_a_set_up_is_gone_in_time_although_its_agent_is_dead(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    deaf = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    spec = dispatcher.spec(run="true", setup=deaf, stop_within_s=10.0)
    await dispatcher.want(entry("p1", spec, grace_s=1.0))
    await dispatcher.until(lambda: "ready" in dispatcher.log("p1"))
    (directory,) = (agent.state / "setups").iterdir()
    assert traces.processes(directory)
    await agent.end(signal.SIGKILL)
    await until(lambda: not traces.processes(directory), "the end of the set-up")
    assert not (directory / "done").exists()


async def test_a_set_up_is_shared_only_among_those_that_may_stay_for_equally_long(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    """One that has to be gone must not take along those that are kept."""
    setup = f"echo x >>{tmp_path}/runs"
    for name, within_s in (("p1", 0.0), ("p2", 600.0), ("p3", 600.0)):
        spec = dispatcher.spec(run="true", setup=setup, **({"stop_within_s": within_s} if within_s else {}))
        await dispatcher.want(entry(name, spec))
        assert (await dispatcher.ended(name)).status is PlacementStatus.SUCCEEDED
    assert (tmp_path / "runs").read_text() == "x\nx\n"

"""Jobs in the image that they name, by a real podman on this host: they end, are stopped, logged and found again like any others, and leave no container."""

import io
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from federator.model.placements import Cause, PlacementStatus
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until
from tests.testbeds.podman import IMAGE, Podman, missing
from tests.testbeds.required import need


def _is_up(dispatcher: FakeDispatcher, placement: str) -> bool:
    return "up\n" in dispatcher.log(placement)


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    need(missing())
    made = Podman(Path(tempfile.mkdtemp(prefix="podman-")))
    yield made
    made.end()


@pytest.fixture
async def agent(dispatcher: FakeDispatcher, tmp_path: Path, podman: Podman) -> AsyncIterator[AgentProcess]:
    """One whose site runs images."""
    process = AgentProcess(tmp_path, dispatcher.url, "images: {engine: podman, pull: never}\n")
    process.environment = {"PATH": f"{podman.programs}:{os.environ['PATH']}"}
    await process.join(dispatcher.url)
    await process.start()
    await dispatcher.until(lambda: dispatcher.reports)
    yield process
    await process.end()


async def test_a_job_runs_in_its_image_and_in_nothing_else(
    agent: AgentProcess, dispatcher: FakeDispatcher, podman: Podman
) -> None:
    run = f"""echo "$A $FEDERATOR_JOB_NAME"; ls /; cat in; id -u; env | grep -c ^PATH={podman.programs}
grep -E '^(CapEff|NoNewPrivs):' /proc/self/status; ls {agent.state} >/dev/null 2>&1 && ls {agent.state}; echo out >out; exit 7"""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        info = tarfile.TarInfo("in")
        info.size = 6
        archive.addfile(info, io.BytesIO(b"given\n"))
    spec = dispatcher.spec(
        run=run, image=IMAGE, workdir=dispatcher.blob(data.getvalue()), outputs=("out",), env={"A": "it's so"}
    )
    await dispatcher.want(entry("p1", spec))
    end = await dispatcher.ended("p1")
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 7), (end, dispatcher.log("p1"))
    said = dispatcher.log("p1").splitlines()
    assert said[0] == "it's so job"
    assert said[1:7] == ["bin", "dev", "etc", "proc", "run", "sys"], "the image's own root"
    assert "given" in said
    assert "0" in said, "its PATH is the image's"
    assert "CapEff:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said
    assert "key" not in said, "nothing of the agent's is there"
    with tarfile.open(fileobj=io.BytesIO(dispatcher.outputs["p1"])) as outputs:
        assert outputs.getnames() == ["out"]
    await agent.gone("p1")
    assert podman.containers() == []


async def test_it_is_asked_to_save_itself_and_what_does_not_listen_is_killed(
    agent: AgentProcess, dispatcher: FakeDispatcher, podman: Podman
) -> None:
    polite = dispatcher.spec(
        run="trap 'echo saving; exit 9' TERM; echo up; while :; do sleep 0.1; done", image=IMAGE
    )
    deaf = dispatcher.spec(run="trap '' TERM; echo up; while :; do sleep 0.1; done", image=IMAGE)
    plain = dispatcher.spec(run="echo up; exec sleep 1000", image=IMAGE)
    await dispatcher.want(
        entry("p1", polite, grace_s=30.0), entry("p2", deaf, grace_s=1.0), entry("p3", plain, grace_s=30.0)
    )
    for placement in ("p1", "p2", "p3"):
        await until(partial(_is_up, dispatcher, placement), f"{placement} to run")
        await dispatcher.stop_placement(placement)
    codes = {placement: (await dispatcher.ended(placement)).exit_code for placement in ("p1", "p2", "p3")}
    assert codes == {"p1": 9, "p2": 137, "p3": 143}
    assert "saving\n" in dispatcher.log("p1")
    for placement in ("p1", "p2", "p3"):
        await agent.gone(placement)
    assert podman.containers() == []


async def test_it_outlives_its_agent_and_is_found_again(
    agent: AgentProcess, dispatcher: FakeDispatcher, podman: Podman
) -> None:
    spec = dispatcher.spec(run="echo up; while [ ! -e go ]; do sleep 0.1; done; exit 5", image=IMAGE)
    await dispatcher.want(entry("p1", spec))
    await until(lambda: "up\n" in dispatcher.log("p1"), "it to run")
    await agent.end()
    assert podman.containers() == ["federator-p1-0"]
    await agent.start()
    (agent.placement("p1") / "work" / "go").touch()
    end = await dispatcher.ended("p1")
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 5)
    await agent.gone("p1")
    assert podman.containers() == []


async def test_an_image_that_cannot_be_had_is_told(agent: AgentProcess, dispatcher: FakeDispatcher) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="true", image="localhost/none:1")))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause) == (PlacementStatus.FAILED, Cause.IMAGE_PULL)
    assert "localhost/none:1: it is not on this host" in end.detail


async def test_the_site_says_that_it_runs_images(agent: AgentProcess, dispatcher: FakeDispatcher) -> None:
    assert "images" in dispatcher.reports[-1].abilities
    code, said = await agent.run("check")
    assert "jobs that name an image run in it, by podman" in said, (code, said)

"""The agent killed in each phase of a placement: when it is back, everything has happened once."""

import io
import tarfile

import pytest

from federator.model.jobs import Resources
from federator.model.placements import PlacementStatus
from tests.integration.agent.conftest import entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.kube.conftest import POOL, KubeAgent
from tests.support.waiting import until

SMALL = Resources(cpus_milli=10)
RUN = "echo run on $(hostname); sleep 1.5; echo over"


async def ends_once(dispatcher: FakeDispatcher, agent: KubeAgent, ranks: int = 1) -> None:
    report = await dispatcher.ended("p1")
    assert report.status is PlacementStatus.SUCCEEDED, report
    for rank in range(ranks):
        assert dispatcher.log("p1", rank) == f"run on p1-{rank}\nover\n"
    await until(lambda: agent.pod("p1") is None, "the pod to go")


async def test_while_the_pods_are_made(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    spec = dispatcher.spec(run=RUN, nodes=2, resources=SMALL)
    await dispatcher.want(entry("p1", spec, nodes=2, pool=POOL))
    await until(lambda: agent.pod("p1"), "a pod")
    await agent.die()
    await agent.start()
    await ends_once(dispatcher, agent, ranks=2)


async def test_in_the_set_up_which_goes_on_and_is_not_run_again(
    dispatcher: FakeDispatcher, agent: KubeAgent
) -> None:
    spec = dispatcher.spec(
        run=RUN, setup="echo set up >> trace; sleep 2", outputs=("trace",), resources=SMALL
    )
    await dispatcher.want(entry("p1", spec, pool=POOL))
    await dispatcher.until(
        lambda: (last := dispatcher.last("p1")) and last.ranks and last.ranks[0].phase == "setup"
    )
    first = await agent.main_runs("p1")
    await agent.die()
    await agent.start()
    again = await agent.main_runs("p1")
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    await ends_once(dispatcher, agent)
    with tarfile.open(fileobj=io.BytesIO(dispatcher.outputs["p1"])) as tar:
        trace = tar.extractfile("trace")
        assert trace is not None
        assert trace.read() == b"set up\n"


@pytest.mark.parametrize("away", ["shortly", "past its end"])
async def test_while_it_runs(dispatcher: FakeDispatcher, agent: KubeAgent, away: str) -> None:
    spec = dispatcher.spec(run=RUN, nodes=2, resources=SMALL)
    await dispatcher.want(entry("p1", spec, nodes=2, pool=POOL))
    await dispatcher.until(lambda: "run" in dispatcher.log("p1", 1))
    await agent.die()
    if away == "past its end":
        await until(lambda: (pod := agent.pod("p1")) and pod["status"]["phase"] == "Succeeded", "its end")
    await agent.start()
    await ends_once(dispatcher, agent, ranks=2)


async def test_before_its_end_is_acknowledged_and_the_finalizer_holds(
    dispatcher: FakeDispatcher, agent: KubeAgent
) -> None:
    dispatcher.acknowledge = False
    await dispatcher.want(entry("p1", dispatcher.spec(run=RUN, resources=SMALL), pool=POOL))
    await dispatcher.ended("p1")
    await agent.die()
    agent.delete("p1")
    assert agent.pod("p1") is not None, "the finalizer holds it"
    dispatcher.acknowledge = True
    await agent.start()
    await ends_once(dispatcher, agent)


async def test_while_it_is_being_stopped(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    spec = dispatcher.spec(run="trap '' TERM; echo there; while :; do sleep 0.1; done", resources=SMALL)
    await dispatcher.want(entry("p1", spec, pool=POOL, grace_s=3.0))
    await dispatcher.until(lambda: "there" in dispatcher.log("p1"))
    await dispatcher.stop_placement("p1")
    await agent.die()
    await agent.start()
    report = await dispatcher.ended("p1")
    assert report.status is PlacementStatus.STOPPED
    await until(lambda: agent.pod("p1") is None, "the pod to go")

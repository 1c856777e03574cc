"""Join, run, tell: what every job needs of an agent, with real processes."""

import msgspec

from federator.model.jobs import Accelerators, Resources
from federator.model.placements import Cause, Order, PlacementStatus
from federator.wire.link import desired_digest
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher


async def test_a_job_runs_and_its_output_and_exit_code_come_home(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    spec = dispatcher.spec(run="echo hello; echo trouble >&2; exit 3")
    await dispatcher.want(entry("p1", spec))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.EXIT, 3)
    assert end.started_at is not None
    assert end.ended_at is not None
    assert end.ended_at >= end.started_at
    assert dispatcher.log("p1") == "hello\ntrouble\n"


async def test_the_desired_set_is_acknowledged_with_its_digest(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    await dispatcher.want(entry("p1", dispatcher.spec(run="true")))
    await dispatcher.ended("p1")
    assert dispatcher.acks[-1].generation == dispatcher.generation
    assert dispatcher.acks[-1].digest == desired_digest(dispatcher.desired.values())


async def test_a_gang_has_disjoint_gpus_and_one_address(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    run = (
        'echo "$FEDERATOR_NODE_RANK/$FEDERATOR_NUM_NODES $CUDA_VISIBLE_DEVICES $MASTER_ADDR:$MASTER_PORT $WORLD_SIZE '
        '$PET_NNODES $PET_NODE_RANK $PET_NPROC_PER_NODE $FEDERATOR_ARRAY_INDEX $OWN"'
    )
    resources = Resources(gpus=Accelerators(count=2, models=("A100",)), cpus_milli=1000, memory_mib=1024)
    spec = dispatcher.spec(run=run, nodes=3, resources=resources, env={"OWN": "mine"})
    await dispatcher.want(entry("p1", spec, nodes=3, array_index=7))
    end = await dispatcher.ended("p1")
    assert end.status is PlacementStatus.SUCCEEDED
    seen = [dispatcher.log("p1", rank).split() for rank in range(3)]
    assert [words[0] for words in seen] == ["0/3", "1/3", "2/3"]
    assert len({words[2] for words in seen}) == 1
    assert [words[3:] for words in seen] == [["6", "3", str(rank), "2", "7", "mine"] for rank in range(3)]
    slots = [
        (status.node, gpu)
        for status, words in zip(end.ranks, seen, strict=True)
        for gpu in words[1].split(",")
    ]
    assert len(set(slots)) == 6


async def test_what_is_in_use_is_taken_off_the_shapes_and_comes_back(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    def free() -> list[int]:
        return sorted(
            gpus for shape in dispatcher.reports[-1].pools[0].free for gpus in [shape.gpus] * shape.count
        )

    assert free() == [4, 4]
    spec = dispatcher.spec(run="sleep 600", resources=Resources(gpus=Accelerators(count=3)))
    await dispatcher.want(entry("p1", spec))
    await dispatcher.until(lambda: free() == [1, 4])
    assert dispatcher.reports[-1].counted == ("p1",)
    await dispatcher.stop_placement("p1")
    await dispatcher.ended("p1")
    await dispatcher.until(lambda: free() == [4, 4])


async def test_what_does_not_fit_is_refused_with_the_reason(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    big = Resources(gpus=Accelerators(count=4))
    await dispatcher.want(entry("p1", dispatcher.spec(run="true", nodes=3, resources=big), nodes=3))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause) == (PlacementStatus.REFUSED, Cause.CANNOT)
    assert "3 ranks with 4 GPUs" in end.detail
    await dispatcher.want(entry("p2", dispatcher.spec(run="true"), pool="nowhere"))
    assert "nowhere" in (await dispatcher.ended("p2")).detail
    await dispatcher.want(entry("p3", "0" * 64))
    assert "spec" in (await dispatcher.ended("p3")).detail


async def test_numbers_of_statuses_only_grow(dispatcher: FakeDispatcher, agent: AgentProcess) -> None:
    for name in ("p1", "p2"):
        await dispatcher.want(entry(name, dispatcher.spec(run="true")))
        await dispatcher.ended(name)
    numbers = [report.seq for name in ("p1", "p2") for report in dispatcher.statuses[name]]
    assert numbers == sorted(set(numbers)), msgspec.to_builtins(dispatcher.statuses)


async def test_a_part_of_a_gang_is_reserved_then_run_and_meets_the_others_where_it_is_told(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    run = 'echo "$FEDERATOR_NODE_RANK/$FEDERATOR_NUM_NODES $MASTER_ADDR $MASTER_PORT $PET_RDZV_ENDPOINT"'
    spec = dispatcher.spec(run=run, nodes=2)
    part = entry("p1", spec, nodes=2, ranks=(1,), order=Order.RESERVE)
    await dispatcher.want(part)
    await dispatcher.until(lambda: dispatcher.statuses.get("p1"))
    accepted = dispatcher.statuses["p1"][0]
    assert accepted.status is PlacementStatus.ACCEPTED
    address, _, port = accepted.rendezvous.rpartition(":")
    assert (address, int(port) > 0) == ("127.0.0.1", True), "as it reaches the dispatcher, so it is reached"
    assert not agent.placement("p1").exists(), "nothing has begun"
    await dispatcher.want(msgspec.structs.replace(part, order=Order.RUN, rendezvous="node-7.example:4567"))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.SUCCEEDED
    assert dispatcher.log("p1", 1) == "1/2 node-7.example 4567 node-7.example:4567\n"

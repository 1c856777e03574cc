"""A job that shrinks and grows on a real host: each attempt has as many ranks as its form says, and goes on from what the last one saved."""

from msgspec.structs import replace

from federator.model.jobs import Accelerators, Form, Resources
from federator.model.placements import DesiredEntry, PlacementStatus
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher

TRAINS = """
state=$FEDERATOR_CHECKPOINT_DIR/epochs
done=$(cat $state 2>/dev/null || echo 0)
save() {
  if [ $FEDERATOR_NODE_RANK = 0 ]; then echo $((done + FEDERATOR_NUM_NODES)) > $state; fi
  exit 0
}
trap save TERM
echo "rank $FEDERATOR_NODE_RANK of $FEDERATOR_NUM_NODES, $WORLD_SIZE in all, $PET_NPROC_PER_NODE here, from $done, resume $FEDERATOR_RESUME"
echo ready
while [ $done -lt 5 ]; do sleep 0.02; done
"""
"""An attempt saves as many epochs as it has ranks. At five it is done."""


def node(gpus: int) -> Resources:
    return Resources(gpus=Accelerators(count=gpus), cpus_milli=10)


async def test_it_shrinks_and_grows_and_ends_with_all_its_work_done_once(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    spec = dispatcher.spec(
        run=TRAINS,
        nodes=2,
        resources=node(1),
        forms=(Form(1, node(2), 0.9), Form(3, node(0), 1.2)),
        elastic=True,
    )

    def attempt(number: int, form: int, nodes: int) -> DesiredEntry:
        first = entry(f"p{number}", spec, nodes=nodes, job="job-1", form=form)
        return replace(first, epoch=number, resume=number > 1)

    async def said(number: int, ranks: int) -> list[str]:
        """The first line of each rank, once all have got so far."""
        name = f"p{number}"
        await dispatcher.until(lambda: all("ready" in dispatcher.log(name, rank) for rank in range(ranks)))
        return [dispatcher.log(name, rank).splitlines()[0] for rank in range(ranks)]

    async def stop(number: int) -> None:
        await dispatcher.stop_placement(f"p{number}")
        end = await dispatcher.ended(f"p{number}")
        assert (end.status, end.checkpointed) == (PlacementStatus.STOPPED, True)

    await dispatcher.want(attempt(1, form=0, nodes=2))
    assert await said(1, 2) == [
        "rank 0 of 2, 2 in all, 1 here, from 0, resume 0",
        "rank 1 of 2, 2 in all, 1 here, from 0, resume 0",
    ]
    await stop(1)
    await dispatcher.want(attempt(2, form=1, nodes=1))
    assert await said(2, 1) == ["rank 0 of 1, 2 in all, 2 here, from 2, resume 1"]
    report = dispatcher.last("p2")
    assert report is not None
    assert report.form == 1
    await stop(2)
    await dispatcher.want(attempt(3, form=2, nodes=3))
    assert await said(3, 3) == [f"rank {rank} of 3, 3 in all, 1 here, from 3, resume 1" for rank in range(3)]
    await stop(3)
    await dispatcher.want(attempt(4, form=0, nodes=2))
    assert (await dispatcher.ended("p4")).status is PlacementStatus.SUCCEEDED
    assert "from 6, resume 1" in dispatcher.log("p4")

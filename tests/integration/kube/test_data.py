"""Data comes to pods and goes from them without the agent: a gang whose agent dies while it runs, and a cache of a node."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from federator.model.jobs import Checkpoint, Input, InputFrom
from federator.model.placements import Cause
from federator.wire.link import OutputArchive
from federator_agent.kube.checkpoint_push import UNKNOWN
from federator_agent.kube.runtime import KubeRuntime
from federator_agent.kube.security import NOBODY
from federator_agent.kube.settings import KubeData, KubeVolume
from federator_agent.staging_errors import StagingRefused
from tests.contract.runtimes import factories_kube
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.integration.kube.conftest import PODS, POOL
from tests.support.waiting import until
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.shared import Bed

PODS_NETWORK = "10.213.7.0/24"
"""Of `tests.testbeds.kubernetes.node`."""


@pytest.fixture
async def world(testbed: Bed, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RuntimeWorld]:
    """Jobs are root, who reads the folders of tests; or, as a parameter says, whoever they are by default."""
    if testbed.node is None:
        pytest.skip("somebody else's cluster sees nothing of this machine")
    cache = KubeVolume(host_path=str(tmp_path / "cache"))
    data = replace(shared.data(testbed), cache=cache)
    settings = factories_kube.settings(data=data, run_as=getattr(request, "param", None))
    site = Site(lambda around: KubeRuntime(settings, around), POOL)
    world = RuntimeWorld(tmp_path, site)
    world.begin()
    yield world
    await world.close()


async def test_a_gang_goes_on_elsewhere_though_its_agent_died_meanwhile(
    world: RuntimeWorld, tmp_path: Path
) -> None:
    kept = f"file://{tmp_path}/kept"
    spec = world.spec(
        'echo "resume=$FEDERATOR_RESUME"; echo "of $FEDERATOR_NODE_RANK" > "$FEDERATOR_CHECKPOINT_DIR/$FEDERATOR_NODE_RANK"; '
        "while [ ! -e go ]; do sleep 0.1; done",
        nodes=2,
        outputs=("*",),
        checkpoint=Checkpoint(uri=kept, every_s=1.0),
    )
    record = await world.run(spec)
    pushed = tmp_path / "kept" / record.entry.job
    await until(lambda: len([*pushed.glob("latest-*")]) == 2, "a push of each rank while it runs")
    await world.restart()
    for rank in (0, 1):
        world.runtime.find(record, rank)
        await world.has_written(record, "resume=0", rank)
    world.runtime.signal(record.entry.placement, (0, 1), "TERM")
    await world.over(record)
    assert await world.runtime.push_last(record, spec) == ""
    again = world.spec(
        'echo "resume=$FEDERATOR_RESUME"; cat "$FEDERATOR_CHECKPOINT_DIR/0" "$FEDERATOR_CHECKPOINT_DIR/1"',
        checkpoint=Checkpoint(uri=kept),
    )
    after = await world.run(again, job=record.entry.job, epoch=2)
    (end,) = await world.over(after)
    assert end.exit_code == 0
    assert world.log(after).endswith("resume=1\nof 0\nof 1\n")


async def test_a_node_keeps_what_was_brought_for_the_next_job(
    world: RuntimeWorld, testbed: Bed, tmp_path: Path
) -> None:
    """From a web server that is itself a pod: nothing else can be reached from there. What it reads of another job is beside it, and no later pod's."""
    world.networks = (PODS_NETWORK,)
    await world.restart()
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "word").write_text("word")
    serve = f"cd {pages} && exec httpd -f -p 8080 -h {pages}"
    server = await world.run(world.spec(serve, inputs=(Input(f"file://{pages}"),)))
    pod = testbed.admin.find(f"{PODS}/{server.entry.placement}-0")
    assert pod is not None
    uri = f"http://{pod['status']['podIP']}:8080/word"
    made = world.bulk.keep({"weights": b"learned "})
    world.bulk.found = ((OutputArchive("job-1", "train", made, len(world.bulk.blobs[made])),),)
    spec = world.spec(
        'cd "$FEDERATOR_INPUTS_DIR" && cat model/weights word',
        inputs=(Input(uri),),
        inputs_from=(InputFrom("job-1", "model"),),
    )
    said = []
    for _ in range(2):
        record = await world.run(spec)
        (end,) = await world.over(record)
        assert end.exit_code == 0
        said.append(world.log(record))
    assert all(log.endswith("learned word") for log in said)
    assert "0.004 kB brought" in said[0]
    assert "are here already" in said[1]


async def test_a_pod_that_is_deleted_takes_away_what_its_job_saves_at_its_end(
    world: RuntimeWorld, testbed: Bed, tmp_path: Path
) -> None:
    spec = world.spec(
        "trap 'echo late > \"$FEDERATOR_CHECKPOINT_DIR/step\"; exit 143' TERM; echo up; while :; do sleep 0.1; done",
        checkpoint=Checkpoint(uri=f"file://{tmp_path}/kept", every_s=1000.0),
    )
    record = await world.run(spec, grace_s=60.0)
    await world.has_written(record, "up")
    path = f"{PODS}/{record.entry.placement}-0"
    testbed.admin.ask("DELETE", path, {"gracePeriodSeconds": 60})
    (end,) = await world.over(record)
    assert end.cause is Cause.EVICTED
    # This kubelet removes the containers of a deleted pod at once, with what they said at their end.
    assert await world.runtime.push_last(record, spec) in (
        "",
        f"{UNKNOWN}: what moves its data was ended before",
    )
    assert [*(tmp_path / "kept" / record.entry.job).glob("latest-*")]


@pytest.mark.parametrize("world", [None, NOBODY], indirect=True, ids=["root", "nobody"])
async def test_a_job_gets_at_nothing_of_what_moves_its_data(world: RuntimeWorld, tmp_path: Path) -> None:
    """They share their processes and a folder: it looks into every process, leaves modules where the other starts, and ends it, so that it starts again."""
    spec = world.spec(
        f"""
top=root
echo "it is $(id -u)"
echo 'open("{tmp_path}/run", "w")' >/federator/msgspec.py
for each in /proc/[0-9]*; do
  tr '\\0' '\\n' <$each/environ | grep FEDERATOR_TEST_PYTHON
  touch $each/$top/federator/cache/poison
  case $(cat $each/comm) in python*) carrier="$carrier ${{each#/proc/}}" ;; esac
done
echo stolen >/federator/gate/saved
kill -9 $carrier && echo ended
echo 1 >"$FEDERATOR_CHECKPOINT_DIR/step"
""",
        checkpoint=Checkpoint(uri=f"file://{tmp_path}/kept", every_s=1000.0),
    )
    record = await world.run(spec)
    (end,) = await world.over(record)
    said, log = await world.runtime.push_last(record, spec), world.log(record)
    assert end.exit_code == 0
    assert ("ended\n" in log) == ("it is 0\n" in log), "nobody ends what is root's"
    got = {
        "the secret": "FEDERATOR_TEST_PYTHON=" in log,
        "its files": (tmp_path / "cache" / "poison").exists(),
        "its process": (tmp_path / "run").exists(),
        "its word": said,
    }
    assert not any(got.values()), got
    assert [*(tmp_path / "kept" / record.entry.job).glob("latest-*")]


async def test_an_image_that_cannot_move_data_refuses_the_job(testbed: Bed, tmp_path: Path) -> None:
    """The job may go elsewhere: it is the site that is at fault."""
    data = KubeData(image=testbed.image)
    site = Site(lambda around: KubeRuntime(factories_kube.settings(data=data), around), POOL)
    world = RuntimeWorld(tmp_path, site)
    world.begin()
    spec = world.spec("echo ran", inputs=(Input("file:///bin"),))
    with pytest.raises(StagingRefused, match="what moves its data ended with exit code"):
        await world.prepare(world.record(spec), spec)
    await world.close()

"""From the desired set to the last byte, at a real cluster, with the rights that the manifest gives and no others."""

import io
import tarfile
from pathlib import Path

from federator.model.jobs import Accelerators, InputFrom, Resources
from federator.model.placements import Cause, PlacementStatus
from federator.model.sites import LocalWork
from federator.wire.jobfile import read_job
from federator.wire.link import OutputArchive
from tests.integration.agent.conftest import entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.integration.kube.conftest import PODS, POOL, KubeAgent
from tests.support.waiting import until
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE
from tests.testbeds.kubernetes.shared import Bed

SMALL = Resources(cpus_milli=10)


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


async def test_a_job_runs_and_leaves_nothing_behind(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    workdir = dispatcher.blob(archive({"in.txt": b"from home"}))
    run = "cat in.txt; echo; mkdir out; echo result > out/r.txt; echo on $FEDERATOR_SITE"
    spec = dispatcher.spec(run=run, workdir=workdir, outputs=("out/**",), resources=SMALL)
    await dispatcher.want(entry("p1", spec, pool=POOL))
    report = await dispatcher.ended("p1")
    assert (report.status, report.exit_code) == (PlacementStatus.SUCCEEDED, 0)
    assert dispatcher.log("p1") == "from home\non here\n"
    with tarfile.open(fileobj=io.BytesIO(dispatcher.outputs["p1"])) as tar:
        assert tar.getnames() == ["out/r.txt"]
    assert report.ranks[0].node
    await until(lambda: agent.pod("p1") is None, "the finalizer to let go")


async def test_a_gang_meets_at_the_address_of_its_first_rank(
    dispatcher: FakeDispatcher, agent: KubeAgent
) -> None:
    # One listener for each of the others, which closes when it has read its line: none is lost between two of them.
    run = (
        'if [ "$FEDERATOR_NODE_RANK" = 0 ]; then for i in 0 1; do '
        """nc -l -p $((MASTER_PORT + i)) -e sh -c 'read line; echo "$line" >&2' & done; wait; """
        'else until echo "hello from $FEDERATOR_NODE_RANK" | '
        'nc -w 30 "$MASTER_ADDR" $((MASTER_PORT + FEDERATOR_NODE_RANK - 1)); do sleep 0.1; done; fi'
    )
    spec = dispatcher.spec(run=run, nodes=3, resources=SMALL)
    await dispatcher.want(entry("p1", spec, nodes=3, pool=POOL))
    report = await dispatcher.ended("p1")
    assert report.status is PlacementStatus.SUCCEEDED, (report, dispatcher.log("p1", 1))
    assert sorted(dispatcher.log("p1", 0).splitlines()) == ["hello from 1", "hello from 2"]
    services = "/api/v1/namespaces/federator/services"
    await until(lambda: agent.testbed.admin.ask("GET", services)["items"] == [], "the Service to go")


async def test_a_cluster_of_a_framework_ends_with_its_command(
    dispatcher: FakeDispatcher, agent: KubeAgent
) -> None:
    """The launcher of Dask with a stand-in for it: its worker in the other pod calls at rank 0, and is stopped when the command there has ended."""
    dask = """#!/bin/sh
[ "$1 $FEDERATOR_NODE_RANK" != "worker 0" ] || exec sleep 600
[ "$1" = worker ] || exec sleep 600
until echo "$* here" | nc -w 30 "$MASTER_ADDR" "$MASTER_PORT"; do sleep 0.1; done
exec sleep 600"""
    run = 'nc -l -p "$MASTER_PORT" -e sh -c \'read line; echo "$line" >&2\''
    setup = f"cat >dask <<'END'\n{dask}\nEND\nchmod +x dask"
    env = {"PATH": ".:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    written = read_job({"run": run, "nodes": 2, "framework": "dask"}, now=0.0).spec
    spec = dispatcher.spec(run=run, launch=written.launch, setup=setup, env=env, nodes=2, resources=SMALL)
    await dispatcher.want(entry("p1", spec, nodes=2, pool=POOL, success="first"))
    report = await dispatcher.ended("p1")
    logs = [dispatcher.log("p1", rank) for rank in range(2)]
    assert (report.status, report.exit_code) == (PlacementStatus.SUCCEEDED, 0), (report, logs)
    assert "worker tcp://" in logs[0]
    assert "--name rank-1 --nthreads 1" in logs[0]


async def test_groups_in_the_pods_of_one_gang_are_told_to_leave(
    dispatcher: FakeDispatcher, agent: KubeAgent
) -> None:
    """Each has its grace in the pod, though a pod's first process is the launcher."""
    leaves = "trap 'echo $FEDERATOR_GROUP leaves; exit 0' TERM; echo there; while :; do sleep 0.1; done"
    groups = [{"name": "head", "run": leaves}, {"name": "workers", "nodes": 2, "run": leaves}]
    written = read_job({"groups": groups}, now=0.0).spec
    spec = dispatcher.spec(run=written.run, launch=written.launch, nodes=2, resources=SMALL)
    await dispatcher.want(entry("p1", spec, nodes=2, pool=POOL, grace_s=30.0))
    await until(
        lambda: [dispatcher.log("p1", rank).count("there") for rank in range(2)] == [2, 1], "all to begin"
    )
    await dispatcher.stop_placement("p1")
    await dispatcher.ended("p1")
    logs = [
        sorted(line for line in dispatcher.log("p1", r).splitlines() if "leaves" in line) for r in range(2)
    ]
    assert logs == [["head leaves", "workers leaves"], ["workers leaves"]]


async def test_outputs_of_other_jobs_are_among_the_inputs(
    dispatcher: FakeDispatcher, agent: KubeAgent, tmp_path: Path
) -> None:
    """In each rank's pod, beside its work directory."""
    made = archive({"model/weights": b"learned\n", "model/.state": b"hidden\n", "notes": b"not asked for\n"})
    found = (OutputArchive("job-1", "train", dispatcher.blob(made), len(made)),)
    dispatcher.outputs_of_others = (found, found)
    spec = dispatcher.spec(
        run='ls -A "$FEDERATOR_INPUTS_DIR"; cat "$FEDERATOR_INPUTS_DIR/model/weights" given',
        nodes=2,
        resources=SMALL,
        workdir=dispatcher.blob(archive({"given": b"with it\n"})),
        inputs_from=(InputFrom("job-1", "model", "model"), InputFrom("job-1", ".state", "model/.state")),
    )
    await dispatcher.want(entry("p1", spec, nodes=2, pool=POOL))
    end = await dispatcher.ended("p1")
    logs = [dispatcher.log("p1", rank) for rank in range(2)]
    assert end.status is PlacementStatus.SUCCEEDED, (end, logs)
    assert logs == [".state\nmodel\nlearned\nwith it\n"] * 2
    assert [*tmp_path.rglob("placements/*/inputs*")] == [], "the agent keeps no copy for a job that runs"


async def test_an_output_that_is_not_there_is_named(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    made = archive({"model/weights": b"learned\n"})
    dispatcher.outputs_of_others = ((OutputArchive("job-1", "train", dispatcher.blob(made), len(made)),),)
    spec = dispatcher.spec(run="true", resources=SMALL, inputs_from=(InputFrom("job-1", "data", "modle"),))
    await dispatcher.want(entry("p1", spec, pool=POOL))
    end = await dispatcher.ended("p1")
    assert (end.status, end.cause) == (PlacementStatus.FAILED, Cause.STAGING)
    assert "train (job-1) has collected no modle" in end.detail


async def test_memory_that_is_not_there_is_the_cause(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    spec = dispatcher.spec(run="tail /dev/zero", resources=Resources(cpus_milli=10, memory_mib=32))
    await dispatcher.want(entry("p1", spec, pool=POOL))
    report = await dispatcher.ended("p1")
    assert (report.status, report.cause, report.exit_code) == (
        PlacementStatus.FAILED,
        Cause.OUT_OF_MEMORY,
        137,
    )


async def test_a_stop_gives_grace_and_then_kills(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    run = "trap 'echo not yet' TERM; echo there; while :; do sleep 0.1; done"
    spec = dispatcher.spec(run=run, resources=SMALL)
    await dispatcher.want(entry("p1", spec, pool=POOL, grace_s=2.0))
    await dispatcher.until(lambda: "there" in dispatcher.log("p1"))
    await dispatcher.stop_placement("p1")
    report = await dispatcher.ended("p1")
    assert (report.status, report.cause) == (PlacementStatus.STOPPED, Cause.STOPPED)
    assert report.exit_code == 137
    assert "not yet" in dispatcher.log("p1")


async def test_a_stop_before_the_start_leaves_no_pod(dispatcher: FakeDispatcher, agent: KubeAgent) -> None:
    spec = dispatcher.spec(run="echo no", setup="echo setting up; sleep 600", resources=SMALL)
    await dispatcher.want(entry("p1", spec, pool=POOL))
    await agent.main_runs("p1")
    await dispatcher.stop_placement("p1")
    assert (await dispatcher.ended("p1")).status is PlacementStatus.STOPPED
    await until(lambda: agent.pod("p1") is None, "the pod to be gone")


async def test_local_pods_make_the_shapes_smaller(
    dispatcher: FakeDispatcher, agent: KubeAgent, testbed: Bed
) -> None:
    """Somebody's pod with three GPUs: what is reported as free is what is left."""
    container = {
        "name": "theirs",
        "image": testbed.image,
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": "3", "cpu": "100m"}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    metadata = {"name": "theirs", "namespace": NAMESPACE}
    testbed.admin.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def gpus_free() -> set[int]:
        pools = {pool.name: pool for pool in dispatcher.reports[-1].pools}
        return {shape.gpus for shape in pools[POOL].free}

    await until(lambda: gpus_free() == {5}, "three GPUs to be taken")
    assert dispatcher.reports[-1].local_work == (LocalWork(POOL, 1, 3),)
    needs = Resources(gpus=Accelerators(count=6), cpus_milli=10)
    await dispatcher.want(entry("p1", dispatcher.spec(run="true", resources=needs), pool=POOL))
    assert (await dispatcher.ended("p1")).status is PlacementStatus.REFUSED
    testbed.admin.ask("DELETE", f"{PODS}/theirs", {"gracePeriodSeconds": 0})
    await until(lambda: gpus_free() == {8}, "them to be free again")


async def test_the_manifest_is_what_the_server_takes(testbed: Bed) -> None:
    """All of it: a dry run of the API server refuses a field that it does not know."""
    for document in shared.manifests():
        if document["kind"] not in shared.GRANTS:
            group = document["apiVersion"]
            base = f"/apis/{group}" if "/" in group else f"/api/{group}"
            path = f"{base}/namespaces/federator/{document['kind'].lower()}s?dryRun=All"
            testbed.admin.ask("POST", path, document)

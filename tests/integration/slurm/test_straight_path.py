"""Jobs through a real Slurm, from the order to run to the exit code: work directories, gangs, outputs, logs, and what the site reports."""

import io
import tarfile
from pathlib import Path

from federator.model.jobs import Checkpoint
from federator.model.placements import Cause, PlacementStatus
from federator.wire.jobfile import read_job
from tests.integration.slurm.conftest import Agents, SlurmAgent, gpus
from tests.support.waiting import until
from tests.testbeds.frameworks import BIN, lacking
from tests.testbeds.required import need
from tests.testbeds.slurm import Slurm


def _archive(**files: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


async def test_two_clusters_side_by_side(agents: Agents, east: Slurm, west: Slurm) -> None:
    """Work directory, set-up, outputs and log at each; Slurm keeps nothing running, and the agent no files."""
    both = [await agents.of(slurm) for slurm in (east, west)]
    for number, agent in enumerate(both):
        await agent.run_job(
            'cat in made >out; echo "$SLURM_JOB_ID of $SLURM_CLUSTER_NAME"; exit 0',
            placement=f"p{number}",
            workdir=agent.dispatcher.blob(_archive(**{"in": f"given {number}\n"})),
            setup="echo set up >made; echo setting up",
            outputs=("out",),
        )
    for number, agent in enumerate(both):
        placement = f"p{number}"
        end = await agent.ended(placement)
        assert (end.status, end.exit_code) == (PlacementStatus.SUCCEEDED, 0), end
        assert end.ranks[0].node in {"n0", "n1", "n2", "n3"}
        with tarfile.open(fileobj=io.BytesIO(agent.dispatcher.outputs[agent.id(placement)])) as outputs:
            out = outputs.extractfile("out")
            assert out is not None
            assert out.read().decode() == f"given {number}\nset up\n"
        log = agent.log(placement)
        assert log.startswith("setting up\n")
        assert log.endswith(" of testbed\n")
        await agent.gone(agent.id(placement))
    await until(lambda: not any(_files(agent) for agent in both), "their files to go")


def _files(agent: SlurmAgent) -> list[Path]:
    return list((agent.shared / "placements").iterdir())


async def test_a_gang_of_four_whole_nodes(agents: Agents, east: Slurm) -> None:
    agent = await agents.of(east)
    run = "echo $FEDERATOR_NODE_RANK/$FEDERATOR_NUM_NODES $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $MASTER_ADDR; exit 3"
    await agent.run_job(run, nodes=4, resources=gpus(8))
    end = await agent.ended()
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.EXIT, 3)
    assert [rank.node for rank in end.ranks] == ["n0", "n1", "n2", "n3"]
    for rank in range(4):
        devices = "0,1,2,3,4,5,6,7"
        assert agent.log(rank=rank) == f"{rank}/4 n{rank} {devices} 127.0.0.1\n"


async def test_a_gang_keeps_to_the_nodes_below_one_switch(agents: Agents, west: Slurm) -> None:
    """Although the other switch's are as free, and come first by themselves."""
    agent = await agents.of(west, topology="rack")
    pools = {pool.name: pool for pool in agent.dispatcher.reports[-1].pools}
    assert {name: (pool.labels, pool.nodes) for name, pool in pools.items()} == {
        "main-s0": ({"rack": "s0"}, 2),
        "main-s1": ({"rack": "s1"}, 2),
    }
    await agent.run_job("exit 0", nodes=3, pool="main-s1", together="rack", resources=gpus(4))
    end = await agent.ended()
    assert end.status is PlacementStatus.SUCCEEDED, end
    assert {rank.node for rank in end.ranks} == {"n2", "n3"}


async def test_mpi_starts_its_processes_on_the_other_nodes_by_itself(agents: Agents, east: Slurm) -> None:
    """Open MPI, which is not told that Slurm is there; and when rank 0 has ended, so have the others."""
    need(lacking())
    agent = await agents.of(east)
    program = """import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print("process", world.rank, "on", os.environ["SLURMD_NODENAME"], "sum", total, flush=True)"""
    run = f"exec python3 - <<'END'\n{program}\nEND"
    spec = read_job({"run": run, "nodes": 3, "framework": {"name": "mpi", "processes": 1}}, now=0.0).spec
    env = {"PATH": f"{BIN}:/usr/bin:/bin"}
    await agent.run_job(run, nodes=3, launch=spec.launch, env=env, resources=gpus(8), success="first")
    end = await agent.ended()
    assert (end.status, end.exit_code) == (PlacementStatus.SUCCEEDED, 0), (end, agent.log())
    said = sorted(
        line for line in agent.log().splitlines() if line.startswith("process ")
    )  # Open MPI may warn
    assert said == [f"process {rank} on n{rank} sum 6" for rank in range(3)], agent.log()


async def test_groups_share_the_nodes_of_one_gang(agents: Agents, east: Slurm) -> None:
    """The one without GPUs is on the first node alone, sees none, and its end is the job's."""
    agent = await agents.of(east)
    seen = 'echo "$FEDERATOR_GROUP $FEDERATOR_NODE_RANK of $FEDERATOR_NUM_NODES: [$CUDA_VISIBLE_DEVICES]"'
    groups = [
        {"name": "head", "run": f"{seen}; until [ -e begun-0 ] && [ -e begun-1 ]; do sleep 0.1; done"},
        {
            "name": "workers",
            "nodes": 2,
            "run": f"{seen}; echo >begun-$FEDERATOR_NODE_RANK; sleep 600",
            "resources": {"gpus": 4},
        },
    ]
    spec = read_job({"groups": groups, "success": "head"}, now=0.0).spec
    await agent.run_job(
        spec.run or "", nodes=2, launch=spec.launch, resources=spec.resources, success=spec.success or ""
    )
    end = await agent.ended()
    assert (end.status, end.exit_code) == (PlacementStatus.SUCCEEDED, 0), (end, agent.log())
    lines = sorted(line for rank in range(2) for line in agent.log(rank=rank).splitlines() if " of " in line)
    head, *workers = (line.split(":") for line in lines)
    assert head == ["head 0 of 1", " []"]
    assert [words for words, _ in workers] == ["workers 0 of 2", "workers 1 of 2"]
    assert {devices for _, devices in workers} <= {" [0,1,2,3]", " [4,5,6,7]"}


async def test_ranks_that_share_a_node_share_no_gpu(agents: Agents, east: Slurm) -> None:
    agent = await agents.of(east)
    run = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    await agent.run_job(run, nodes=3, resources=gpus(4))
    assert (await agent.ended()).status is PlacementStatus.SUCCEEDED
    devices = [agent.log(rank=rank).strip() for rank in range(3)]
    assert len(set(devices)) == 3
    assert {words.split()[1] for words in devices} == {"0,1,2,3", "4,5,6,7"}


async def test_what_is_reported(agents: Agents, east: Slurm) -> None:
    """Ours are counted, others' are local work with its end, and both are taken off; a drained node is left out."""
    agent = await agents.of(east)
    dispatcher = agent.dispatcher
    await agent.run_job("sleep 1000", resources=gpus(2))
    await agent.is_(PlacementStatus.RUNNING)
    await dispatcher.until(lambda: agent.id() in dispatcher.reports[-1].counted)
    told = dispatcher.last(agent.id())
    assert told is not None
    theirs, _, drained = sorted(set(east.nodes) - {told.ranks[0].node})
    job = ["--nodes=1", "--gres=gpu:8", "--mem=100", "--time=60", "--output=/dev/null"]
    await east.submit("#!/bin/sh\nsleep 1000\n", *job, f"--nodelist={theirs}")
    await east.submit("#!/bin/sh\nsleep 1000\n", *job[1:], "--nodes=4", "--hold")
    await east.command("scontrol", "update", f"nodename={drained}", "state=drain", "reason=test")
    try:
        report = await dispatcher.until(
            lambda: _free(dispatcher.reports[-1]) == [6, 8] and dispatcher.reports[-1]
        )
        running, waiting = sorted(report.local_work, key=lambda work: work.queued)
        assert (running.pool, running.nodes, running.gpus_per_node) == ("main", 1, 8)
        assert running.ends_at is not None
        assert running.ends_at > report.taken_at
        assert (waiting.nodes, waiting.gpus_per_node, waiting.queued) == (4, 8, True)
        assert (report.pools[0].model, report.pools[0].nodes, report.health) == ("A100", 4, "ok")
    finally:
        await east.command("scontrol", "update", f"nodename={drained}", "state=resume")


def _free(report: object) -> list[int]:
    """GPUs free per host, of hosts that are listed."""
    [pool] = report.pools  # type: ignore[attr-defined]
    return sorted(shape.gpus for shape in pool.free if shape.gpus for _ in range(shape.count))


async def test_what_cannot_be_is_refused_with_slurms_reason(agents: Agents, east: Slurm) -> None:
    """By the core where it sees so; by sbatch; by Slurm's scheduler, at once or in time. Nothing of it is left."""
    agent = await agents.of(east, start_within="2s")
    await east.submit("#!/bin/sh\nsleep 1000\n", "--partition=narrow", "--exclusive", "--output=/dev/null")
    asked = {
        "too-big": ("", 5, "no room"),
        "unknown": ("nowhere", 1, "invalid partition"),
        "limited": ("single", 2, "Requested node configuration is not available"),
        "late": ("narrow", 1, "within 2s: "),
    }
    for placement, (queue, nodes, _) in asked.items():
        await agent.run_job("true", nodes, placement, queue=queue, resources=gpus(8))
        end = await agent.ended(placement)
        assert (end.status, end.cause) == (PlacementStatus.REFUSED, Cause.CANNOT), end
        assert asked[placement][2] in end.detail, end.detail
        await agent.gone(agent.id(placement))
        states = [job.split()[0] for job in await agent.jobs(placement)]
        assert set(states) <= {"CANCELLED", "FAILED"}


async def test_a_job_waits_behind_local_work(agents: Agents, east: Slurm) -> None:
    agent = await agents.of(east)
    local = await east.submit(
        "#!/bin/sh\nsleep 1000\n", "--partition=narrow", "--exclusive", "--output=/dev/null"
    )
    await agent.run_job("echo ran", queue="narrow", resources=gpus(8))
    await agent.has("PENDING")
    assert agent.dispatcher.last(agent.id()).status is PlacementStatus.STARTING  # type: ignore[union-attr]
    await east.command("scancel", local)
    end = await agent.ended()
    assert (end.status, end.ranks[0].node) == (PlacementStatus.SUCCEEDED, "n0")


async def test_a_waiting_job_that_is_stopped_leaves_slurms_queue(agents: Agents, east: Slurm) -> None:
    agent = await agents.of(east)
    await east.submit("#!/bin/sh\nsleep 1000\n", "--partition=narrow", "--exclusive", "--output=/dev/null")
    await agent.run_job("echo ran", queue="narrow", resources=gpus(8))
    await agent.has("PENDING")
    await agent.stop()
    assert (await agent.ended()).status is PlacementStatus.STOPPED
    assert [job.split()[0] for job in await agent.jobs()] == ["CANCELLED"]


async def test_a_stop_is_a_signal_with_a_grace_and_then_a_kill(
    agents: Agents, east: Slurm, tmp_path: Path
) -> None:
    agent = await agents.of(east)
    ready = "touch {}; while :; do sleep 0.05; done"
    polite, deaf = tmp_path / "polite", tmp_path / "deaf"
    await agent.run_job(f"trap 'echo saved; exit 5' TERM; {ready.format(polite)}", grace_s=60.0)
    await agent.run_job(f"trap '' TERM; {ready.format(deaf)}", placement="p2", grace_s=1.0)
    await until(lambda: polite.exists() and deaf.exists(), "both to run")
    for placement in ("p1", "p2"):
        await agent.is_(PlacementStatus.RUNNING, placement)
        await agent.stop(placement)
    end = await agent.ended()
    assert (end.status, end.exit_code, end.checkpointed) == (PlacementStatus.STOPPED, 5, True)
    assert "saved\n" in agent.log()
    end = await agent.ended("p2")
    assert (end.status, end.exit_code, end.checkpointed) == (PlacementStatus.STOPPED, 137, False)


async def test_a_failed_rank_ends_the_others(agents: Agents, east: Slurm) -> None:
    agent = await agents.of(east)
    run = "[ $FEDERATOR_NODE_RANK = 0 ] && exit 9; exec sleep 1000"
    await agent.run_job(run, nodes=2, checkpoint=Checkpoint(grace_s=5.0))
    end = await agent.ended()
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 9)
    assert [rank.exit_code for rank in end.ranks] == [9, 143]

"""Launchers at an agent with real processes: Open MPI, Dask and Ray themselves, with a process killed in the middle; of the others, stand-ins for the commands.

A stand-in looks at what the framework's documentation says that its command is given. What it cannot show is that the framework runs.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from federator.model.placements import Cause, DesiredEntry, PlacementReport, PlacementStatus
from federator.wire.jobfile import encode_spec, read_job, spec_hash
from tests.integration.agent.conftest import AgentProcess, entry
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.testbeds.frameworks import BIN, lacking, lacking_torch
from tests.testbeds.required import need

RANKS = 3
LONG_S = 180.0
"""Ray starts some ten processes for each rank."""
RING = """
from mpi4py import MPI
import os, sys
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
left = world.sendrecv(world.rank, dest=(world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
if world.rank == 1 and os.environ.get("KILLED"):
    os.kill(os.getpid(), 9)
world.Barrier()
print(f"process {world.rank} of {world.size} at {os.environ['FEDERATOR_NODE_RANK']}: sum {total}, left {left}", flush=True)
"""
# A task takes its worker, and what watches over that, down with it, once.
WORDS = """
import os, signal
from dask.distributed import Client
client = Client()
client.wait_for_workers(RANKS)
def count(text):
    if text == "the 7" and os.environ["FEDERATOR_NODE_RANK"] != "0" and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return len(text.split())
def again(text):
    while not os.path.exists("killed"):
        pass
    return count(text)
worker = next(w["name"] for w in client.scheduler_info()["workers"].values() if w["name"] != "rank-0")
lost = client.submit(count, "the 7", workers=[worker], allow_other_workers=True)
print("words", sum(client.gather([lost, *client.map(again, [f"the {i}" for i in range(7)])])), flush=True)
client.wait_for_workers(RANKS)
""".replace("RANKS", str(RANKS))
TREE = """
import os, signal, time, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(log_to_driver=False)
@ray.remote(max_retries=5)
def leaf(number):
    if number == 7 and os.environ["FEDERATOR_NODE_RANK"] != "0" and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
    return number
@ray.remote(num_cpus=0)
def branch(numbers):
    return sum(ray.get([leaf.remote(each) for each in numbers]))
while len([node for node in ray.nodes() if node["Alive"]]) < 2:
    time.sleep(0.2)
here = ray.get_runtime_context().get_node_id()
other = next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != here)
there = NodeAffinitySchedulingStrategy(other, soft=True)
lost = leaf.options(scheduling_strategy=there).remote(7)
print("sum", ray.get(lost) + sum(ray.get([branch.remote(range(first, first + 8)) for first in (8, 16)])), flush=True)
"""


# The first start loses a process in the middle; none of the others can go on without it.
SUM = """
import os, signal, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, here = dist.get_rank(), os.environ["FEDERATOR_NODE_RANK"]
if rank == 1 and not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
total = torch.tensor([rank + 1])
dist.all_reduce(total)
print(f"process {rank} of {dist.get_world_size()}: sum {int(total)}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module", autouse=True)
def _semaphores() -> Iterator[None]:
    """Those of Dask's processes are files, which nobody removes when these are killed: those that no process has open any more."""
    yield
    files, held = list(Path("/dev/shm").glob("sem.mp-*")), ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            held += maps.read_text()
    for file in files:
        if file.name not in held:
            file.unlink(missing_ok=True)


async def run(
    dispatcher: FakeDispatcher,
    program: str,
    framework: object,
    nodes: int = RANKS,
    path: str = "",
    **fields: Any,
) -> PlacementReport:
    """The end of a job of that framework; its log is kept as `p1`."""
    await dispatcher.want(asked(dispatcher, "p1", program, framework, nodes, path, **fields))
    return await dispatcher.ended("p1", LONG_S)


def asked(
    dispatcher: FakeDispatcher,
    placement: str,
    program: str,
    framework: object,
    nodes: int = RANKS,
    path: str = "",
    **fields: Any,
) -> DesiredEntry:
    """What the agent is told to run: `program`, by that framework, which is looked for in `path` first."""
    env = {"PATH": f"{path}{BIN}:/usr/bin:/bin", "RAY_DEDUP_LOGS": "0", **fields.pop("env", {})}
    document = {
        "run": program,
        "nodes": nodes,
        "framework": framework,
        "env": env,
        "resources": {"cpus": 1},
        **fields,
    }
    spec = read_job(document, now=0.0).spec
    dispatcher.specs[spec_hash(spec)] = encode_spec(spec)
    return entry(placement, spec_hash(spec), nodes=nodes, pool="gpu", success=spec.success or "")


def python(program: str) -> str:
    return f"python3 - <<'END'\n{program}\nEND"


async def test_mpi_runs_without_ssh(dispatcher: FakeDispatcher, agent: AgentProcess) -> None:
    need(lacking())
    end = await run(dispatcher, python(RING), {"name": "mpi", "processes": 2})
    log = dispatcher.log("p1")
    assert end.status is PlacementStatus.SUCCEEDED, log
    said = sorted(
        line for line in log.splitlines() if line.startswith("process")
    )  # mpirun may warn of itself
    assert said == [
        f"process {number} of 6 at {number // 2}: sum 21, left {(number - 1) % 6}" for number in range(6)
    ]


async def test_an_mpi_process_that_is_killed_ends_the_job(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    need(lacking())
    end = await run(dispatcher, python(RING), "mpi", env={"KILLED": "1"})
    assert (end.status, end.cause) == (PlacementStatus.FAILED, Cause.EXIT), dispatcher.log("p1")
    assert "rank 0" in end.detail, "mpirun has noticed"


async def test_torchrun_starts_all_processes_again_when_one_is_killed(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    if lacking_torch():
        pytest.skip(lacking_torch())
    framework = {"name": "torchrun", "processes": 2, "restarts": 2}
    program = f"cat >$TMPDIR/sum-$LOCAL_RANK.py <<'END'\n{SUM}\nEND\npython3 $TMPDIR/sum-$LOCAL_RANK.py"
    end = await run(dispatcher, program, framework, nodes=2)
    said = [line for rank in range(2) for line in dispatcher.log("p1", rank).splitlines()]
    assert end.status is PlacementStatus.SUCCEEDED, said
    sums = sorted(line for line in said if line.startswith("process "))
    assert sums == [f"process {number} of 4: sum 10" for number in range(4)]
    assert (agent.placement("p1") / "work" / "killed").exists()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("framework", "program", "nodes", "found"),
    [("dask", WORDS, RANKS, "words 16"), ("ray", TREE, 2, f"sum {7 + sum(range(8, 24))}")],
    ids=["dask", "ray"],
)
async def test_a_cluster_goes_on_without_a_worker_that_was_killed(
    dispatcher: FakeDispatcher, agent: AgentProcess, framework: str, program: str, nodes: int, found: str
) -> None:
    need(lacking())
    end = await run(dispatcher, python(program), framework, nodes)
    log = dispatcher.log("p1")
    assert (end.status, end.exit_code) == (PlacementStatus.SUCCEEDED, 0), log
    assert found in log.splitlines()
    assert (agent.placement("p1") / "work" / "killed").exists()
    if framework == "dask":
        # Its command waits for all workers once more.
        assert any("it is started again" in dispatcher.log("p1", rank) for rank in range(1, nodes))


@pytest.mark.parametrize("framework", ["dask", "ray"])
async def test_the_commands_exit_code_is_the_jobs(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path, framework: str
) -> None:
    """Whatever the cluster does: here it is not even one."""
    path = stand_in(tmp_path, framework, 'case "$*" in *--block* | worker*) sleep 600 ;; esac')
    end = await run(dispatcher, "exit 5", framework, path=path)
    assert (end.status, end.cause, end.exit_code) == (PlacementStatus.FAILED, Cause.EXIT, 5)


async def test_a_framework_that_is_not_there_is_said_at_once(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    end = await run(dispatcher, "true", "deepspeed")
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 127)
    assert "deepspeed" in dispatcher.log("p1") + dispatcher.log("p1", 1)


async def test_groups_of_unlike_ranks_meet_and_end_together(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    """A learner without GPUs waits for what the workers of two nodes send, and its end is the job's though they serve for ever."""
    learn = """
import os, socket
with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
    print("learned from", *sorted(server.accept()[0].makefile().readline() for _ in range(2)), flush=True)
"""
    roll_out = """
import os, socket, time
while True:
    try:
        link = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        break
    except OSError:
        time.sleep(0.05)
link.sendall(f"{os.environ['FEDERATOR_GROUP']}-{os.environ['FEDERATOR_NODE_RANK']}\\n".encode())
time.sleep(600)
"""
    groups = [
        {"name": "learner", "run": python(learn), "resources": {"cpus": 1}},
        {"name": "workers", "nodes": 2, "run": python(roll_out), "resources": {"cpus": 1}},
    ]
    spec = read_job({"groups": groups, "success": "learner"}, now=0.0).spec
    dispatcher.specs[spec_hash(spec)] = encode_spec(spec)
    await dispatcher.want(entry("p1", spec_hash(spec), nodes=2, pool="gpu", success=spec.success or ""))
    end = await dispatcher.ended("p1", LONG_S)
    logs = [dispatcher.log("p1", rank) for rank in range(2)]
    assert (end.status, end.exit_code) == (PlacementStatus.SUCCEEDED, 0), logs
    assert logs[0].split() == ["learned", "from", "workers-0", "workers-1"]


# Stand-ins -------------------------------------------------------------------------------------------------------------


def stand_in(tmp_path: Path, name: str, text: str) -> str:
    """A command of that name, found before all others."""
    folder = tmp_path / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:"


ALL = 'for each in "$@"; do printf "%s\\n" "$each"; done'


async def test_torchrun_is_given_its_processes_and_where_to_meet(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    path = stand_in(
        tmp_path, "torchrun", f"{ALL}; echo $PET_NNODES $PET_NODE_RANK $PET_NPROC_PER_NODE $PET_RDZV_ENDPOINT"
    )
    end = await run(dispatcher, "train", {"name": "torchrun", "processes": 4, "restarts": 3}, path=path)
    assert end.status is PlacementStatus.SUCCEEDED
    for rank in range(RANKS):
        *words, variables = dispatcher.log("p1", rank).splitlines()
        is_host = int(rank == 0)
        assert words == [
            "--rdzv-backend=c10d", f"--rdzv-conf=is_host={is_host}", "--max-restarts=3", "--nproc-per-node=4",
            "--no-python", "/bin/sh", "-c", "train",
        ]  # fmt: skip
        nodes, number, processes, place = variables.split()
        assert (nodes, number, processes) == (str(RANKS), str(rank), "1")
        assert place.startswith("127.0.0.1:")


async def test_two_versions_of_a_framework_run_side_by_side(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    """Each job has its own by its `PATH`. Neither ends before the other has begun."""
    met = tmp_path / "met"
    met.mkdir()
    entries = []
    for version, other in (("2.1", "2.9"), ("2.9", "2.1")):
        text = f'touch {met}/{version}; until [ -e {met}/{other} ]; do sleep 0.1; done; shift; TORCH={version} exec "$@"'
        path = stand_in(tmp_path / version, "torchrun", text)
        show = "echo $TORCH on rank $FEDERATOR_NODE_RANK of $FEDERATOR_NUM_NODES"
        entries.append(asked(dispatcher, f"p{version}", show, "torchrun", nodes=2, path=path))
    await dispatcher.want(*entries)
    for version in ("2.1", "2.9"):
        end = await dispatcher.ended(f"p{version}", LONG_S)
        assert end.status is PlacementStatus.SUCCEEDED, dispatcher.log(f"p{version}")
        for rank in range(2):
            assert dispatcher.log(f"p{version}", rank) == f"{version} on rank {rank} of 2\n"


async def test_deepspeed_is_given_all_ranks_and_leaves_the_gpus_to_the_site(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    text = 'cat "$2"; shift 2; echo "$1 $2 $3"; shift 7; while [ "$1" != sh ]; do echo "$1"; shift; done; CUDA_VISIBLE_DEVICES=0,1 exec "$@"'
    path = stand_in(tmp_path, "deepspeed", text)
    end = await run(
        dispatcher, "echo on $CUDA_VISIBLE_DEVICES", "deepspeed", nodes=2, path=path, resources={"gpus": 3}
    )
    assert end.status is PlacementStatus.SUCCEEDED
    for rank in range(2):
        words = dispatcher.log("p1", rank).splitlines()
        assert words[:2] == ["rank-0 slots=3", "rank-1 slots=3"]
        assert words[2] == f"--no_ssh --node_rank {rank}"
        assert words[3:5] == ["--no_python", "--no_local_rank"]
        assert words[5].startswith("on ")
        assert len(words[5].split(",")) == 3, "its own GPUs, not the first two"


async def test_tensorflow_has_the_addresses_of_all_ranks(
    dispatcher: FakeDispatcher, agent: AgentProcess
) -> None:
    end = await run(dispatcher, 'echo "$TF_CONFIG"', "tensorflow")
    assert end.status is PlacementStatus.SUCCEEDED
    said = [json.loads(dispatcher.log("p1", rank)) for rank in range(RANKS)]
    assert [each["task"] for each in said] == [{"type": "worker", "index": rank} for rank in range(RANKS)]
    (workers,) = {tuple(each["cluster"]["worker"]) for each in said}
    assert len(set(workers)) == RANKS


async def test_spark_has_a_master_at_rank_0_and_a_worker_at_each(
    dispatcher: FakeDispatcher, agent: AgentProcess, tmp_path: Path
) -> None:
    text = 'case "$1" in *Worker) echo "$@" >>$FEDERATOR_NODE_RANK.worker; sleep 600 ;; *) echo "$@" >master; sleep 600 ;; esac'
    stand_in(tmp_path, "spark-class", text)
    driver = "until [ -s master ] && [ -s 0.worker ] && [ -s 1.worker ]; do sleep 0.1; done; echo $MASTER; cat master *.worker"
    resources = {"cpus": 2, "memory": "1GiB"}
    end = await run(
        dispatcher, driver, "spark", nodes=2, env={"SPARK_HOME": str(tmp_path)}, resources=resources
    )
    assert end.status is PlacementStatus.SUCCEEDED
    url, master, *workers = dispatcher.log("p1").splitlines()
    host, port = url.removeprefix("spark://").split(":")
    assert master == f"org.apache.spark.deploy.master.Master --host {host} --port {port} --webui-port 0"
    for worker in workers:
        assert worker.startswith("org.apache.spark.deploy.worker.Worker --webui-port 0 --work-dir ")
        assert worker.endswith(f" --cores 2 --memory 1024m {url}")
    assert len(workers) == 2

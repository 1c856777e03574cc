"""Shards and MIG instances of a Slurm cluster: what is lent of them, and what Slurm is asked for."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.jobs import APART, ON_ONE_HOST, Accelerators, Resources
from federator.wire.decoding import decode
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.slurm import settings as settings_of
from federator_agent.slurm.capacity import View, view
from federator_agent.slurm.output import Node, Partition, host_names, read_nodes, read_shards
from federator_agent.slurm.script import batch_script, sbatch_options, shards_per_node
from federator_agent.slurm.settings import Account, GpuType, SlurmSettings
from tests.unit.agent.worlds import entry, spec

ALL = Partition("all", up=True, max_time_s=None, default_memory=False)
NODE = (
    "NodeName=n0 NodeAddr=n0 Partitions=all State=MIXED CPUTot=64 CPUAlloc=0 RealMemory=64000 AllocMem=0 "
    "Gres=gpu:a100:2,gpu:a100_3g.20gb:2,shard:a100:8,shard:a100_3g.20gb:0 "
    "GresUsed=gpu:a100:0(IDX:N/A),gpu:a100_3g.20gb:1(IDX:2),shard:a100:2(IDX:0-1),shard:a100_3g.20gb:0(IDX:N/A)"
)
"""As Slurm 22.05 shows it: of shards it tells how many jobs have some, and on which GPUs."""
JOBS = """\
JobId=1 JobName=a JobState=RUNNING NumNodes=1 JOB_GRES=shard:1   Nodes=n0 CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0) MinCPUsNode=1
JobId=2 JobName=b JobState=RUNNING NumNodes=1 JOB_GRES=shard:2   Nodes=n0 CPU_IDs=1 Mem=0 GRES=shard:2(IDX:0) MinCPUsNode=1
JobId=4 JobName=c JobState=RUNNING NumNodes=3 JOB_GRES=shard:a100:3   Nodes=n[1-2] CPU_IDs=1 Mem=0 GRES=shard:a100:1(IDX:1)   Nodes=n3 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0),shard:a100:1(IDX:1) MinCPUsNode=1
JobId=5 JobName=d JobState=PENDING NumNodes=1 TresPerNode=gres:shard:1
JobId=6 JobName=shard JobState=RUNNING NumNodes=1 JOB_GRES=gpu:a100:1   Nodes=n0 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:1) MinCPUsNode=1
"""


def a_view(used: dict[int, int] | None = None, *nodes: Node, **fields: object) -> View:
    settings = SlurmSettings(shared_dir=Path("/shared"), **fields)  # type: ignore[arg-type]
    return view(settings, nodes or read_nodes(NODE), [ALL], [], (), (), {"n0": used or {}})


def pools(of: View) -> dict[str, tuple[str, int, int, int, int]]:
    return {
        each.name: (each.model, each.nodes, each.gpus_per_node, each.host_milli, each.cut_milli)
        for each in of.seen.pools
    }


def free(of: View, pool: str) -> list[tuple[str, int, int]]:
    return [(host.name, len(host.gpus), host.share_milli) for host in of.seen.hosts[pool]]


def test_the_shards_of_each_gpu_are_known_from_the_jobs_that_have_them() -> None:
    assert read_nodes(NODE)[0].shards == {"a100": 8}
    used = read_shards(JOBS, {f"n{number}" for number in range(4)})
    assert used == {"n0": {0: 3}, "n1": {1: 1}, "n2": {1: 1}, "n3": {1: 1}}


def test_lists_of_hosts_are_read() -> None:
    assert host_names("a,n[08-10,3]x,b[1]") == ["a", "n08x", "n09x", "n10x", "n3x", "b1"]


def test_a_name_that_looks_like_a_list_without_an_end_is_passed_over() -> None:
    """Any user of the cluster may write it; read out in full, it would take the agent down."""
    many = "n[0-999999999]," * 40 + "n[0-19000]," * 200 + "n[x-y,1-,9999999999999999999999]"
    line = f"JobId=1 JobName=x Nodes={many} CPU_IDs=0 Mem=0 GRES=shard:1(IDX:0-999999999,3,0-19000),shard:{'9' * 5000}(IDX:1) JobState=RUNNING NumNodes=1"
    assert host_names("n[0-999999999]") == []
    assert len(host_names(many)) < 50_000
    used = read_shards(line, {"n1", "n2"})
    assert set(used) == {"n1", "n2"}
    assert max(used["n1"]) < 1000


def test_instances_are_a_pool_of_parts_beside_whole_gpus() -> None:
    found = a_view(gpus={"a100": GpuType("A100", 40960)})
    assert pools(found) == {"all": ("A100", 1, 2, 1000, 0), "all-a100_3g.20gb": ("A100", 2, 1, 500, 500)}
    assert free(found, "all") == [("n0", 2, 0)]
    assert free(found, "all-a100_3g.20gb") == [("n0", 1, 500)]
    whole, half = found.seen.pools
    assert (whole.cpus_milli_per_node, half.cpus_milli_per_node) == (42666, 10666)


def test_the_site_may_call_a_part_as_it_likes() -> None:
    found = a_view(gpus={"a100_3g.20gb": GpuType("A100", 40960, 428)})
    assert pools(found)["all-a100_3g.20gb"] == ("A100", 2, 1, 428, 428)
    parsed = decode(
        {"shared_dir": "/s", "gpus": {"x": "A100:40GB:0.428"}}, settings_of.SlurmSettings, "$.slurm"
    )
    assert parsed.gpus["x"] == GpuType("A100", 38147, 428)


def test_shared_gpus_leave_the_whole_ones_and_each_is_a_host_of_shards() -> None:
    found = a_view(shared={"all": 1})
    assert pools(found)["all"][1:3] == (1, 1)
    assert pools(found)["all-shared"] == ("A100", 1, 1, 1000, 250)
    assert free(found, "all") == [("n0", 1, 0)]
    assert free(found, "all-shared") == [("n0/0", 1, 1000)]
    assert found.targets["all-shared"].shards
    assert "all" not in pools(a_view(shared={"all": 2}))


def test_a_gpu_with_shards_in_use_is_whole_for_nobody() -> None:
    assert free(a_view({0: 3}), "all") == [("n0", 1, 0)]
    found = a_view({0: 3}, shared={"all": 1})
    assert (free(found, "all"), free(found, "all-shared")) == ([("n0", 1, 0)], [("n0/0", 1, 250)])
    found = a_view({0: 4, 1: 1}, shared={"all": 1})
    assert (free(found, "all"), free(found, "all-shared")) == ([], [])


def test_nodes_that_are_cut_in_several_ways_lend_no_shards() -> None:
    one, other = (
        read_nodes(NODE)[0],
        read_nodes(NODE.replace("n0", "n1").replace("shard:a100:8", "shard:a100:4"))[0],
    )
    found = a_view(None, one, other, shared={"all": 2})
    assert "all-shared" not in pools(found)
    assert "all-shared are not all cut" in found.seen.health


def _record(ranks: int) -> PlacementRecord:
    of = spec(nodes=ranks)
    slots = tuple(Slot(rank, "all-shared", "n0/0", (0,), 1000, 0, 500) for rank in range(ranks))
    return PlacementRecord(entry=entry("p", of), phase=Phase.STAGING, slots=slots)


@pytest.mark.parametrize(
    ("ranks", "together", "due"),
    [
        (1, "", ["--gres=shard:a100:2"]),
        (3, "", ["--gres=shard:a100:2", "--nodes=3", "--ntasks-per-node=1"]),
        (3, APART, ["--nodes=3", "--ntasks-per-node=1", "--gres=shard:a100:2"]),
        (2, ON_ONE_HOST, ["--nodes=1", "--gres=shard:a100:4"]),
    ],
)
def test_slurm_is_asked_for_shards_of_one_gpu(ranks: int, together: str, due: list[str]) -> None:
    target = a_view(shared={"all": 1}).targets["all-shared"]
    need = Resources(gpus=Accelerators(count=1, share_milli=500), cpus_milli=1000)
    options = sbatch_options(_record(ranks), need, target, Account(), together)
    assert [each for each in options if "node" in each or "gres" in each or "gpus" in each] == due
    shards = shards_per_node(ranks, need, target, together)
    assert f"--gres=shard:{shards} " in batch_script(Path("/p"), ranks, need, shards)
    assert "--mem-per-cpu=10666M" in sbatch_options(_record(1), need, target, Account())


def test_slurm_is_asked_for_an_instance_as_for_a_gpu_of_its_type() -> None:
    target = a_view().targets["all-a100_3g.20gb"]
    need = Resources(gpus=Accelerators(count=1, share_milli=500), cpus_milli=1000)
    options = sbatch_options(_record(1), need, target, Account())
    assert "--gpus-per-task=a100_3g.20gb:1" in options
    assert shards_per_node(1, need, target, "") == 0
    assert "gres" not in batch_script(Path("/p"), 1, need)


def test_a_count_of_gpus_is_no_part() -> None:
    with pytest.raises(Invalid, match="is not one model of GPU"):
        decode({"shared_dir": "/s", "gpus": {"x": "A100:2"}}, settings_of.SlurmSettings, "$.slurm")
    assert decode(
        {"shared_dir": "/s", "shared": {"gpu": 2}}, settings_of.SlurmSettings, "$.slurm"
    ).shared == {"gpu": 2}
    assert replace(SlurmSettings(shared_dir=Path("/s")), shared={}).shared == {}

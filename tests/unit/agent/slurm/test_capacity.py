"""What a cluster lends, from what Slurm shows of it: pools, free hosts, other people's work; no node twice."""

from pathlib import Path

from federator.model.sites import LocalWork
from federator_agent.core.lent_capacity import Host
from federator_agent.slurm.capacity import view
from federator_agent.slurm.output import (
    Node,
    OtherJob,
    Partition,
    read_nodes,
    read_other_jobs,
    read_partitions,
)
from federator_agent.slurm.settings import GpuType, SlurmSettings

RECORDED = Path(__file__).parent / "recorded"
SHARED = Path("/shared")
GPU = Partition("gpu", up=True, max_time_s=3600.0, default_memory=False)
ALL = Partition("all", up=True, max_time_s=None, default_memory=True)


def _node(
    name: str, *partitions: str, gpus: dict[str, tuple[int, int]] | None = None, state: str = "IDLE"
) -> Node:
    return Node(name, name, partitions, frozenset(state.split("+")), 16, 4, 1000, 250, gpus or {})


def _settings(*partitions: str, **gpus: GpuType) -> SlurmSettings:
    return SlurmSettings(shared_dir=SHARED, partitions=partitions, gpus=gpus)


def test_a_recorded_cluster() -> None:
    nodes = read_nodes((RECORDED / "nodes.txt").read_text())
    partitions = read_partitions((RECORDED / "partitions.txt").read_text())
    jobs = read_other_jobs((RECORDED / "jobs.txt").read_text())
    settings = _settings("main", a100=GpuType("A100", 76294))
    seen, targets = view(settings, nodes, partitions, jobs, {"pl-1", "pl-2"}, ["pl-1"])
    [pool] = seen.pools
    assert (pool.name, pool.model, pool.gpu_memory_mib, pool.nodes, pool.gpus_per_node) == (
        "main",
        "A100",
        76294,
        4,
        8,
    )
    free = {host.name: (len(host.gpus), host.cpus_milli, host.memory_mib) for host in seen.hosts["main"]}
    assert free == {"n0": (0, 28000, 65136), "n1": (4, 30000, 65336), "n2": (0, 31000, 65436)}
    assert seen.counted == {"pl-1"}
    assert pool.longest_s == 86400.0
    running, *waiting = sorted(seen.local_work, key=lambda work: work.queued)
    assert (running.nodes, running.gpus_per_node, running.queued) == (1, 8, False)
    assert sorted((work.nodes, work.gpus_per_node) for work in waiting) == [(1, 3), (4, 8)]
    assert (targets["main"].partition, targets["main"].gpu_type, targets["main"].max_time_s) == (
        "main",
        "a100",
        86400.0,
    )


def test_the_labels_of_a_partition_are_those_of_all_its_pools() -> None:
    nodes = [
        _node("a", "gpu", gpus={"a100": (4, 0)}),
        _node("b", "gpu", gpus={"h100": (4, 0)}),
        _node("c", "all"),
    ]
    settings = SlurmSettings(shared_dir=SHARED, labels={"gpu": {"rack": "r1"}})
    seen, _ = view(settings, nodes, [GPU, ALL], [], (), ())
    assert {pool.name: dict(pool.labels) for pool in seen.pools} == {
        "gpu-h100": {"rack": "r1"}, "gpu-a100": {"rack": "r1"}, "all": {},
    }  # fmt: skip


def test_a_node_of_two_partitions_is_lent_once() -> None:
    nodes = [_node("a", "all", "gpu", gpus={"": (4, 1)}), _node("b", "all")]
    seen, _ = view(_settings("gpu", "all"), nodes, [ALL, GPU], [], (), ())
    assert {name: [host.name for host in hosts] for name, hosts in seen.hosts.items()} == {
        "gpu": ["a"],
        "all": ["b"],
    }
    seen, _ = view(_settings(), nodes, [GPU, ALL], [], (), ())
    assert sum(pool.nodes for pool in seen.pools) == 2


def test_a_partition_of_several_makes_is_several_pools() -> None:
    nodes = [
        _node("a", "all", gpus={"a100": (8, 0)}),
        _node("v", "all", gpus={"v100": (4, 1)}),
        _node("c", "all"),
    ]
    seen, targets = view(_settings(a100=GpuType("A100", 80)), nodes, [ALL], [], (), ())
    assert {pool.name: (pool.model, pool.gpus_per_node) for pool in seen.pools} == {
        "all-a100": ("A100", 8),
        "all-v100": ("V100", 4),
        "all-cpu": ("", 0),
    }
    assert seen.hosts["all-v100"] == (Host("v", (0, 1, 2), 12000, 750),)
    assert {name: (target.partition, target.gpu_type) for name, target in targets.items()} == {
        "all-a100": ("all", "a100"),
        "all-v100": ("all", "v100"),
        "all-cpu": ("all", ""),
    }


def test_gpus_without_a_type_are_called_as_the_site_says() -> None:
    nodes = [_node("a", "all", gpus={"": (2, 0)})]
    [pool] = view(_settings(gpu=GpuType("H100", 5)), nodes, [ALL], [], (), ()).seen.pools
    assert (pool.name, pool.model, pool.gpu_memory_mib) == ("all", "H100", 5)
    [pool] = view(_settings(), nodes, [ALL], [], (), ()).seen.pools
    assert pool.model == "GPU"


def test_only_nodes_that_take_work_are_free() -> None:
    states = (
        "IDLE",
        "MIXED+CLOUD",
        "COMPLETING",
        "IDLE+DRAIN",
        "DOWN",
        "IDLE+PLANNED",
        "MIXED+MAINT",
        "IDLE+RESERVED",
        "IDLE+NOT_RESPONDING",
        "UNKNOWN",
    )
    nodes = [_node(state, "all", state=state) for state in states]
    seen, _ = view(_settings(), nodes, [ALL], [], (), ())
    assert [host.name for host in seen.hosts["all"]] == ["IDLE", "MIXED+CLOUD", "COMPLETING"]
    assert seen.pools[0].nodes == len(states)


def test_a_partition_that_is_down_keeps_its_pool_and_lends_nothing() -> None:
    seen, _ = view(_settings("all"), [_node("a", "all")], [ALL._replace(up=False)], [], (), ())
    assert [pool.name for pool in seen.pools] == ["all"]
    assert seen.hosts == {"all": ()}


def test_local_work_is_grouped_and_told_of_a_pool_that_could_hold_it() -> None:
    nodes = [_node("a", "all", gpus={"a100": (8, 0)}), _node("c", "all")]
    jobs = [
        OtherJob("x", "RUNNING", "all", 1, 4, 50.0),
        OtherJob("x", "RUNNING", "all", 1, 4, 50.0),
        OtherJob("y", "PENDING", "all", 3, 0, 70.0),
        OtherJob("z", "COMPLETED", "all", 1, 8, 50.0),
        OtherJob("ours", "RUNNING", "all", 1, 8, 50.0),
        OtherJob("away", "RUNNING", "other", 1, 8, 50.0),
    ]
    seen, _ = view(_settings(), nodes, [ALL], jobs, {"ours"}, {"ours"})
    assert seen.local_work == (
        LocalWork("all-a100", 2, 4, 50.0),
        LocalWork("all-cpu", 3, 0, None, queued=True),
    )

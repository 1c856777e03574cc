"""Pools by leaf switches: what Slurm tells of them, which nodes each pool has, and how its jobs are kept there."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.kernel.clock import SystemClock
from federator.model.sites import LocalWork
from federator_agent.core.lent_capacity import MOST_POOLS, Slot
from federator_agent.core.state import PlacementRecord
from federator_agent.slurm.allocation import LONGEST_LIST, Allocation
from federator_agent.slurm.capacity import view
from federator_agent.slurm.cluster import SlurmCluster
from federator_agent.slurm.commands import Commands, Rejected
from federator_agent.slurm.folder import Folder
from federator_agent.slurm.output import Node, OtherJob, Partition, host_list, host_names, read_switches
from federator_agent.slurm.queue import Queue
from federator_agent.slurm.settings import SlurmSettings
from federator_agent.staging_errors import StagingRefused
from tests.unit.agent.worlds import entry, spec

RECORDED = Path(__file__).parent / "recorded"
GPU = Partition("gpu", up=True, max_time_s=None, default_memory=True)


def _settings(**fields: Any) -> SlurmSettings:
    return SlurmSettings(shared_dir=Path("/s"), partitions=("gpu",), topology="rack", **fields)


def _node(name: str, switch: str = "", kind: str = "a100", **fields: Any) -> Node:
    gpus = {kind: (4, 0)} if kind else {}
    return Node(name, name, ("gpu",), frozenset({"IDLE"}), 16, 0, 1000, 0, gpus, switch=switch, **fields)


def test_leaf_switches_are_read_and_blocks() -> None:
    assert read_switches((RECORDED / "topology.txt").read_text()) == {"n0": "s0", "n1": "s0", "n2": "s1"}
    blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nAggregatedBlock=b[1-2] Nodes=n[1-4]\n"
    assert read_switches(blocks) == {"n1": "b1", "n2": "b1"}


def test_names_that_could_not_be_a_pools_are_passed_over() -> None:
    names = ("a/b", "-x", "x" * 64, "\u00e9", "r7.b_1")
    lines = [f"SwitchName={name} Level=0 Nodes=n{number}" for number, name in enumerate(names)]
    assert read_switches("\n".join(lines)) == {"n4": "r7.b_1"}
    assert not read_switches("SwitchName=s Level=0 Nodes=n[0-999999999]")


def test_each_pool_is_one_for_each_switch() -> None:
    nodes = [
        _node("n0", "s0"), _node("n1", "s0"), _node("n2", "s1"), _node("n3"), _node("n4", "s1", "v100"),
    ]  # fmt: skip
    labels = {"gpu": {"hall": "h1", "rack": "?"}}
    seen, targets = view(_settings(labels=labels), nodes, [GPU], [], (), ())
    assert {pool.name: (pool.nodes, dict(pool.labels)["rack"]) for pool in seen.pools} == {
        "gpu-s1-v100": (1, "s1"),
        "gpu-s0-a100": (2, "s0"),
        "gpu-s1-a100": (1, "s1"),
        "gpu-a100": (1, "?"),
    }
    assert {dict(pool.labels)["hall"] for pool in seen.pools} == {"h1"}
    assert [host.name for host in seen.hosts["gpu-s0-a100"]] == ["n0", "n1"]
    assert targets["gpu-s1-a100"].switch == "s1"
    assert seen.health == "ok"


def test_pools_of_parts_keep_the_end_that_tells_them() -> None:
    nodes = [_node("n0", "s0", shards={"a100": 16}), _node("n1", "s1", kind="a100_3g.20gb")]
    seen, _ = view(_settings(shared={"gpu": 2}), nodes, [GPU], [], (), ())
    assert {pool.name for pool in seen.pools} == {
        "gpu-s0-a100", "gpu-s0-a100-shared", "gpu-s1-a100_3g.20gb",
    }  # fmt: skip


def test_local_work_that_runs_is_told_of_the_pool_where_it_is() -> None:
    nodes = [_node("n0", "s0"), _node("n1", "s1")]
    jobs = [
        OtherJob("x", "RUNNING", "gpu", 1, 4, 50.0, "n1"),
        OtherJob("y", "PENDING", "gpu", 1, 4, None),
    ]
    assert view(_settings(), nodes, [GPU], jobs, (), ()).seen.local_work == (
        LocalWork("gpu-s0", 1, 4, None, queued=True),
        LocalWork("gpu-s1", 1, 4, 50.0),
    )


def test_without_switches_pools_stay_whole_and_the_site_says_so() -> None:
    seen, _ = view(_settings(), [_node("n0"), _node("n1")], [GPU], [], (), ())
    assert [(pool.name, pool.nodes) for pool in seen.pools] == [("gpu", 2)]
    assert seen.health.startswith("Slurm names no switches, so pools are whole")


def test_more_pools_than_a_report_takes_are_said() -> None:
    nodes = [_node(f"n{number}", f"s{number}") for number in range(MOST_POOLS + 5)]
    seen, _ = view(_settings(), nodes, [GPU], [], (), ())
    assert len(seen.pools) == MOST_POOLS
    assert f"{MOST_POOLS} of {MOST_POOLS + 5} pools" in seen.health


def test_lists_of_hosts_are_written() -> None:
    names = ["n08", "n09", "n10", "n3", "login", "a1-x", "b7", "n5", "n4", "n7"]
    text = host_list(names)
    assert text == "n[08-10],n[3-5,7],login,a1-x,b[7]"
    assert sorted(host_names(text)) == sorted(names)
    assert not host_list([])


class _Scontrol(Commands):
    """A cluster of ten nodes."""

    def __init__(self, topology: str | Exception, name: str) -> None:
        self._topology = topology
        self._name = name

    async def run(self, program: str, *arguments: str) -> str:
        if "topology" in arguments:
            if isinstance(self._topology, Exception):
                raise self._topology
            return self._topology
        if "node" in arguments:
            return "\n".join(
                f"NodeName={self._name}{number} Partitions=gpu CPUTot=4 State=IDLE" for number in range(10)
            )
        return "PartitionName=gpu State=UP" if "partition" in arguments else ""


def _cluster(topology: str | Exception, name: str = "n") -> SlurmCluster:
    cluster = SlurmCluster(_settings(), {})
    cluster.commands = _Scontrol(topology, name)
    cluster.queue = Queue(cluster.commands, ())
    return cluster


async def test_a_job_leaves_out_all_nodes_below_other_switches() -> None:
    cluster = _cluster("SwitchName=s0 Level=0 Nodes=n[0-2]\nSwitchName=s1 Level=0 Nodes=n[5-7]\n")
    left_out = {}
    for pool in ("gpu-s0", "gpu-s1", "gpu"):
        target = await cluster.target(pool)
        assert target is not None
        left_out[pool] = target.exclude
    assert left_out == {"gpu-s0": "n[3-9]", "gpu-s1": "n[0-4,8-9]", "gpu": "n[0-2,5-7]"}


async def test_a_list_that_no_command_takes_is_refused() -> None:
    name = "x" * LONGEST_LIST
    cluster = _cluster(f"SwitchName=s0 Level=0 Nodes={name}0\n", name)
    of = spec()
    slots = (Slot(0, "gpu-s0", f"{name}0", (), 1000, 0),)
    record = PlacementRecord(entry=replace(entry("p", of), pool="gpu-s0"), slots=slots)
    with pytest.raises(StagingRefused, match=r"outside of pool gpu-s0 .* leave out slurm.topology"):
        await Allocation(cluster, SystemClock()).submit(record, of, Folder(Path("/none"), Path("/none")))
    cluster.queue.close()


async def test_a_plugin_that_has_nothing_to_show_leaves_pools_whole() -> None:
    target = await _cluster(Rejected("not supported")).target("gpu")
    assert target is not None
    assert not target.exclude

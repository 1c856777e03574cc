"""How a gang's ranks lie, as its job says: on one host, each on its own, and asked of a cluster's scheduler in its own words."""

from typing import Any

from msgspec.structs import replace

from federator.model.jobs import JobSpec, PlacementConstraints
from federator.model.placements import PlacementStatus
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import Phase, PlacementRecord
from federator_agent.kube import manifests
from federator_agent.kube.capacity import PLACEMENT_LABEL, PoolPlace
from federator_agent.kube.settings import KubeSettings
from federator_agent.slurm.script import SlurmPool, sbatch_options
from federator_agent.slurm.settings import Account
from tests.unit.agent.worlds import World, entry, spec

TARGET = SlurmPool(
    "gpu", "a100", None, node_cpus=32, node_gpus=8, node_memory_mib=64000, default_memory=False
)


def gang(together: str, nodes: int, gpus: int = 1) -> JobSpec:
    return replace(spec(gpus=gpus, nodes=nodes), placement=PlacementConstraints(together=together))


def seats(of: JobSpec, *, before: JobSpec | None = None) -> list[str] | None:
    world = World()
    world.connect()
    if before is not None:
        world.run("b", before)
    world.run("p", of)
    if world.last("p").status is PlacementStatus.REFUSED:
        return None
    return [slot.host for slot in world.state.records["p"].slots]


def test_apart_means_a_host_for_each_rank() -> None:
    assert seats(spec(nodes=2)) == ["gpu/0", "gpu/0"], "as it comes"
    assert seats(gang("spread", 2)) == ["gpu/0", "gpu/1"]
    assert seats(gang("spread", 3)) is None


def test_one_host_means_one_that_holds_them_all() -> None:
    filled = spec(gpus=2)
    assert seats(spec(gpus=1, nodes=3), before=filled) == ["gpu/0", "gpu/0", "gpu/1"], "as it comes"
    assert seats(gang("host", 3), before=filled) == ["gpu/1", "gpu/1", "gpu/1"]
    assert seats(gang("host", 5)) is None


def test_a_label_is_for_the_planner() -> None:
    assert seats(gang("rack", 2)) == ["gpu/0", "gpu/0"]


def _record(of: JobSpec) -> PlacementRecord:
    slots = tuple(Slot(rank, "gpu", "n0", (), 1000, 0) for rank in range(of.nodes))
    return PlacementRecord(entry=entry("p", of), phase=Phase.STAGING, slots=slots)


def test_slurm_is_asked_for_so_many_nodes() -> None:
    def options(together: str) -> set[str]:
        of = gang(together, 2)
        found = sbatch_options(_record(of), of.resources, TARGET, Account(), together)
        return {option for option in found if "node" in option}

    assert options("") == options("rack") == set()
    assert options("host") == {"--nodes=1"}
    assert options("spread") == {"--nodes=2", "--ntasks-per-node=1"}


def test_kubernetes_is_told_to_keep_pods_together_or_apart() -> None:
    def affinity(together: str, **place: Any) -> dict[str, Any]:
        of = gang(together, 2)
        pod = manifests.pod(_record(of), of, 0, PoolPlace({}, **place), KubeSettings(image="i"), "here")
        found: dict[str, Any] = pod["spec"].get("affinity", {})
        return found

    term = {"labelSelector": {"matchLabels": {PLACEMENT_LABEL: "p"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    assert affinity("") == affinity("rack") == {}
    assert affinity("host") == {"podAffinity": rule}
    assert affinity("spread") == {"podAntiAffinity": rule}
    assert set(affinity("spread", without=("gpu",))) == {"nodeAffinity", "podAntiAffinity"}

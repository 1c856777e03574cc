"""What the federation's sites stand on: two hosts of this machine, two clusters of Slurm, a Kubernetes with a node that runs containers.

A `Ground` starts its servers, says how its agents are to be told of them, and brings home what ranks have written down where they cannot reach the
journal. Where its servers are not installed it says what is lacking, and the federation goes without that site.
"""

import asyncio
import os
import secrets
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from pathlib import Path

from federator.cli.demo.world import Document
from federator_agent.kube.capacity import SITE_LABEL
from tests.testbeds import slurm
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE, Admin
from tests.testbeds.kubernetes.node import GPUS

HOST = {"model": "A100", "gpu_memory": "80GiB", "nodes": 1, "gpus_per_node": 2, "cpus_per_node": 16, "memory_per_node": "64GiB"}  # fmt: skip


class Ground(ABC):
    """What a site stands on. `nodes` hosts, of which a gang of as many ranks with `gpus` GPUs each takes all that there is."""

    name: str
    lack = ""
    """What is not installed, and how to get it; empty: nothing is."""
    nodes = 2
    gpus = 2

    @abstractmethod
    async def start(self, stack: AsyncExitStack, folder: Path) -> list[Document]:
        """Start what it is, to be ended with the stack. The site files of its agents: all but where they dial and who they are."""

    def journals(self) -> list[Path]:
        """Folders in which ranks have left their lines that could not reach the federation's journal."""
        return []

    async def left(self) -> list[str]:
        """What is left of placements when all are over."""
        return []


class Members(Ground):
    """Two hosts with an agent each, in the local runtime."""

    name = "duo"

    async def start(self, stack: AsyncExitStack, folder: Path) -> list[Document]:
        """Nothing but their agents has to be started."""
        del stack, folder
        return [
            {"member": f"{self.name}-{letter}", "address": "127.0.0.1", "pools": [{"name": "main", **HOST}]}
            for letter in "ab"
        ]


class SlurmA(Ground):
    """A cluster of Slurm with two nodes."""

    name = "slurm-a"

    def __init__(self) -> None:
        self.lack = slurm.missing()
        self._cluster: slurm.Slurm | None = None

    async def start(self, stack: AsyncExitStack, folder: Path) -> list[Document]:
        """Its daemons; the agent reaches it by its slurm.conf."""
        cluster = slurm.Slurm(folder / "cluster", nodes=self.nodes, gpus=self.gpus, cpus=16)
        self._cluster = await stack.enter_async_context(cluster)
        (folder / "shared").mkdir()
        return [{"slurm": {"conf": str(cluster.configuration), "shared_dir": str(folder / "shared")}}]

    async def left(self) -> list[str]:
        """Jobs that Slurm has still to do."""
        assert self._cluster is not None
        return (await self._cluster.command("squeue", "--noheader", "--format=%j %T")).splitlines()


class SlurmB(SlurmA):
    """Another one beside it."""

    name = "slurm-b"


class Kube(Ground):
    """A Kubernetes with one node, on which a gang of two shares the GPUs. Pods see no file of ours, but checkpoints outlive them: on a volume of that node's."""

    name = "kube"
    gpus = GPUS // 2

    def __init__(self) -> None:
        foreign = (
            "KUBECONFIG names a cluster whose disks are not here; unset it"
            if os.environ.get("KUBECONFIG")
            else ""
        )
        self.lack = foreign or shared.lacking()
        self._checkpoints: Path | None = None

    async def start(self, stack: AsyncExitStack, folder: Path) -> list[Document]:
        """The cluster that all tests of this run share, with a volume for this one."""
        del stack
        testbed = await asyncio.to_thread(shared.testbed)
        self._checkpoints = folder / "checkpoints"
        self._checkpoints.mkdir(parents=True)
        self._checkpoints.chmod(0o777)  # jobs are no user of this machine
        claim = await asyncio.to_thread(_claim, testbed.admin, self._checkpoints)
        access = {
            "kubeconfig": str(testbed.kubeconfig), "namespace": NAMESPACE, "image": testbed.image, "side_image": testbed.image,
        }  # fmt: skip
        return [{"kube": access | {"checkpoints": claim}}]

    def journals(self) -> list[Path]:
        """Each job's checkpoints."""
        return list(self._checkpoints.iterdir()) if self._checkpoints else []

    async def left(self) -> list[str]:
        """Pods that are still there."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={SITE_LABEL}%3D{self.name}"
        pods = await asyncio.to_thread(shared.testbed().admin.ask, "GET", path)
        return [f"the pod {pod['metadata']['name']}" for pod in pods["items"]]


def _claim(admin: Admin, folder: Path) -> str:
    """A claim on a folder of the node's. Nobody binds volumes in this cluster, so it is said to be bound."""
    name = f"checkpoints-{secrets.token_hex(4)}"
    size, access = {"storage": "1Gi"}, ["ReadWriteMany"]
    metadata: Document = {
        "name": name,
        "namespace": NAMESPACE,
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
    }
    asked = {
        "accessModes": access,
        "resources": {"requests": size},
        "volumeName": name,
        "storageClassName": "",
    }
    admin.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": asked})
    claim = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{name}"
    uid = admin.ask("GET", claim)["metadata"]["uid"]
    given = {
        "accessModes": access,
        "capacity": size,
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": NAMESPACE, "name": name, "uid": uid},
    }
    admin.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": given})
    for path in (claim, f"/api/v1/persistentvolumes/{name}"):
        admin.patch(f"{path}/status", {"status": {"phase": "Bound"}})
    return name


GROUNDS: tuple[type[Ground], ...] = (Members, SlurmA, SlurmB, Kube)

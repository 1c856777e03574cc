"""What the federation's sites stand on: two hosts of this machine, two clusters of Slurm, a Kubernetes with a node that runs containers.

A `Ground` starts its servers, says how its agents are to be told of them, and brings home what ranks have written down where they cannot reach the
journal. Where its servers are not installed it says what is lacking, and the federation goes without that site.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from federator.cli.demo.world import Document
from federator_agent.kube.capacity import SITE_LABEL
from federator_agent.kube.manifests import MAIN
from tests.testbeds import slurm
from tests.testbeds.kubernetes import shared
from tests.testbeds.kubernetes.cluster import NAMESPACE
from tests.testbeds.kubernetes.node import GPUS

PODS = Path("/var/log/pods")
"""Where a kubelet keeps what its containers have said."""

HOST = {"model": "A100", "gpu_memory": "80GiB", "nodes": 1, "gpus_per_node": 2, "cpus_per_node": 16, "memory_per_node": "64GiB"}  # fmt: skip


class Ground(ABC):
    """What a site stands on. `nodes` hosts, of which a gang of as many ranks with `gpus` GPUs each takes all that there is."""

    name: str
    lack = ""
    """What is not installed, and how to get it; empty: nothing is."""
    nodes = 2
    gpus = 2
    sees_files = True
    """Whether ranks there share this machine's files."""

    @abstractmethod
    async def start(self, stack: AsyncExitStack, folder: Path) -> list[Document]:
        """Start what it is, to be ended with the stack. The site files of its agents: all but where they dial and who they are."""

    def collect(self, journal: Path) -> None:  # noqa: B027 - most have nothing to do
        """Bring into the journal what ranks have written elsewhere."""

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
    """A Kubernetes with one node, on which a gang of two shares the GPUs. Pods reach no files of ours: what they have said is on the node's disk."""

    name = "kube"
    gpus = GPUS // 2
    sees_files = False

    def __init__(self) -> None:
        self.lack = shared.lacking()
        self._logs: dict[Path, BinaryIO] = {}
        self._sizes: dict[Path, int] = {}
        self._old = frozenset(_logs())
        """Of other tests' clusters."""

    async def start(self, stack: AsyncExitStack, folder: Path) -> list[Document]:
        """The cluster that all tests of this run share."""
        del folder
        testbed = await asyncio.to_thread(shared.testbed)
        stack.callback(self._close)
        return [
            {
                "kube": {
                    "kubeconfig": str(testbed.kubeconfig),
                    "image": testbed.image,
                    "side_image": testbed.image,
                }
            }
        ]

    def collect(self, journal: Path) -> None:
        """Logs are kept open, so that they can be read when the cluster has removed them."""
        for path in _logs() - self._old - self._logs.keys():
            with suppress(OSError):
                self._logs[path] = path.open("rb")
        for path, log in self._logs.items():
            if (size := log.seek(0, os.SEEK_END)) == self._sizes.get(path):
                continue
            self._sizes[path] = size
            log.seek(0)
            # A line of the kubelet's is a time, a stream and a flag, and then what was said.
            said = [line.split(maxsplit=3)[3:] for line in log.read().decode(errors="replace").splitlines()]
            lines = [words[0] for words in said if words]
            if lines and lines[0].startswith(f"at {self.name} "):
                (journal / f"{lines[0].split()[3]}.pod").write_text("\n".join(lines) + "\n")

    async def left(self) -> list[str]:
        """Pods that are still there."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={SITE_LABEL}%3D{self.name}"
        pods = await asyncio.to_thread(shared.testbed().admin.ask, "GET", path)
        return [f"the pod {pod['metadata']['name']}" for pod in pods["items"]]

    def _close(self) -> None:
        for log in self._logs.values():
            log.close()


def _logs() -> set[Path]:
    """Logs of our jobs' containers on this machine."""
    return set(PODS.glob(f"{NAMESPACE}_*/{MAIN}/*.log"))


GROUNDS: tuple[type[Ground], ...] = (Members, SlurmA, SlurmB, Kube)

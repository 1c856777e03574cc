"""What the federation's sites stand on: two hosts of this machine, two clusters of Slurm, a Kubernetes with a node that runs containers.

A `Ground` starts its servers, says how its agents are to be told of them, and brings home what ranks have written down where they cannot reach the
journal. Where its servers are not installed it says what is lacking, and the federation goes without that site.
"""

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from pathlib import Path

from federator.cli.demo.world import Document
from tests.testbeds import slurm

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


GROUNDS: tuple[type[Ground], ...] = (Members, SlurmA, SlurmB)

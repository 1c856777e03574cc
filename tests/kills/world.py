"""The federation that storms rage in: real processes on a fast clock, with a trap at the dispatcher's provider and one site of two hosts."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from federator.cli.demo.federation import FEDERATION, DemoFederation
from federator.cli.demo.processes import Processes
from federator.cli.demo.world import PROVIDER, Document, provider_settings
from federator.model.capacity import Instance
from federator_providers.local import provider as local_provider
from tests.kills import trapped

SPEED = 60.0
MACHINES = 6
"""Of each type at a time: a launch that is to be hit must not have to wait for room."""
BOOT, IDLE_S = "30s", 0.5
"""Half a real second each: where waiting for a busy machine is no better than another one, and none is kept, launches and endings keep coming."""
SOLVER_LIMIT_S = 1.0
"""A child that was just started is not waited for any longer; greedy's plan stands."""
AWAY_S = 3.0
"""A site that has been away for longer holds up no rental. Agents whose dispatcher is killed again and again come back later and later."""
HALL = {"name": "h", "model": "A100", "gpu_memory": "80GiB", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 32, "memory_per_node": "256GiB"}  # fmt: skip
SITES: list[Document] = [
    {"site": "lab", "kind": "onprem", "pools": [{"name": "a", "model": "A100", "gpu_memory": "80GiB", "nodes": 2, "gpus_per_node": 4, "cpus_per_node": 32, "memory_per_node": "256GiB"}]},
    {"site": "edge", "kind": "edge", "pools": [{"name": "l", "model": "L4", "gpu_memory": "24GiB", "nodes": 2, "gpus_per_node": 1, "cpus_per_node": 8, "memory_per_node": "32GiB"}]},
    {"site": "hall", "kind": "onprem", "member": "hall-a", "pools": [HALL]},
    {"site": "hall", "kind": "onprem", "member": "hall-b", "pools": [HALL]},
]  # fmt: skip
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 30m, max_priority: 100}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: rented}
spec: {max_duration: 20m}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: always}
spec:
  who: {queues: [rented]}
  when: {mode: always}
  limits: {usd: {total: 100000}}
"""


def agent_of(site: Document) -> str:
    """What the agent of a site file is called by the federation's processes."""
    return str(site.get("member", site["site"]))


class TrappedProcesses(Processes):
    """Every dispatcher is started with its traps."""

    def start(
        self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """As any process, the dispatcher excepted."""
        if module == "federator":
            module, environment = trapped.__name__, {trapped.FOLDER: str(self.folder)}
        return super().start(name, module, arguments, environment)


class StormFederation(DemoFederation):
    """The world above."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SPEED)
        self.processes = TrappedProcesses(folder)

    def start_agent(self, name: str) -> None:
        """Start an agent, for the first time or again."""
        config = self.folder / "sites" / f"{name}.yaml"
        self.processes.start(name, "federator_agent", ["serve", "--config", str(config)])

    async def bill(self) -> list[Instance]:
        """What the provider itself lists and bills."""
        settings = provider_settings(self.machines, ("none",))["settings"]
        return list(await local_provider(PROVIDER, settings, self.clock).instances(FEDERATION))

    def _settings(self) -> Document:
        settings = super()._settings()
        for offer in settings["providers"][PROVIDER]["settings"]["offers"]:
            offer |= {"max_instances": MACHINES, "boot_delay": BOOT}
        settings["leases"]["idle_s"] = IDLE_S * SPEED
        settings["turn"]["solver_limit_s"] = SOLVER_LIMIT_S
        settings["link"]["unreachable_after_s"] = AWAY_S * SPEED
        return settings

"""The Kubernetes runtime alone, for its memory to be looked at: resident MiB before and after it has seen the cluster, how long that took, and how many nodes."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from federator_agent.core import events as ev
from federator_agent.kube.runtime import KubeRuntime
from federator_agent.kube.settings import KubeSettings
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.support.waiting import until
from tests.testbeds.kubernetes.cluster import NAMESPACE
from tests.testbeds.kubernetes.fakes import RACK

SETTLE_S = 5.0


def resident_mib() -> int:
    """Of this process."""
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) // 1024


async def main(kubeconfig: str) -> None:
    """Look, and say."""
    settings = KubeSettings(image="i", kubeconfig=kubeconfig, namespace=NAMESPACE, topology={"rack": RACK})
    with tempfile.TemporaryDirectory() as folder:
        world = RuntimeWorld(Path(folder), Site(lambda around: KubeRuntime(settings, around), "a100"))
        world.begin()
        empty_mib, begun_s = resident_mib(), time.monotonic()
        task = asyncio.create_task(world.runtime.observe())
        (seen,) = await until(
            lambda: [event for event in world.told if isinstance(event, ev.CapacitySeen)][:1]
        )
        took_s = time.monotonic() - begun_s
        await asyncio.sleep(SETTLE_S)
        nodes = sum(pool.nodes for pool in seen.seen.pools)
        sys.stdout.write(f"{empty_mib} {resident_mib()} {took_s:.1f} {nodes}\n")
        task.cancel()
        await world.end()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

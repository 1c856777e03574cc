"""What the Kubernetes runtime costs, at a real control plane with nodes that pretend: `python -m tests.testbeds.kubernetes figures`.

Printed are how long a placement takes to its pods, how many gangs begin in a second beside how many pods the API server makes when nothing else is asked of
it, and what the agent takes to keep sight of 1,000 nodes and 5,000 pods. Nothing is asserted: it is for people, and for the page of benchmarks.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from federator.kube.api import Api
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator_agent.core import events as ev
from federator_agent.kube.runtime import KubeRuntime
from federator_agent.kube.settings import KubeSettings
from tests.contract.runtimes.world import RuntimeWorld, Site
from tests.testbeds.kubernetes import fakes
from tests.testbeds.kubernetes.cluster import NAMESPACE, KubeCluster
from tests.testbeds.kubernetes.shared import install
from tests.testbeds.ports import free_ports

NODES, PODS, GANGS, RANKS, ALONE, AT_ONCE = 1000, 5000, 100, 4, 50, 32
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"


def main() -> int:
    """Measure, and print."""
    with tempfile.TemporaryDirectory(prefix="kubernetes-") as name:
        folder = Path(name)
        with KubeCluster(folder) as cluster:
            kubeconfig = install(cluster.admin, folder)
            admin = str(cluster.admin.kubeconfig(folder / "admin.kubeconfig"))
            (port,) = free_ports(1)
            kubelet = fakes.start(cluster.admin, port, folder)
            try:
                asyncio.run(measure(admin, str(kubeconfig), port, folder))
            finally:
                kubelet.kill()
                kubelet.wait()
    return 0


def say(what: str, figure: str) -> None:
    """One line of the report."""
    sys.stdout.write(f"{what:<62} {figure}\n")
    sys.stdout.flush()


async def measure(admin: str, kubeconfig: str, port: int, folder: Path) -> None:
    """All of it, in the order in which the cluster fills."""
    api = Api(admin)
    nodes = [fakes.node(number, port) for number in range(NODES)]
    await many("POST", "/api/v1/nodes", nodes, api)
    await pods_alone(api)
    world = RuntimeWorld(
        folder,
        Site(
            lambda around: KubeRuntime(
                KubeSettings(image="i", kubeconfig=kubeconfig, namespace=NAMESPACE), around
            ),
            "a100",
        ),
    )
    world.begin()
    try:
        await placements(world)
        await gangs(world)
    finally:
        await world.end()
    bound = [plain(f"theirs-{number}", f"{fakes.PREFIX}{number % NODES}") for number in range(PODS)]
    await many("POST", PATH, bound, api)
    await memory(kubeconfig)
    await api.close()


async def many(method: str, path: str, bodies: list[dict[str, Any]], api: Api) -> float:
    """Ask for all of them, some at once; seconds."""
    begun_s = time.monotonic()
    left = iter(bodies)

    async def work() -> None:
        for body in left:
            await api.ask(method, path, body=body)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.monotonic() - begun_s


def plain(name: str, node: str = "") -> dict[str, Any]:
    """Somebody's pod with a GPU, as large as pods are: it has what they carry about them."""
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)]
    container = {
        "name": "c",
        "image": "i",
        "env": environment,
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    spec = {"containers": [container], **({"nodeName": node} if node else {"schedulerName": "nobody"})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def pods_alone(api: Api) -> None:
    """What the API server does when only pods are made."""
    took_s = await many("POST", PATH, [plain(f"alone-{number}") for number in range(500)], api)
    say("API server: pods made per second, 32 requests at once", f"{500 / took_s:.0f}")
    for number in range(500):
        await api.ask("DELETE", f"{PATH}/alone-{number}", body={"gracePeriodSeconds": 0})


def spec_of(nodes: int) -> JobSpec:
    """A gang of ranks with a GPU each."""
    return JobSpec("job", run="true", nodes=nodes, resources=Resources(Accelerators(count=1), cpus_milli=100))


async def placements(world: RuntimeWorld) -> None:
    """One after the other, on an idle cluster."""
    made_ms, gate_ms, start_ms = [], [], []
    for _ in range(ALONE):
        spec = spec_of(1)
        record = world.record(spec)
        begun_s = time.monotonic()
        task = asyncio.create_task(world.prepare(record, spec))
        pods = world.runtime.pods  # type: ignore[attr-defined]
        while pods.get(f"{record.entry.placement}-0") is None:
            await asyncio.sleep(0.0005)
        made_ms.append((time.monotonic() - begun_s) * 1000)
        prepared = await task
        gate_ms.append((time.monotonic() - begun_s) * 1000)
        opened_s = time.monotonic()
        await world.start(record, spec, prepared)
        start_ms.append((time.monotonic() - opened_s) * 1000)
        await world.over(record)
        await world.runtime.discard(record.entry.placement, None)
    for what, times in (("pod made", made_ms), ("at its gate", gate_ms)):
        say(f"one rank: order to {what}, median of {ALONE}", f"{statistics.median(times):.0f} ms")
    say(f"one rank: gate opened and told, median of {ALONE}", f"{statistics.median(start_ms):.0f} ms")


async def gangs(world: RuntimeWorld) -> None:
    """Many at once: from the first order to the last rank that began."""
    spec = spec_of(RANKS)

    async def one() -> None:
        record = world.record(spec)
        prepared = await world.prepare(record, spec)
        record = world.intend(record, prepared)
        world.runtime.start(record, spec, record.entry.ranks)

    begun_s = time.monotonic()
    await asyncio.gather(*(one() for _ in range(GANGS)))
    while sum(isinstance(event, ev.RankStarted) for event in world.told) < ALONE + GANGS * RANKS:
        await asyncio.sleep(0.01)
    took_s = time.monotonic() - begun_s
    figure = f"{GANGS / took_s:.1f} ({GANGS * RANKS / took_s:.0f} pods)"
    say(f"gangs of {RANKS} begun per second, {GANGS} ordered at once", figure)


async def memory(kubeconfig: str) -> None:
    """Of a process that does nothing but keep sight of the cluster."""
    command = [sys.executable, "-m", "tests.testbeds.kubernetes.watcher", kubeconfig]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    empty_mib, full_mib, seconds, seen = done.stdout.split()
    say(f"agent at {NODES} nodes in racks and {PODS} pods: memory", f"{full_mib} MiB")
    say("  of which the program itself, before it has looked", f"{empty_mib} MiB")
    say(f"  until it has seen all {seen} nodes", f"{seconds} s")

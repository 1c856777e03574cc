"""`FederatedJob` objects at a real API server, from the first that is applied to the last that has a job, beside what the API server takes when nobody looks."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from federator.cli.demo.federation import DemoFederation
from federator.client.jobs import JobFilter
from federator.kube.api import Api, decoded
from federator.operator.definition import definition
from federator.operator.objects import API_VERSION, KIND, PLURAL
from federator.wire.http import TokenRequest
from tests.bench.figures import Figure
from tests.bench.harness import Bench
from tests.bench.measuring import cpu_s
from tests.testbeds.kubernetes.cluster import KubeCluster, missing

AT_ONCE = 32
PAUSE_S = 0.25
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AIM = 100.0
NOTE = """\
API server, its etcd, the dispatcher, the operator and who applies share the machine; 32 objects are applied at once, each a job that no site takes. An object counts as
submitted when its job is at the dispatcher, and as mirrored when `kubectl get fj` shows the job. Beside it the same objects with no operator there.
"""


async def run(bench: Bench) -> list[Figure]:
    """First without an operator, then with one; nothing where Kubernetes is not built."""
    if lack := missing():
        bench.say(f"left out: {lack}")
        return []
    count = bench.many(1000)
    with KubeCluster(bench.folder / "kubernetes") as cluster:
        cluster.admin.ask("POST", DEFINITIONS, definition())
        for name in ("federator", "alone", "research"):
            cluster.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        kubeconfig = str(cluster.admin.kubeconfig(bench.folder / "admin.kubeconfig"))
        api = Api(kubeconfig)
        try:
            begun = time.perf_counter()
            await _applied(api, "alone", count)
            alone_s = time.perf_counter() - begun
            bench.say("objects without an operator are done")
            await api.ask("DELETE", _path("alone"))
            async with bench.federation([]) as world:
                return [
                    Figure("objects applied with no operator", count / alone_s, "objects/s"),
                    *await _through(bench, world, api, kubeconfig, count),
                ]
        finally:
            await api.close()


async def _through(
    bench: Bench, world: DemoFederation, api: Api, kubeconfig: str, count: int
) -> list[Figure]:
    """The same with the operator."""
    token = bench.folder / "token"
    token.write_text((await world.admin.create_token(TokenRequest(name="ada", role="user"))).secret)
    file = {
        "dispatcher": world.server,
        "kubeconfig": kubeconfig,
        "namespaces": {"research": {"token_file": str(token)}},
    }
    path = bench.folder / "operator.yaml"
    path.write_text(json.dumps(file))
    world.processes.start("operator", "federator", ["operator", "--config", str(path)])
    await _applied(api, "research", 1, "first")
    await _reached(lambda: _at_dispatcher(world), 1)
    used_s, begun = cpu_s(bench.pid(world, "operator")), time.perf_counter()
    applying = asyncio.create_task(_applied(api, "research", count))
    await _reached(lambda: _at_dispatcher(world), count + 1)
    submitted_s = time.perf_counter() - begun
    used_ms = (cpu_s(bench.pid(world, "operator")) - used_s) * 1000 / count
    await applying
    await _reached(lambda: _mirrored(api), count + 1)
    mirrored_s = time.perf_counter() - begun
    against = "objects applied with no operator"
    return [
        Figure("FederatedJobs applied and submitted", count / submitted_s, "objects/s", AIM, against=against),
        Figure(
            "FederatedJobs applied, submitted and mirrored", count / mirrored_s, "objects/s", against=against
        ),
        Figure("the operator's CPU until it is submitted", used_ms, "ms/object"),
    ]


def _path(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"


async def _applied(api: Api, namespace: str, count: int, name: str = "job") -> None:
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            spec = {"run": "true", "resources": {"cpus": 0.1}}
            meta = {"name": f"{name}-{number}"}
            body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}
            await api.ask("POST", _path(namespace), body=body)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


async def _reached(counted: Callable[[], Awaitable[int]], count: int) -> None:
    while await counted() < count:
        await asyncio.sleep(PAUSE_S)


async def _at_dispatcher(world: DemoFederation) -> int:
    return len([row async for row in world.admin.all_jobs(JobFilter())])


async def _mirrored(api: Api) -> int:
    """How many objects say which job they are."""
    found = decoded(await api.ask("GET", _path("research")), dict[str, Any])
    return sum(bool(each.get("status", {}).get("job")) for each in found["items"])

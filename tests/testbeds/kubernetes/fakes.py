"""Nodes that only pretend: objects without machines, and one process that is the kubelet of all of them.

It moves the pods that are bound to them through Running to Succeeded by their status, and answers what the agent asks for in their containers: a work directory is
staged at once, and a gate that opens ends the rank. So the control plane can be measured with more nodes than a machine could be.
"""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import trustme
from aiohttp import web

from federator.kube.api import Api
from federator.kube.objects import Pod
from federator_agent.kube import commands
from federator_agent.kube.informer import Informer
from federator_agent.kube.manifests import MAIN, SIDE
from tests.testbeds.etcd import DIE_WITH_US
from tests.testbeds.kubernetes.cluster import Admin

MERGE = "application/merge-patch+json"
PREFIX = "fake-"
AT = "2026-01-01T00:00:00Z"
AT_ONCE = 32


RACK = "topology.kubernetes.io/rack"


def node(number: int, port: int, gpus: int = 8) -> dict[str, Any]:
    """A node that takes work, with a kubelet at that port of this host."""
    size = {"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{PREFIX}{number}",
            "labels": {"nvidia.com/gpu.product": "A100", RACK: f"r{number // 16}"},
        },
        "status": {
            "capacity": size,
            "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": "it pretends"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    }


def start(admin: Admin, port: int, folder: Path) -> subprocess.Popen[bytes]:
    """The kubelet of all of them, as a process."""
    kubeconfig = admin.kubeconfig(folder / "fakes.kubeconfig")
    with (folder / "fakes.log").open("ab") as log:
        return subprocess.Popen(
            [
                *DIE_WITH_US,
                sys.executable,
                "-m",
                "tests.testbeds.kubernetes.fakes",
                str(kubeconfig),
                str(port),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


class FakeKubelet:
    """Says of pods what their containers would have done."""

    def __init__(self, kubeconfig: str) -> None:
        self._api = Api(kubeconfig)
        self._told: set[str] = set()
        self._over: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._pods: Informer[Pod, Pod] = Informer(
            self._api, "/api/v1/pods", Pod, lambda pod: (pod.metadata.name, pod), self._changed
        )

    async def run(self, port: int) -> None:
        """Serve, for ever."""
        app = web.Application()
        app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", self._command)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        await self._pods.run()

    def _changed(self, name: str, pod: Pod | None) -> None:
        if pod is None or not pod.spec.node_name.startswith(PREFIX) or pod.metadata.uid in self._told:
            return
        if any(container.name == MAIN for container in pod.spec.containers):
            self._told.add(pod.metadata.uid)
            running = {"running": {"startedAt": AT}}
            self._later(self._say(pod.metadata.namespace, name, "Running", running, running))

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _say(
        self, namespace: str, name: str, phase: str, main: dict[str, Any], side: dict[str, Any]
    ) -> None:
        states = [
            {"name": each, "state": state, "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
            for each, state in ((MAIN, main), (SIDE, side))
        ]
        status = {"status": {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": states}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        async with self._at_once:
            await self._api.ask("PATCH", path, body=status, kind=MERGE)

    async def _command(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        script = request.query.getall("command")[2]
        if script == commands.STAGE:
            await socket.send_bytes(b"\x01staged\nready\n")
        await socket.send_bytes(b"\x03" + msgspec.json.encode({"status": "Success"}))
        await socket.close()
        if script == commands.OPEN:
            self._ended(request).set()
            over = {"terminated": {"exitCode": 0, "startedAt": AT, "finishedAt": AT}}
            namespace, name = request.match_info["namespace"], request.match_info["pod"]
            self._later(self._say(namespace, name, "Succeeded", over, over))
        return socket

    async def _log(self, request: web.Request) -> web.Response:
        """Nothing was written; who follows is told so when it is over."""
        if request.query.get("follow") == "true":
            await self._ended(request).wait()
        return web.Response(text="")

    def _ended(self, request: web.Request) -> asyncio.Event:
        return self._over.setdefault(request.match_info["pod"], asyncio.Event())


def main() -> None:
    """`python -m tests.testbeds.kubernetes.fakes KUBECONFIG PORT`."""
    kubeconfig, port = sys.argv[1:]
    asyncio.run(FakeKubelet(kubeconfig).run(int(port)))


if __name__ == "__main__":
    main()

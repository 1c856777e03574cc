"""An API server with pods on virtual time, for the provider `kubernetes`: the few calls that it makes, and what a cluster does by itself when told to.

It stands in for a real one where a test turns the clock; what a real one thinks of the same calls is in `tests/integration/kube`. Its times are those of the test's clock, so that
bills are exact.
"""

import json
from pathlib import Path
from typing import Any

from aiohttp import web

from federator.kernel.clock import Clock
from federator.kernel.quantities import format_instant

NAMESPACE = "federator-machines"
BOOTS_S = 120.0
"""How long a pod with a node takes until its container runs."""
_AT = f"/api/v1/namespaces/{NAMESPACE}"
Body = dict[str, Any]


class VirtualCluster:
    """One namespace. Set the switches at any time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[tuple[str, str, Body]] = []
        """Method, path below the namespace, and body."""
        self.pods: dict[str, Body] = {}
        self.secrets: dict[str, Body] = {}
        self.events: list[Body] = []
        self.has_nodes = True
        """Whether a pod gets a node at once."""
        self.without_nodes: set[str] = set()
        """Pools, by the label that pods ask for, whose pods get none."""
        self.refuses: dict[str, tuple[int, str]] = {}
        """Status and message of what creations answer, by the plural of what is created."""
        self.lost = 0
        """How many of the next creations of pods take effect without an answer."""

    async def start(self, folder: Path) -> None:
        """Listen on a free port, and write a kubeconfig."""
        application = web.Application()
        application.router.add_get(f"{_AT}/pods", self._list)
        application.router.add_get(f"{_AT}/events", self._list_events)
        application.router.add_post(f"{_AT}/{{plural}}", self._create)
        application.router.add_get(f"{_AT}/pods/{{name}}", self._get)
        application.router.add_delete(f"{_AT}/pods/{{name}}", self._delete)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        parts = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c"} | parts)
        )

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def give_node(self, name: str) -> None:
        """The autoscaler has added a node for it."""
        self.pods[name]["spec"]["nodeName"] = "node-1"

    def drain(self, name: str) -> None:
        """Its node is to go: the pod has its grace period."""
        grace_s = self.pods[name]["spec"]["terminationGracePeriodSeconds"]
        self.pods[name]["metadata"] |= {"deletionTimestamp": format_instant(self.clock.now() + grace_s)}

    def end(self, name: str, reason: str = "") -> None:
        """Its container has ended by itself, or its kubelet has ended it for a reason."""
        at = format_instant(self.clock.now())
        over = [{"name": "agent", "state": {"terminated": {"exitCode": 0, "finishedAt": at}}}]
        self.pods[name]["status"] = {"phase": "Failed", "reason": reason, "containerStatuses": over}

    async def _list(self, request: web.Request) -> web.Response:
        label = request.query["labelSelector"]
        found = [self._now(each) for each in self.pods.values() if label in each["metadata"]["labels"]]
        begin, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        left = str(begin + limit) if len(found) > begin + limit else ""
        return web.json_response({"items": found[begin : begin + limit], "metadata": {"continue": left}})

    async def _list_events(self, request: web.Request) -> web.Response:
        uid = request.query["fieldSelector"].removeprefix("involvedObject.uid=")
        return web.json_response({"items": [each for each in self.events if each["uid"] == uid]})

    async def _create(self, request: web.Request) -> web.Response:
        body, plural = await request.json(), request.match_info["plural"]
        self.calls.append(("POST", plural, body))
        if plural in self.refuses:
            return _no(*self.refuses[plural])
        name, kept = body["metadata"]["name"], self.pods if plural == "pods" else self.secrets
        if name in kept:
            return _no(409, f'{plural} "{name}" already exists')
        body["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": format_instant(self.clock.now())}
        pools = set(body.get("spec", {}).get("nodeSelector", {}).values())
        if plural == "pods" and self.has_nodes and not pools & self.without_nodes:
            body["spec"]["nodeName"] = "node-1"
        kept[name] = body
        if plural == "pods" and self.lost:
            self.lost -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response(self._now(body), status=201)

    async def _get(self, request: web.Request) -> web.Response:
        pod = self.pods.get(request.match_info["name"])
        return _no(404, "not found") if pod is None else web.json_response(self._now(pod))

    async def _delete(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.json()
        self.calls.append(("DELETE", f"pods/{name}", body))
        if name not in self.pods:
            return _no(404, "not found")
        if body["preconditions"]["uid"] != self.pods[name]["metadata"]["uid"]:
            return _no(409, "the uid is another's")
        return web.json_response(self.pods.pop(name))

    def _now(self, pod: Body) -> Body:
        if "nodeName" not in pod.get("spec", ()) or "status" in pod:
            return pod
        at = pod["metadata"]["creationTimestamp"]
        runs = format_instant(self.clock.now() - BOOTS_S) >= at
        state = {"running": {"startedAt": at}} if runs else {"waiting": {"reason": "ContainerCreating"}}
        return pod | {"status": {"containerStatuses": [{"name": "agent", "state": state}]}}


def _no(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "message": message}, status=status)

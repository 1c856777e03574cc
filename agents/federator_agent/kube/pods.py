"""Our pods at the cluster, and the nodes they are on: a copy that is kept by watching, and the few things that are done to pods.

Every write names the pod's uid or makes what has a name of its own, so that repeating one after a lost answer changes nothing.
"""

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from federator_agent.kube.api import Api, decoded
from federator_agent.kube.capacity import AGENT_LABEL, PLACEMENT_LABEL, SITE_LABEL, Cluster, Machine
from federator_agent.kube.device_sets import DeviceSet
from federator_agent.kube.informer import Informer
from federator_agent.kube.manifests import FINALIZER
from federator_agent.kube.objects import Node, Pod, Struct
from federator_agent.kube.settings import KubeSettings

JSON_PATCH = "application/json-patch+json"
HEALTHY_S = 120.0
"""A node that was well when it was taken out of the cluster: its kubelet lives, is told within this time to end its pods, and says how they ended."""
LOOK_AGAIN_S = 5.0
"""What is waited for is looked at again after this, whatever the watch has said."""
log = logging.getLogger("federator_agent.kube")


class NodeSeen(msgspec.Struct, frozen=True):
    """A node that exists. `machine`: None while it takes no work of ours."""

    machine: Machine | None
    ready: bool
    device_sets: tuple[DeviceSet, ...] = ()
    """What it offers, also while it takes no work."""


class _PodList(Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class Pods:
    """The pods of this site's placements."""

    def __init__(self, api: Api, settings: KubeSettings, site: str, cluster: Cluster, agent: str) -> None:
        """`agent`: what tells this agent's pods from those of others."""
        self._api = api
        self._agent = agent
        self._base = f"/api/v1/namespaces/{settings.namespace}"
        self._policies = f"/apis/networking.k8s.io/v1/namespaces/{settings.namespace}/networkpolicies"
        self._cluster = cluster
        self._site = site
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.mirror: Informer[Pod, Pod] = Informer(
            api,
            f"{self._base}/pods",
            Pod,
            lambda pod: (pod.metadata.name, pod),
            self._changed,
            {"labelSelector": f"{SITE_LABEL}={site}"},
        )
        self.nodes: Informer[Node, NodeSeen] = Informer(
            api, "/api/v1/nodes", Node, self._node, self._node_changed
        )
        self.nodes_changed = asyncio.Event()
        self._ready: set[str] = set()
        self._healthy_until_s: dict[str, float] = {}
        """Of nodes that were taken out while they were well, by the loop's clock: so long their kubelets are waited for."""

    def path(self, name: str) -> str:
        """Of a pod, at the API server."""
        return f"{self._base}/pods/{name}"

    async def synced(self) -> None:
        """Return once the copy is whole."""
        await self.mirror.synced.wait()
        await self.nodes.synced.wait()

    async def wait(self, placement: str, limit_s: float = LOOK_AGAIN_S) -> None:
        """Return when a pod of that placement changes, or after a while."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(placement, set()).add(change)
        try:
            async with asyncio.timeout(limit_s):
                await change
        except TimeoutError:
            pass
        finally:
            waiting = self._waiting.get(placement, set())
            waiting.discard(change)
            if not waiting:
                self._waiting.pop(placement, None)

    def _changed(self, name: str, pod: Pod | None) -> None:
        del pod
        for change in self._waiting.get(name.rpartition("-")[0], ()):
            if not change.done():
                change.set_result(None)

    def _node(self, node: Node) -> tuple[str, NodeSeen]:
        return node.metadata.name, NodeSeen(
            self._cluster.machine(node), node.ready, self._cluster.device_sets(node)
        )

    def _node_changed(self, name: str, node: NodeSeen | None) -> None:
        if node is None and name in self._ready:
            self._healthy_until_s[name] = asyncio.get_running_loop().time() + HEALTHY_S
        (self._ready.add if node is not None and node.ready else self._ready.discard)(name)
        self.nodes_changed.set()

    async def create(self, manifest: dict[str, Any]) -> None:
        """Make it, as this agent's; one of that name is the one. Raises `FederatorError`."""
        manifest["metadata"]["labels"][AGENT_LABEL] = self._agent
        try:
            data = await self._api.ask("POST", f"{self._base}/pods", body=manifest)
        except Conflict:
            data = await self._api.ask("GET", self.path(manifest["metadata"]["name"]))
        pod = decoded(data, Pod)
        if pod.metadata.name not in self.mirror.items:
            self.mirror.put(pod.metadata.name, pod)

    def made_here(self, pod: Pod) -> bool:
        """Whether this agent has made it, in whichever of its lives."""
        return pod.metadata.labels.get(AGENT_LABEL) == self._agent

    async def create_service(self, manifest: dict[str, Any]) -> None:
        """The same for a gang's Service."""
        try:
            await self._api.ask("POST", f"{self._base}/services", body=manifest)
        except Conflict:
            return

    async def create_policy(self, manifest: dict[str, Any]) -> None:
        """The same for its network policy. Agents with the rights of before may not: there nobody keeps their ranks apart."""
        try:
            await self._api.ask("POST", self._policies, body=manifest)
        except Forbidden as error:
            log.warning("the network policy of %s is left out: %s", manifest["metadata"]["name"], error)
        except Conflict:
            return

    async def look(self, name: str, uid: str = "") -> Pod | None:
        """A pod as the API server has it now; None: there is none, or another of that name."""
        try:
            pod = decoded(await self._api.ask("GET", self.path(name)), Pod)
        except NotFound:
            return None
        return pod if pod.metadata.uid == uid or not uid else None

    async def node_gone(self, name: str) -> bool:
        """Whether a node is no longer part of the cluster, and nobody is left there to speak for its pods."""
        if (
            name in self.nodes.items
            or self._healthy_until_s.get(name, 0.0) > asyncio.get_running_loop().time()
        ):
            return False
        try:
            await self._api.ask("GET", f"/api/v1/nodes/{name}")
        except NotFound:
            return True
        return False

    async def of(self, placement: str) -> tuple[Pod, ...]:
        """All of a placement's pods, as the API server has them now."""
        query = {"labelSelector": f"{PLACEMENT_LABEL}={placement},{SITE_LABEL}={self._site}"}
        return decoded(await self._api.ask("GET", f"{self._base}/pods", query=query), _PodList).items

    async def delete(self, pod: Pod) -> None:
        """Have its kubelet end it. Its object stays, held by the finalizer."""
        if not pod.metadata.deletion_timestamp:
            await self._delete(pod, grace_s=1)

    async def _delete(self, pod: Pod, grace_s: int) -> None:
        options = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": pod.metadata.uid}}
        try:
            await self._api.ask("DELETE", self.path(pod.metadata.name), body=options)
        except (NotFound, Conflict):
            return

    async def release(self, pod: Pod) -> None:
        """Let its object go: nothing of it runs, or its end is known."""
        try:
            await self._let_go(pod)
        except (Conflict, Invalid):  # others' finalizers come and go meanwhile, and ours has moved
            now = await self.look(pod.metadata.name, pod.metadata.uid)
            if now is None:
                return
            await self._let_go(now)
        await self._delete(pod, grace_s=0)

    async def _let_go(self, pod: Pod) -> None:
        """Remove our finalizer, and no other's. Raises `Conflict` or `Invalid` when it is not where it was."""
        if FINALIZER not in pod.metadata.finalizers:
            return
        at = f"/metadata/finalizers/{pod.metadata.finalizers.index(FINALIZER)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": at, "value": FINALIZER},
            {"op": "remove", "path": at},
        ]
        with contextlib.suppress(NotFound):
            await self._api.ask("PATCH", self.path(pod.metadata.name), body=patch, kind=JSON_PATCH)

    async def delete_service(self, placement: str) -> None:
        """A gang's, with its network policy."""
        with contextlib.suppress(NotFound):
            await self._api.ask("DELETE", f"{self._base}/services/{placement}")
        with contextlib.suppress(NotFound, Forbidden):
            await self._api.ask("DELETE", f"{self._policies}/{placement}")

"""Our pods at the cluster, and the nodes they are on: a copy that is kept by watching, and the few things that are done to pods.

Every write names the pod's uid or makes what has a name of its own, so that repeating one after a lost answer changes nothing.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from federator.kernel.errors import Conflict, FederatorError, Forbidden, Invalid, NotFound
from federator.kube.api import Api, decoded
from federator.kube.objects import Node, Pod, Struct
from federator_agent.kube.capacity import AGENT_LABEL, PLACEMENT_LABEL, SITE_LABEL, Machine, NodesAndPods
from federator_agent.kube.device_sets import DeviceSet
from federator_agent.kube.dra import Dra
from federator_agent.kube.gangs import GangScheduler, group_path
from federator_agent.kube.informer import Informer
from federator_agent.kube.manifests import FINALIZER
from federator_agent.kube.settings import KubeSettings

JSON_PATCH = "application/json-patch+json"
STRICT = {"fieldValidation": "Strict"}
"""A misspelt field of a pod template is refused, and not passed over, by API servers from 1.25."""
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

    def __init__(
        self, api: Api, settings: KubeSettings, site: str, cluster: NodesAndPods, agent: str
    ) -> None:
        """`agent`: what tells this agent's pods from those of others."""
        self.dra = Dra(api, self._devices_changed)
        self._stale: set[str] = set()
        self._api = api
        self._agent = agent
        self._homes = settings.homes()
        self._groups = settings.gang_scheduler
        self._cluster = cluster
        self._site = site
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.mirror: Informer[Pod, Pod] = Informer(
            api,
            _all_pods(self._homes),
            Pod,
            self._kept,
            self._changed,
            {"labelSelector": f"{SITE_LABEL}={site}"},
        )
        self.nodes: Informer[Node, NodeSeen] = Informer(
            api, "/api/v1/nodes", Node, self.node_seen, self._node_changed
        )
        self.nodes_changed, self._devices = asyncio.Event(), asyncio.Event()
        self._ready: set[str] = set()
        self._healthy_until_s: dict[str, float] = {}
        """Of nodes that were taken out while they were well, by the loop's clock: so long their kubelets are waited for."""

    def path(self, pod: Pod) -> str:
        """Of a pod, at the API server."""
        return f"{_core(pod.metadata.namespace)}/pods/{pod.metadata.name}"

    def claimed(self) -> dict[str, Counter[str]]:
        """By node, devices that others hold by claims."""
        ours = {key for key, pod in self.mirror.items.items() if self._cluster.ours(pod)}
        return self.dra.taken(ours.__contains__)

    def _kept(self, pod: Pod) -> tuple[str, Pod | None]:
        """Of several namespaces all are watched at once, where anybody may set our labels: what is in none of ours is dropped."""
        return pod.metadata.key, pod if pod.metadata.namespace in self._homes else None

    def get(self, name: str) -> Pod | None:
        """A pod as the copy has it; of several namespaces' the oldest, as nobody else knows a placement's name before its pods are made."""
        found = [pod for home in self._homes if (pod := self.mirror.items.get(f"{home}/{name}")) is not None]
        return min(found, key=lambda pod: pod.metadata.creation_timestamp, default=None)

    def within(self, home: str) -> list[Pod]:
        """Those of a namespace."""
        return [pod for pod in self.mirror.items.values() if pod.metadata.namespace == home]

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
        for change in self._waiting.get(name.rpartition("/")[2].rpartition("-")[0], ()):
            if not change.done():
                change.set_result(None)

    async def keep_nodes(self) -> None:
        """Keep the nodes, once it is known what devices they have beyond their own word; and look at one again when these change."""
        await self.dra.known.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.run())
            while True:
                await self._devices.wait()
                self._devices.clear()
                while self._stale:
                    await self._look_at_node(self._stale.pop())

    async def _look_at_node(self, name: str) -> None:
        try:
            node = decoded(await self._api.ask("GET", f"/api/v1/nodes/{name}"), Node)
        except NotFound:
            return
        except FederatorError as error:
            log.warning("node %s cannot be looked at: %s", name, error)
            self._stale.add(name)
            await asyncio.sleep(LOOK_AGAIN_S)
            return
        self.nodes.put(*self.node_seen(node))

    def _devices_changed(self, node: str) -> None:
        """Those of a node are others; without a name, they are held by others."""
        if node and self.nodes.synced.is_set():
            self._stale.add(node)
            self._devices.set()
        self.nodes_changed.set()

    def node_seen(self, node: Node) -> tuple[str, NodeSeen]:
        """A node by its name, and what is kept of it."""
        node = self.dra.with_devices(node)
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
        metadata = manifest["metadata"]
        metadata["labels"][AGENT_LABEL] = self._agent
        path = f"{_core(metadata['namespace'])}/pods"
        try:
            data = await self._api.ask("POST", path, body=manifest, query=STRICT)
        except Conflict:
            data = await self._api.ask("GET", f"{path}/{metadata['name']}")
        pod = decoded(data, Pod)
        if pod.metadata.key not in self.mirror.items:
            self.mirror.put(pod.metadata.key, pod)

    def made_here(self, pod: Pod) -> bool:
        """Whether this agent has made it, in whichever of its lives."""
        return pod.metadata.labels.get(AGENT_LABEL) == self._agent

    async def create_service(self, manifest: dict[str, Any]) -> None:
        """The same for a gang's Service."""
        await self._create_beside(f"{_core(manifest['metadata']['namespace'])}/services", manifest)

    async def create_group(self, gang: GangScheduler, manifest: dict[str, Any]) -> None:
        """The same for its PodGroup, where the site's scheduler knows such."""
        await self._create_beside(group_path(gang, manifest["metadata"]["namespace"]), manifest)

    async def create_claims(self, made: dict[str, Any]) -> None:
        """The same for the template of its pods' claims on devices."""
        await self._create_beside(*self.dra.template(made))

    async def _create_beside(self, path: str, manifest: dict[str, Any]) -> None:
        with contextlib.suppress(Conflict):
            await self._api.ask("POST", path, body=manifest)

    async def create_policy(self, manifest: dict[str, Any]) -> None:
        """The same for its network policy. Agents with the rights of before may not: there nobody keeps their ranks apart."""
        try:
            await self._create_beside(_policies(manifest["metadata"]["namespace"]), manifest)
        except Forbidden as error:
            log.warning("the network policy of %s is left out: %s", manifest["metadata"]["name"], error)

    async def look(self, name: str, uid: str = "") -> Pod | None:
        """A pod as the API server has it now; None: there is none, or another of that name."""
        known = self.get(name)
        for home in sorted(self._homes, key=lambda home: known is None or home != known.metadata.namespace):
            with contextlib.suppress(NotFound):
                pod = decoded(await self._api.ask("GET", f"{_core(home)}/pods/{name}"), Pod)
                if pod.metadata.uid == uid or not uid:
                    return pod
        return None

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
        paths = [f"{_core(home)}/pods" for home in self._homes]
        lists = await asyncio.gather(*(self._api.ask("GET", path, query=query) for path in paths))
        return tuple(pod for each in lists for pod in decoded(each, _PodList).items)

    async def delete(self, pod: Pod) -> None:
        """Have its kubelet end it. Its object stays, held by the finalizer."""
        if not pod.metadata.deletion_timestamp:
            await self._delete(pod, grace_s=1)

    async def _delete(self, pod: Pod, grace_s: int) -> None:
        options = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": pod.metadata.uid}}
        try:
            await self._api.ask("DELETE", self.path(pod), body=options)
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
            await self._api.ask("PATCH", self.path(pod), body=patch, kind=JSON_PATCH)

    async def delete_service(self, placement: str) -> None:
        """A gang's, with its network policy and its group, and the template of its claims."""
        for home in self._homes:
            with contextlib.suppress(NotFound):
                await self._api.ask("DELETE", f"{_core(home)}/services/{placement}")
            with contextlib.suppress(NotFound, Forbidden):
                await self._api.ask("DELETE", f"{_policies(home)}/{placement}")
            others = [self.dra.templates(home)]
            if self._groups is not None:
                others.append(group_path(self._groups, home))
            for path in filter(None, others):
                with contextlib.suppress(NotFound, Forbidden):
                    await self._api.ask("DELETE", f"{path}/{placement}")


def _core(home: str) -> str:
    return f"/api/v1/namespaces/{home}"


def _policies(home: str) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{home}/networkpolicies"


def _all_pods(homes: Sequence[str]) -> str:
    """Of several namespaces all are watched at once: the agent may."""
    return f"{_core(homes[0])}/pods" if len(homes) == 1 else "/api/v1/pods"

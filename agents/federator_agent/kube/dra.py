"""GPUs that a cluster hands out by dynamic resource allocation: counted in ResourceSlices, taken off by ResourceClaims, asked for by a claim of each pod.

A pool of the site file names a class of devices. What its driver has published on a node counts as the class's extended resource there, so everything else – pools,
shapes, parts, quotas, what is free – is as for GPUs of a device plugin. Expressions of a class are not evaluated: by the convention of the drivers of NVIDIA, AMD and
Intel a class of whole GPUs has its driver's name, and the devices of NVIDIA's driver whose `type` is `mig` are of `mig.nvidia.com`. Of these each profile counts as a
resource of its own, and a claim chooses it. Other types are left out, and so are parts that overlap others until somebody claims them: no count of them is right.
Who claims such a part has the GPU that it overlaps.
"""

import asyncio
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import FederatorError, Forbidden, NotFound, Unavailable
from federator.kube.api import Api, decoded
from federator.kube.objects import Meta, Node, Struct
from federator.wire.mig import PROFILE
from federator_agent.kube.informer import Informer
from federator_agent.kube.settings import MIG_CLASS, KubePool, class_of, profile_of, resource_of

GROUP = "/apis/resource.k8s.io"
KNOWN = ("v1", "v1beta2")
"""Versions that have the same form of what is read and made here."""
DEVICES_NOTE = "federator/devices"
"""Of a pod: what it asks for by its claim, by the name of the resource."""
CLAIM = "gpus"
"""Of the claim, in its pod; and of the one request in it."""
RECOUNT_PAUSE_S = 0.25
"""Between two counts of what is published: a rollout of drivers changes thousands of slices one by one, and a count looks at all."""
LOOK_AGAIN_S = 300.0
"""A cluster may be upgraded to one that knows claims."""
MOST_NAMED = 20
"""Profiles in one remark."""
_GPU, _MIG, _MIG_DRIVER = "gpu", "mig", "gpu.nvidia.com"
_Named = tuple[str, str, str]
"""A device, by driver, pool and name."""
log = logging.getLogger("federator_agent.kube")


class _Attribute(Struct, frozen=True):
    string: str = ""


class _DeviceTaint(Struct, frozen=True):
    effect: str = ""


class _Counters(Struct, frozen=True):
    counter_set: str = ""


class _Device(Struct, frozen=True):
    name: str
    attributes: dict[str, _Attribute] = msgspec.field(default_factory=dict[str, _Attribute])
    taints: tuple[_DeviceTaint, ...] = ()
    allow_multiple_allocations: bool = False
    """Several claims may have it at once, each a share of its own choice."""
    consumes_counters: tuple[_Counters, ...] = ()
    """What it has in common with devices that overlap it."""

    def counts_as(self, driver: str) -> str:
        """The resource of which it is a unit that the scheduler gives to one pod without a toleration, as drivers taint what is broken; empty: it is none."""
        tainted = any(each.effect in ("NoSchedule", "NoExecute") for each in self.taints)
        if tainted or self.allow_multiple_allocations:
            return ""
        kind = self.attributes.get("type", _Attribute(_GPU)).string
        if kind != _MIG or driver != _MIG_DRIVER or self.consumes_counters:
            return resource_of(driver) if kind == _GPU else ""
        profile = self.attributes.get("profile", _Attribute()).string
        return resource_of(MIG_CLASS, profile) if PROFILE.fullmatch(profile) else ""


class _SlicePool(Struct, frozen=True):
    name: str = ""
    generation: int = 0


class _SliceSpec(Struct, frozen=True):
    driver: str = ""
    node_name: str = ""
    pool: _SlicePool = _SlicePool()
    devices: tuple[_Device, ...] = ()


class Slice(Struct, frozen=True):
    """A ResourceSlice: devices that a driver has on a node."""

    metadata: Meta
    spec: _SliceSpec = _SliceSpec()


class _Result(Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    """It only looks at the device, which others may have: a monitor does."""


class _Devices(Struct, frozen=True):
    results: tuple[_Result, ...] = ()


class _Allocation(Struct, frozen=True):
    devices: _Devices = _Devices()


class _Consumer(Struct, frozen=True):
    name: str = ""


class _ClaimStatus(Struct, frozen=True):
    allocation: _Allocation = _Allocation()
    reserved_for: tuple[_Consumer, ...] = ()


class Claim(Struct, frozen=True):
    """A ResourceClaim: what of them somebody has."""

    metadata: Meta
    status: _ClaimStatus = _ClaimStatus()


class SliceDevices(msgspec.Struct, frozen=True, gc=False):
    """The GPUs of a slice, or parts of such, by their names with the resource that counts them. `pool` and `generation` are the driver's: of a pool only the newest generation counts."""

    node: str
    driver: str
    pool: str
    generation: int
    devices: dict[str, str]
    overlapping: dict[str, str] = {}
    """Of these and of other devices there, the counters that they have in common with what they overlap."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """Devices that are allocated, as driver, pool and name; and the pods that have them, as namespace and name."""

    devices: frozenset[_Named]
    pods: frozenset[str]


class _Version(Struct, frozen=True):
    version: str = ""


class _Group(Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


def offered(found: Slice) -> SliceDevices | None:
    """What a slice has for one node; None: nothing that counts as a GPU of one node, or as a part of such."""
    spec = found.spec
    gpus = {each.name: resource for each in spec.devices if (resource := each.counts_as(spec.driver))}
    # A GPU has dozens of such parts, which are called alike on all nodes.
    overlapping = {
        sys.intern(each.name): sys.intern(each.consumes_counters[0].counter_set)
        for each in spec.devices
        if each.consumes_counters
    }
    if not spec.node_name or not (gpus or overlapping):
        return None
    pool = spec.pool
    return SliceDevices(spec.node_name, spec.driver, pool.name, pool.generation, gpus, overlapping)


def held(found: Claim) -> Held | None:
    """What a claim holds; None: nothing yet, or nothing for itself."""
    results = found.status.allocation.devices.results
    devices = frozenset((each.driver, each.pool, each.device) for each in results if not each.admin_access)
    if not devices:
        return None
    pods = (f"{found.metadata.namespace}/{each.name}" for each in found.status.reserved_for)
    return Held(devices, frozenset(pods))


def counted(offers: Iterable[SliceDevices]) -> dict[str, Counter[str]]:
    """By node, how many units of each resource there are."""
    return {node: Counter(devices.values()) for node, devices in _present(offers).items()}


def taken(
    offers: Collection[SliceDevices], claims: Iterable[Held], ours: Callable[[str], bool]
) -> dict[str, Counter[str]]:
    """By node, how many units others hold. `ours`: whether a pod is, whose claims are counted by what it asks for, which is known sooner."""
    unit_of = {
        device: (node, resource)
        for node, devices in _present(offers).items()
        for device, resource in devices.items()
    }
    held = {device for claim in claims if not any(map(ours, claim.pods)) for device in claim.devices}
    found: dict[str, Counter[str]] = {}
    for device in held.union(_overlapped(offers, held)) & unit_of.keys():
        node, resource = unit_of[device]
        found.setdefault(node, Counter())[resource] += 1
    return found


def _overlapped(offers: Iterable[SliceDevices], held: Iterable[_Named]) -> Iterator[_Named]:
    """What counts, and has counters in common with devices that are held."""
    of_pool: defaultdict[tuple[str, str], list[SliceDevices]] = defaultdict(list)
    for each in offers:
        if each.overlapping:
            of_pool[each.driver, each.pool].append(each)
    for driver, pool, name in held:
        near = of_pool.get((driver, pool), [])
        used = {each.overlapping[name] for each in near if name in each.overlapping}
        for each in near:
            yield from ((driver, pool, gpu) for gpu in each.devices if each.overlapping.get(gpu) in used)


def _present(offers: Iterable[SliceDevices]) -> dict[str, dict[_Named, str]]:
    """The devices of each node, of the newest generation of their pools, and what each counts as."""
    given = list(offers)
    newest: dict[tuple[str, str], int] = {}
    for each in given:
        key = each.driver, each.pool
        newest[key] = max(each.generation, newest.get(key, 0))
    found: dict[str, dict[_Named, str]] = {}
    for each in given:
        if each.generation == newest[each.driver, each.pool]:
            found.setdefault(each.node, {}).update(
                ((each.driver, each.pool, name), resource) for name, resource in each.devices.items()
            )
    return found


def ask(
    pods: Sequence[dict[str, Any]], placement: str, resource: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Have pods ask by a claim for what they ask for of a class's extended resource: clusters may not take that by its name. Answers the template that is to be made before them, without its version."""
    count = int(pods[0]["spec"]["containers"][0]["resources"]["requests"][resource])
    for pod in pods:
        main = pod["spec"]["containers"][0]
        main["resources"]["requests"].pop(resource)
        main["resources"]["limits"].pop(resource)
        main["resources"].setdefault("claims", []).append({"name": CLAIM})
        pod["spec"].setdefault("resourceClaims", []).append(
            {"name": CLAIM, "resourceClaimTemplateName": placement}
        )
        pod["metadata"]["annotations"][DEVICES_NOTE] = msgspec.json.encode({resource: count}).decode()
    exactly: dict[str, Any] = {"deviceClassName": class_of(resource), "count": count}
    if profile := profile_of(resource):
        wanted = f'device.attributes["{_MIG_DRIVER}"].profile == "{profile}"'
        exactly["selectors"] = [{"cel": {"expression": wanted}}]
    request = {"name": CLAIM, "exactly": exactly}
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": placement,
            "namespace": pods[0]["metadata"]["namespace"],
            "labels": dict(labels),
        },
        "spec": {"metadata": {"labels": dict(labels)}, "spec": {"devices": {"requests": [request]}}},
    }


class Dra:
    """What drivers publish and claims hold, kept by watching, where the cluster knows such."""

    def __init__(self, api: Api, changed: Callable[[str], None]) -> None:
        """`changed` is told each node whose devices are others, or are held by others."""
        self._api, self._changed = api, changed
        self.version = ""
        """Of the API, once it is known to be served."""
        self.known = asyncio.Event()
        """Set once the devices are listed, or it is known that there are none."""
        self.slices: dict[str, SliceDevices] = {}
        self._claims: dict[str, Held] = {}
        self._counted: dict[str, Counter[str]] = {}
        self._recounting: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Keep it, for ever."""
        while not self.version:
            try:
                self.version = await self._served()
            except FederatorError as error:
                log.log(
                    logging.WARNING if isinstance(error, Forbidden) else logging.DEBUG,
                    "GPUs of dynamic resource allocation are not counted; if the cluster has such, apply the present manifest of the agent: %s",
                    error,
                )
            if not self.version:
                self.known.set()
                await asyncio.sleep(LOOK_AGAIN_S)
        base = f"{GROUP}/{self.version}"
        slices: Informer[Slice, SliceDevices] = Informer(
            self._api,
            f"{base}/resourceslices",
            Slice,
            lambda each: (each.metadata.name, offered(each)),
            self.slice_changed,
        )
        claims: Informer[Claim, Held] = Informer(
            self._api,
            f"{base}/resourceclaims",
            Claim,
            lambda each: (each.metadata.key, held(each)),
            self._claim_changed,
        )
        self.slices, self._claims = slices.items, claims.items
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(slices.run())
            tasks.create_task(claims.run())
            await slices.synced.wait()
            await claims.synced.wait()
            self._recount()
            self.known.set()

    async def _served(self) -> str:
        """The version that is served and may be read; empty: none."""
        try:
            group = decoded(await self._api.ask("GET", GROUP), _Group)
        except NotFound:
            return ""
        version = next((each.version for each in group.versions if each.version in KNOWN), "")
        if version:
            await self._api.ask("GET", f"{GROUP}/{version}/resourceslices", query={"limit": "1"})
            await self._api.ask("GET", f"{GROUP}/{version}/resourceclaims", query={"limit": "1"})
        return version

    def slice_changed(self, name: str, offer: SliceDevices | None) -> None:
        """Take note of a slice that is new, has changed or, where `offer` is None, is gone."""
        del name, offer
        if self._recounting is None:
            self._recounting = asyncio.get_running_loop().call_later(RECOUNT_PAUSE_S, self._recount)

    def _recount(self) -> None:
        if self._recounting is not None:
            self._recounting.cancel()
            self._recounting = None
        before, self._counted = self._counted, counted(self.slices.values())
        for node in before.keys() | self._counted.keys():
            if before.get(node) != self._counted.get(node):
                self._changed(node)

    def _claim_changed(self, name: str, held_now: Held | None) -> None:
        del name, held_now
        self._changed("")

    def with_devices(self, node: Node) -> Node:
        """The node as if a device plugin had told of its devices."""
        found = self._counted.get(node.metadata.name)
        if not found:
            return node
        has = node.status.allocatable | {name: str(count) for name, count in found.items()}
        return replace(node, status=replace(node.status, allocatable=has))

    def missing(self, pools: Iterable[KubePool]) -> list[str]:
        """A remark on each pool of MIG instances of a profile that no node has."""
        published = {resource for devices in self._counted.values() for resource in devices}
        profiles = sorted(filter(None, map(profile_of, published)))[:MOST_NAMED]
        return [
            f"pool {pool.name} has no GPUs: no node publishes MIG instances of profile {pool.profile} that were cut beforehand; "
            + (f"the profiles there are: {', '.join(profiles)}" if profiles else "there are no others")
            for pool in pools
            if pool.profile and pool.asked not in published
        ]

    def taken(self, ours: Callable[[str], bool]) -> dict[str, Counter[str]]:
        """By node, what others hold."""
        return taken(self.slices.values(), self._claims.values(), ours)

    def template(self, made: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Where a template of `ask` is made, and it with its version. Raises `Unavailable` while the API is not known to be served."""
        if not self.version:
            raise Unavailable("the cluster does not serve resource.k8s.io in a version that is known here")
        return self.templates(made["metadata"]["namespace"]), {
            "apiVersion": f"resource.k8s.io/{self.version}"
        } | made

    def templates(self, namespace: str) -> str:
        """Where they are; empty: the cluster has none."""
        return f"{GROUP}/{self.version}/namespaces/{namespace}/resourceclaimtemplates" if self.version else ""

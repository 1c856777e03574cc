"""The provider's side of a cluster: offers, launch, list, bill, end.

A pod is called what its lease is called, and a namespace has a name once: a launch that is repeated finds the first pod. Listings of the API server are never late. It forgets a deleted pod at once, so
the end of a pod is when a listing lacked it; one that ended by itself stays for two hours, without its node. A pod that nobody finds a node for is given up, and its end says what the
autoscaler or the scheduler has said of it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import Conflict, Forbidden, Invalid, NoCapacity, NotFound, Permanent, Unavailable
from federator.kernel.quantities import format_duration
from federator.kube.api import Api, decoded
from federator.kube.objects import Pod, Struct, instant_at
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator_providers.ended import KEEP_ENDED_S, EndedMachines
from federator_providers.kubernetes.pods import (
    RENTED,
    PodRecord,
    has_node,
    instance,
    launched_at,
    record_of,
    secret_of,
    to_create,
)
from federator_providers.kubernetes.settings import KubernetesConfiguration
from federator_providers.rest import ANSWERS_WITHIN_S, FAULT_S
from federator_providers.stocks import SOLD_OUT_S, as_left, take_one

GRACE_S = 1
"""What a pod has that is given back: its work is over."""
PAGE_SIZE, MOST_PAGES = 500, 100
LONGEST_REASON = 500


class _Continues(Struct, frozen=True):
    continues: str = msgspec.field(default="", name="continue")


class _Pods(Struct, frozen=True):
    items: tuple[Pod, ...] = ()
    metadata: _Continues = _Continues()


class _Event(Struct, frozen=True):
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def weight(self) -> tuple[bool, float]:
        """The newest word of whoever adds nodes says most, then the scheduler's."""
        return self.reason != "FailedScheduling", instant_at(self.event_time or self.last_timestamp or "")


class _Events(Struct, frozen=True):
    items: tuple[_Event, ...] = ()


class KubernetesProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, name: str, configuration: KubernetesConfiguration, clock: Clock, api: Api) -> None:
        self.name = name
        self._configuration = configuration
        self._offers = configuration.offers
        self._clock = clock
        self._api = api
        self._at = f"/api/v1/namespaces/{configuration.given.namespace}"
        self._seen: dict[str, Pod] = {}
        """Pods that were there when last heard of, by name."""
        self._ending: set[str] = set()
        """Those that we have asked to end."""
        self._ended = EndedMachines(clock)

    async def offers(self) -> Sequence[Offer]:
        """What the settings allow, each with how many more there may be."""
        _, left = await self._left()
        return list(left.values())

    async def launch(self, request: LaunchRequest) -> Instance:
        """Ask for a pod of that name, unless there is or was one."""
        if request.offer.name not in self._offers:
            raise NotFound(f"provider {self.name} has no offer {request.offer.name}", field="offer")
        pods, left = await self._left()
        if ended := self._ended.get(request.name):
            return ended
        pod = pods.get(request.name)
        if pod is None:
            take_one(left[request.offer.name])
            pod = await self._create(request)
        record = record_of(pod)
        if record is None or record.federation != request.federation:
            raise Invalid(f"there is a pod {request.name} that this federation has not launched")
        self._seen[request.name] = pod
        if not pod.over:
            await self._hand_over(pod, request.user_data)
        return self._instance(pod, record)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Machines of that federation; on the way, an end to those that nobody finds a node for, and to what ended long ago."""
        now, found = self._clock.now(), []
        for name, pod in (await self._machines()).items():
            record = record_of(pod)
            if record is None or record.federation != federation:
                continue
            if _waits_in_vain(pod, record, now):
                await self._give_up(pod, record)
            if name in self._seen:
                found.append(self._instance(pod, record))
                if pod.over and now - (found[-1].ended_at or now) > KEEP_ENDED_S:
                    await self._delete(pod)
        return found + self._ended.beside({each.name for each in found}, federation)

    async def terminate(self, name: str) -> None:
        """Have the pod of that name deleted."""
        pod = (await self._machines()).get(name)
        if pod is not None and not pod.over:
            self._ending.add(name)
            await self._delete(pod)

    async def close(self) -> None:
        """Let go of connections."""
        await self._api.close()

    async def _create(self, request: LaunchRequest) -> Pod:
        """The pod, new or made by an earlier request. Raises `NoCapacity` where the namespace's quota is used up."""
        try:
            return decoded(
                await self._ask("POST", "/pods", body=to_create(request, self._configuration)), Pod
            )
        except Conflict:
            pass
        except Forbidden as error:
            if "exceeded quota" not in error.message:
                raise
            raise NoCapacity(error.message[:LONGEST_REASON], retry_after_s=SOLD_OUT_S) from None
        try:
            return decoded(await self._ask("GET", f"/pods/{request.name}"), Pod)
        except NotFound:
            raise Unavailable(f"{request.name} was there, and is gone", retry_after_s=FAULT_S) from None

    async def _hand_over(self, pod: Pod, user_data: str) -> None:
        """Make the secret that its kubelet waits for. What cannot have one is ended."""
        try:
            await self._ask("POST", "/secrets", body=secret_of(pod, user_data))
        except Conflict:
            return  # an earlier request has made it
        except Permanent:
            await self.terminate(pod.metadata.name)
            raise

    async def _machines(self) -> dict[str, Pod]:
        """Those that we have rented, of whatever federation, by name; those that have gone since are noted."""
        pods: dict[str, Pod] = {}
        page = _Pods(metadata=_Continues("first"))
        query = {"labelSelector": RENTED, "limit": str(PAGE_SIZE)}
        for _ in range(MOST_PAGES):
            page = decoded(await self._ask("GET", "/pods", query=query), _Pods)
            pods |= {each.metadata.name: each for each in page.items if record_of(each) is not None}
            if not page.metadata.continues:
                break
            query["continue"] = page.metadata.continues
        else:
            raise Unavailable(f"the list of pods has over {MOST_PAGES} pages", retry_after_s=FAULT_S)
        for name in [name for name in self._seen if name not in pods]:
            still = await self._find(self._seen[name])
            if still is not None:
                pods[name] = still
            elif name in self._seen:
                self._bury(self._seen.pop(name))
        self._seen |= pods
        return pods

    async def _find(self, seen: Pod) -> Pod | None:
        """A pod that is not listed, if somebody has only taken its label or its record away."""
        try:
            pod = decoded(await self._ask("GET", f"/pods/{seen.metadata.name}"), Pod)
        except NotFound:
            return None
        meta = msgspec.structs.replace(pod.metadata, annotations=seen.metadata.annotations)
        same = pod.metadata.uid == seen.metadata.uid
        return msgspec.structs.replace(pod, metadata=meta) if same else None

    def _bury(self, pod: Pod) -> None:
        """Note that a pod is gone."""
        name, record, now = pod.metadata.name, record_of(pod), self._clock.now()
        if record is not None:
            self._ended.remember(instance(pod, record, now, now, asked=name in self._ending))
        self._ending.discard(name)

    async def _left(self) -> tuple[dict[str, Pod], dict[str, Offer]]:
        """Our pods, and the offers beside them."""
        pods = await self._machines()
        records = [record_of(pod) for pod in pods.values() if not pod.over]
        live = Counter(record.offer for record in records if record)
        return pods, {offer.name: offer for offer in as_left(self._offers.values(), live)}

    async def _give_up(self, pod: Pod, record: PodRecord) -> None:
        """End a pod without a node, and remember why it has none."""
        name, now = pod.metadata.name, self._clock.now()
        why = await self._why_no_node(pod)
        self._ending.add(name)
        if has_node(await self._delete(pod)):
            return  # one has come meanwhile: it ends as others do
        self._seen.pop(name, None)
        self._ending.discard(name)
        self._ended.remember(instance(pod, record, now, now, asked=True, no_capacity=why))

    async def _why_no_node(self, pod: Pod) -> str:
        """What the autoscaler says of it, else the scheduler."""
        waited = format_duration(round(self._clock.now() - launched_at(pod)))
        selector = f"involvedObject.uid={pod.metadata.uid}"
        try:
            found = decoded(
                await self._ask("GET", "/events", query={"fieldSelector": selector, "limit": "100"}), _Events
            )
        except (Forbidden, NotFound):
            found = _Events()
        said = pod.condition("PodScheduled")
        last = max(found.items, key=lambda each: each.weight, default=None)
        told = f"{last.reason}: {last.message}" if last else said.message if said else ""
        return f"no node came within {waited}" + (f": {told[:LONGEST_REASON]}" if told else "")

    async def _delete(self, pod: Pod) -> Pod:
        """Have it end; the pod as it is then. One that is gone already is fine."""
        body = {"gracePeriodSeconds": GRACE_S, "preconditions": {"uid": pod.metadata.uid}}
        try:
            return decoded(await self._ask("DELETE", f"/pods/{pod.metadata.name}", body=body), Pod)
        except (NotFound, Conflict):
            return pod

    async def _ask(self, method: str, path: str, **parts: Any) -> bytes:
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                return await self._api.ask(method, self._at + path, patience_s=0.0, **parts)
        except TimeoutError:
            raise Unavailable("the API server does not answer", retry_after_s=FAULT_S) from None

    def _instance(self, pod: Pod, record: PodRecord) -> Instance:
        """What it is now. The first that is heard of its end stays."""
        made = instance(pod, record, self._clock.now(), asked=pod.metadata.name in self._ending)
        return made if made.ended_at is None else self._ended.remember(made)


def _waits_in_vain(pod: Pod, record: PodRecord, now: float) -> bool:
    """Whether it has no node after twice the time in which it should run."""
    if pod.over or has_node(pod) or pod.metadata.deletion_timestamp:
        return False
    return now > launched_at(pod) + 2 * record.delay_s

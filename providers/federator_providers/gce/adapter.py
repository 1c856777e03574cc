"""The provider's side of Compute Engine: offers, launch, list, bill, end.

A machine is called what its lease is called, and a zone has a name once. A launch looks in all zones of the region first, and asks with an id made of name and
zone, so that a request repeated after a lost reply finds the first one. What neither can rule out – a dispatcher that dies between two zones'
answers – the next listing finds: of two machines with one name it ends the younger. Google forgets a deleted machine at once: that one is gone is
believed when its own address says so, and how it ended stands in the zone's operations.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid, NotFound, Unavailable
from federator.kernel.quantities import parse_instant
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator_providers.ended import EndedMachines
from federator_providers.gce.calls import EXISTS, QUOTA, Api, failure
from federator_providers.gce.machines import (
    LABEL,
    NOTICE_S,
    PREEMPTED,
    alive,
    instance,
    oldest,
    record_of,
    request_id,
    to_insert,
    zone_of,
)
from federator_providers.gce.quotas import Quotas
from federator_providers.gce.settings import GceConfiguration
from federator_providers.rest import FAULT_S
from federator_providers.stocks import take_one
from federator_providers.zones import CloudRefusal, Zones

PAGE_SIZE = "500"
FIELDS = "name,id,zone,status,description,labels,creationTimestamp,lastStopTimestamp,scheduling"
"""What is asked for: not the metadata, where the join token is."""


class GceProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, name: str, configuration: GceConfiguration, clock: Clock) -> None:
        self.name = name
        self._offers = configuration.offers
        self._settings = configuration.given
        self._clock = clock
        self._api = Api(name, configuration.given)
        self._quotas = Quotas(name, configuration, self._api, clock)
        self._zones = Zones(clock, QUOTA)
        self._seen: dict[tuple[str, str], Any] = {}
        """Machines that were there when last heard of, by zone and name."""
        self._ending: dict[tuple[str, str], str] = {}
        """The operations that delete machines, by zone and name."""
        self._notices: dict[str, float] = {}
        """When machines are taken back, by name."""
        self._ended = EndedMachines(clock)

    async def offers(self) -> Sequence[Offer]:
        """What the settings allow, each with how many more there may be."""
        _, left = await self._left()
        return list(left.values())

    async def launch(self, request: LaunchRequest) -> Instance:
        """Rent a machine of that name, in the first zone that has one, unless there is or was one."""
        offer = self._offers.get(request.offer.name)
        if offer is None:
            raise NotFound(f"provider {self.name} has no offer {request.offer.name}", field="offer")
        machines, left = await self._left()
        if ended := self._ended.get(request.name):
            return ended
        known = oldest(machines).get(request.name)
        if known is not None:
            self._zones.unsure.pop(request.name, None)
            return self._instance(known)
        take_one(left[offer.name])
        run = partial(self._run, request)
        zones_usd_h = dict.fromkeys(self._settings.zones, offer.price_usd_h)
        return await self._zones.launch(left[offer.name], request, zones_usd_h, run)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Machines of that federation; on the way, an end to every second machine of one name, and to what has stopped by itself."""
        machines = [each for each in await self._machines() if _federation(each) == federation]
        first = oldest(machines)
        for machine in machines:
            if machine is not first[machine["name"]] or not alive(machine):
                await self._end(machine)
        found = [self._instance(machine) for machine in first.values()]
        return found + self._ended.beside(first, federation)

    async def terminate(self, name: str) -> None:
        """Have all machines of that name deleted."""
        for machine in await self._machines():
            if machine["name"] == name:
                await self._end(machine)

    async def close(self) -> None:
        """Let go of connections."""
        await self._api.close()

    async def _run(self, request: LaunchRequest, zone: str) -> Instance:
        """One machine in this zone. Raises `Refusal` when there is none to be had."""
        body = to_insert(request, self._settings, zone, request.offer.price_usd_h)
        self._zones.unsure[request.name] = zone
        path = f"zones/{zone}/instances"
        try:
            operation = await self._api.call("POST", path, body, requestId=request_id(request.name, zone))
            if operation["status"] != "DONE":
                operation = await self._api.call("POST", f"zones/{zone}/operations/{operation['name']}/wait")
            self._api.refuse_failed(operation)
        except CloudRefusal as refusal:
            if refusal.code != EXISTS:
                self._zones.unsure.pop(request.name, None)
                raise
            operation = {}
        machine = await self._api.find(f"{path}/{request.name}")
        if machine is None:
            if operation.get("status") == "DONE":
                return await self._spent(request, zone, operation)
            raise Unavailable(
                f"{request.name} has been asked for in {zone}, and is not there yet", retry_after_s=FAULT_S
            )
        self._zones.unsure.pop(request.name, None)
        if LABEL not in machine.get("labels", {}) or _federation(machine) != request.federation:
            raise Invalid(f"{zone} has an instance {request.name} that this federation has not launched")
        self._seen[zone, request.name] = machine
        return self._instance(machine)

    async def _spent(self, request: LaunchRequest, zone: str, operation: Any) -> Instance:
        """The answer to a launch that an earlier dispatcher has made, of a machine that is gone by now."""
        self._zones.unsure.pop(request.name, None)
        body = to_insert(request, self._settings, zone, request.offer.price_usd_h)
        gone = body | {
            "zone": zone,
            "id": operation["targetId"],
            "creationTimestamp": operation["insertTime"],
        }
        await self._bury(gone | {"status": "DELETED"})
        ended = self._ended.get(request.name)
        assert ended is not None
        return ended

    async def _machines(self) -> list[Any]:
        """Those that we have rented in the region, in whatever zone, whatever federation; those that have gone since are noted."""
        listed = await self._api.pages(
            "aggregated/instances",
            filter=f"labels.{LABEL}:*",
            maxResults=PAGE_SIZE,
            fields=f"nextPageToken,unreachables,items/*/warning/code,items/*/instances({FIELDS})",
        )
        here = [each for each in listed if zone_of(each).rpartition("-")[0] == self._settings.region]
        machines = {(zone_of(each), each["name"]): each for each in here if record_of(each) is not None}
        for (zone, name), machine in list(self._seen.items()):
            if (zone, name) in machines:
                continue
            if (still := await self._api.find(f"zones/{zone}/instances/{name}")) is not None:
                machines[zone, name] = still  # a listing that is late
            else:
                await self._bury(machine)
                self._seen.pop((zone, name), None)
        self._seen |= machines
        return list(machines.values())

    async def _left(self) -> tuple[list[Any], dict[str, Offer]]:
        """Our machines, and the offers beside them."""
        machines = await self._machines()
        records = [record_of(machine) for machine in machines if alive(machine)]
        return machines, await self._quotas.left(Counter(record.offer for record in records if record))

    async def _end(self, machine: Any) -> None:
        """Delete it, unless that is under way."""
        zone, name = key = zone_of(machine), machine["name"]
        if key in self._ending:
            operation = await self._api.find(f"zones/{zone}/operations/{self._ending[key]}")
            if operation is not None and operation["status"] != "DONE":
                return
        try:
            operation = await self._api.call("DELETE", f"zones/{zone}/instances/{name}")
        except CloudRefusal:  # it is gone
            return
        self._ending[key] = operation["name"]

    async def _bury(self, machine: Any) -> None:
        """Note how a machine ended that is gone. Another one of that name may have the lease: then nothing has ended."""
        zone, name, now = zone_of(machine), machine["name"], self._clock.now()
        self._ending.pop((zone, name), None)
        notice = self._notices.pop(name, None)
        if self._ended.get(name) or any(other == name for at, other in self._seen if at != zone):
            return
        target = str(machine["id"])
        listed = await self._api.pages(f"zones/{zone}/operations", filter=f"targetId={target}")
        operations = [each for each in listed if str(each.get("targetId")) == target]
        ends = [
            parse_instant(each.get("endTime") or each["insertTime"])
            for each in operations
            if each["operationType"] in ("delete", PREEMPTED)
        ]
        ended_at = max(ends, default=now)
        if any(each["operationType"] == PREEMPTED for each in operations):
            notice = notice or ended_at
        why = next((failure(each) for each in operations if each["operationType"] == "insert"), "")
        gone = instance(machine, now, notice, ended_at, no_capacity=f"{zone}: {why}" if why else "")
        if why and why not in QUOTA:
            self._zones.note_sold_out(gone.offer, zone)
        self._ended.remember(replace(gone, over_quota=why in QUOTA))

    def _instance(self, machine: Any) -> Instance:
        """What it is now. A spot machine that stops and was not told to is taken back. The first that is heard of its end stays."""
        now, name = self._clock.now(), machine["name"]
        stopping = machine["status"] == "STOPPING" and (zone_of(machine), name) not in self._ending
        if stopping and machine.get("scheduling", {}).get("provisioningModel") == "SPOT":
            self._notices.setdefault(name, now + NOTICE_S)
        made = instance(machine, now, self._notices.get(name))
        return made if made.ended_at is None else self._ended.remember(made)


def _federation(machine: Any) -> str:
    record = record_of(machine)
    return record.federation if record else ""

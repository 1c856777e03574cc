"""The provider's side of Azure: offers, launch, list, bill, end.

A machine is called what its lease is called, and a resource group has a name once, whatever the zone: a launch asks that there be none of that name yet, so a
repeated request finds the first machine. Azure forgets a deleted machine at once: that one is gone is believed when its own address says so.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid, NotFound, Unavailable
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator_providers.azure.calls import EXISTS, QUOTA, Api
from federator_providers.azure.machines import (
    federation_of,
    instance,
    is_spot,
    never_ran,
    offer_of,
    to_create,
    zone_of,
)
from federator_providers.azure.settings import AzureConfiguration
from federator_providers.ended import EndedMachines
from federator_providers.rest import FAULT_S
from federator_providers.stocks import as_left, take_one
from federator_providers.zones import CloudRefusal, Zones

LOOKS, LOOK_EVERY_S = 5, 2.0
"""How often a launch is looked at until Azure has found room for it or has not; it goes on without us after that, and a listing shows what became of it."""


class AzureProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, name: str, configuration: AzureConfiguration, clock: Clock) -> None:
        self.name = name
        self._offers = configuration.offers
        self._settings = configuration.given
        self._clock = clock
        self._api = Api(name, configuration.given, clock)
        self._zones = Zones(clock, QUOTA)
        self._seen: dict[str, Any] = {}
        """Machines that were there when last heard of, by name."""
        self._ending: set[str] = set()
        """Those that we have asked to delete."""
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
        known = machines.get(request.name)
        if known is not None and never_ran(known):
            await self._away(request.name)
        elif known is not None:
            return self._instance(known, request.federation)
        take_one(left[offer.name])
        run = partial(self._run, request)
        zones_usd_h = dict.fromkeys(self._settings.zones or ("",), offer.price_usd_h)
        return await self._zones.launch(left[offer.name], request, zones_usd_h, run)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Machines of that federation; on the way, an end to what has failed to become one."""
        machines = {
            name: each for name, each in (await self._machines()).items() if federation_of(each) == federation
        }
        for name, machine in machines.items():
            if never_ran(machine):
                self._zones.note_sold_out(offer_of(machine), zone_of(machine))
                await self._end(name)
        found = [instance(machine, self._clock.now()) for machine in machines.values()]
        return found + self._ended.beside(machines, federation)

    async def terminate(self, name: str) -> None:
        """Have the machine of that name deleted."""
        if name in await self._machines():
            await self._end(name)

    async def close(self) -> None:
        """Let go of connections."""
        await self._api.close()

    async def _run(self, request: LaunchRequest, zone: str) -> Instance:
        """One machine in this zone. Raises `Refusal` when there is none to be had, and leaves nothing of it."""
        body = to_create(request, self._settings, zone)
        try:
            answer = await self._api.call("PUT", request.name, body)
            await self._settle(answer.headers.get("Azure-AsyncOperation", ""))
        except CloudRefusal as refusal:
            if refusal.code != EXISTS:
                await self._away(request.name)
                raise
        machine = await self._api.find(request.name)
        if machine is None:
            raise Unavailable(
                f"{request.name} has been asked for, and is not there yet", retry_after_s=FAULT_S
            )
        return self._instance(machine, request.federation)

    async def _settle(self, operation: str) -> None:
        """Wait for a while until Azure has found room, or raise that it has not."""
        for _ in range(LOOKS if operation else 0):
            if await self._api.refuse_failed(operation):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _away(self, name: str) -> None:
        """Have the record of a failed launch deleted; the name is free only then. Raises `Unavailable` while it is not."""
        self._seen.pop(name, None)
        if await self._api.find(name) is None:
            return
        await self._end(name)
        for _ in range(LOOKS):
            if await self._api.find(name) is None:
                self._ending.discard(name)
                return
            await asyncio.sleep(LOOK_EVERY_S)
        raise Unavailable(f"the failed launch of {name} is not deleted yet", retry_after_s=FAULT_S)

    async def _machines(self) -> dict[str, Any]:
        """Those that we have rented, of whatever federation, by name; those that have gone since are noted."""
        listed = await self._api.machines()
        machines = {each["name"]: each for each in listed if federation_of(each)}
        for name in [name for name in self._seen if name not in machines]:
            still = await self._api.find(name)
            if still is not None and federation_of(still):
                machines[name] = still  # a listing that is late
            elif still is not None:
                self._seen.pop(name, None)  # somebody has taken its tags away
            elif name in self._seen:
                self._bury(self._seen.pop(name))
        self._seen |= {name: each for name, each in machines.items() if not never_ran(each)}
        return machines

    async def _left(self) -> tuple[dict[str, Any], dict[str, Offer]]:
        """Our machines, and the offers beside them."""
        machines = await self._machines()
        live = Counter(offer_of(machine) for machine in machines.values() if not never_ran(machine))
        return machines, {offer.name: offer for offer in as_left(self._offers.values(), live)}

    async def _end(self, name: str) -> None:
        """Delete it with its disk and interface."""
        self._ending.add(name)
        try:
            await self._api.call("DELETE", name, forceDeletion="true")
        except CloudRefusal as refusal:
            self._api.refuse_unless_gone(refusal, name)

    def _bury(self, machine: Any) -> None:
        """Note that a machine is gone: a spot machine that nobody has deleted was taken back. Azure does not say when, so it counts as now."""
        now, name = self._clock.now(), machine["name"]
        taken_back = is_spot(machine) and name not in self._ending
        self._ending.discard(name)
        self._ended.remember(instance(machine, now, now, taken_back=taken_back))

    def _instance(self, machine: Any, federation: str) -> Instance:
        """What it is now, if it is that federation's. Raises `Invalid` for somebody else's."""
        name = machine["name"]
        if federation_of(machine) != federation:
            raise Invalid(f"there is a machine {name} that this federation has not launched")
        self._seen[name] = machine
        return instance(machine, self._clock.now())

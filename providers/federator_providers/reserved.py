"""Machines that are paid for already, as a decorator around any provider: reserved instances, blocks of capacity, committed use, savings plans.

They are an offer of their own, `NAME/reserved`, of as many as are reserved, at what an hour of one still costs; offers of one savings plan share what is committed. So the plan takes them first, further machines cost what they cost, and caps count
what is truly spent, with nothing new in the planner. Which machines those are is only a tag of ours: to a cloud all machines of the type are alike, and it takes the reservation off the bill.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from federator.kernel.clock import Clock
from federator.kernel.errors import NoCapacity
from federator.kernel.quantities import format_instant
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Offer, Stock
from federator.ports import Provider
from federator_providers.billing import metered_usd
from federator_providers.stocks import SOLD_OUT_S

log = logging.getLogger(__name__)

RESERVED = "/reserved"
"""Ends the name of the offer."""
TAG = "federator-reserved"
"""Of a machine that is rented as one: what an hour of it costs."""
NOTICE_S = 600.0
"""For how long before the end of a reservation its machines are to be given back: one that stayed would cost what no cap has counted."""


class Reservation(NamedTuple):
    """So many machines of an offer, or machines of several that share so many cents an hour. `until_at`: None where it does not end."""

    limit: int
    price_usd_h: float
    until_at: float | None
    takes: Mapping[str, int] | None = None
    """Of several offers: what a machine of each takes of the limit, in cents an hour."""

    def takes_of(self, offer: str) -> int:
        """What one machine of the offer takes of the limit."""
        return self.takes[offer] if self.takes else 1

    def taken(self, offer: str, live: Iterable[str]) -> int:
        """What machines of these offers take of the limit that this offer has."""
        shared = self.takes or {offer: 1}
        return sum(shared.get(each, 0) for each in live)

    def stock(self, offer: str, live: Iterable[str]) -> Stock | UnsetType:
        """What offers share."""
        if not self.takes:
            return UNSET
        name = f"commitment for {next(iter(self.takes))}"
        taken = self.taken(offer, live)
        return Stock(name, self.limit, each=self.takes[offer], used=taken, unit="cents an hour")

    def __str__(self) -> str:
        """For people."""
        until = "" if self.until_at is None else f" until {format_instant(self.until_at)}"
        return (
            f"{self.limit} reserved{until}"
            if not self.takes
            else f"{self.limit / 100:.2f} USD an hour committed{until}"
        )


class ReservedProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, inner: Provider, clock: Clock, reservations: Mapping[str, Reservation]) -> None:
        """`reservations`: by the names of the inner provider's offers."""
        self.name = inner.name
        self._inner = inner
        self._clock = clock
        self._reservations = reservations
        self._listed: dict[str, Offer] = {}
        self._missing: set[str] = set()
        self._live: dict[str, str] | None = None
        """By the name of a machine, the offer that it is reserved of; None: not known yet, and so none is offered."""
        self._launching: dict[str, str] = {}
        """The same of those that are asked for just now."""

    async def offers(self) -> Sequence[Offer]:
        """As `inner` has it, with what is reserved of an offer beside what is left of it."""
        found: list[Offer] = []
        self._listed = {offer.name: offer for offer in await self._inner.offers()}
        self._tell_missing()
        for offer in self._listed.values():
            reservation = self._reservations.get(offer.name)
            if reservation is None:
                found.append(offer)
                continue
            left = min(self._left(offer.name), offer.available)
            ends_at = reservation.until_at
            if ends_at is not None and self._clock.now() + offer.delay_s >= ends_at - NOTICE_S:
                left = 0
            own = replace(
                offer,
                name=offer.name + RESERVED,
                price_usd_h=reservation.price_usd_h,
                minimum_billing_s=0.0,
                available=left,
                price_source=str(reservation),
                stock=offer.stock or reservation.stock(offer.name, self._taking()),
            )
            found += [own, replace(offer, available=offer.available - left)]
        return found

    async def launch(self, request: LaunchRequest) -> Instance:
        """As `inner` has it."""
        name = request.offer.name.removesuffix(RESERVED)
        reservation = self._reservations.get(name) if name != request.offer.name else None
        if reservation is None:
            return await self._inner.launch(request)
        if request.name not in (self._live or {}) and self._left(name) < 1:
            raise NoCapacity(
                f"no machine of {name} is left of what is paid for already ({reservation})",
                retry_after_s=SOLD_OUT_S,
            )
        tags = request.tags | {TAG: repr(reservation.price_usd_h)}
        offer = self._listed.get(name) or replace(request.offer, name=name)
        inner = replace(request, offer=offer, tags=tags)
        self._launching[request.name] = name
        try:
            made = self._told(await self._inner.launch(inner))
        finally:
            del self._launching[request.name]
        if made.status is not InstanceStatus.ENDED and self._live is not None:
            self._live[made.name] = name
        return made

    async def instances(self, federation: str) -> Sequence[Instance]:
        """As `inner` has it, reserved ones at their own price, with notice before the reservation ends."""
        before = set(self._live or ())
        listed = await self._inner.instances(federation)
        launched = {name: offer for name, offer in (self._live or {}).items() if name not in before}
        self._live = launched | {
            each.name: each.offer
            for each in listed
            if TAG in each.tags and each.status is not InstanceStatus.ENDED
        }
        return [self._told(each) for each in listed]

    async def terminate(self, name: str) -> None:
        """As `inner` has it."""
        await self._inner.terminate(name)

    async def close(self) -> None:
        """As `inner` has it."""
        await self._inner.close()

    def _tell_missing(self) -> None:
        """Say once which reservations are of no offer, as where a name is misspelled: nothing else would show it."""
        missing = self._reservations.keys() - self._listed.keys()
        for name in sorted(missing - self._missing):
            log.warning(
                "providers.%s.reserved: there is no offer %s; write a name that `federator offers -o wide` shows",
                self.name,
                name,
            )
        self._missing = set(missing)

    def _left(self, offer: str) -> int:
        if self._live is None:
            return 0
        reservation = self._reservations[offer]
        left = reservation.limit - reservation.taken(offer, self._taking())
        return max(0, left) // reservation.takes_of(offer)

    def _taking(self) -> Iterable[str]:
        """The offer of each machine that is rented as reserved, or asked for as one."""
        return ((self._live or {}) | self._launching).values()

    def _told(self, instance: Instance) -> Instance:
        """A machine that is rented as reserved is of that offer, and costs what it says."""
        if TAG not in instance.tags:
            return instance
        now = self._clock.now()
        until_at = now if instance.ended_at is None else instance.ended_at
        price_usd_h = _price(instance.tags[TAG])
        billed_usd = instance.billed_usd
        if price_usd_h is not None:
            billed_usd = metered_usd(price_usd_h, 0.0, instance.launched_at, until_at)
        told = replace(
            instance,
            offer=instance.offer + RESERVED,
            tags={key: value for key, value in instance.tags.items() if key != TAG},
            billed_usd=billed_usd,
        )
        reservation = self._reservations.get(instance.offer)
        ends_at = reservation.until_at if reservation else None
        if ends_at is None or told.ended_at is not None or now < ends_at - NOTICE_S:
            return told
        reclaim_at = min(ends_at, told.reclaim_at or ends_at)
        return replace(told, status=InstanceStatus.INTERRUPTING, reclaim_at=reclaim_at)


def _price(tag: str) -> float | None:
    """What the tag says; None where somebody has changed it to what is no price: then the machine costs what the provider says."""
    try:
        price_usd_h = float(tag)
    except ValueError:
        return None
    return price_usd_h if 0 <= price_usd_h < math.inf else None

"""A provider in memory, on the clock it is given: for tests and for the simulator.

It keeps the contract of `federator.ports.Provider` to the letter, and has switches for what real clouds do: sold-out offers,
faults, slow boots, machines that are taken back or vanish.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError, NotFound
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Offer
from federator_providers.billing import bill_usd
from federator_providers.stocks import as_left, take_one


@dataclass
class _Machine:
    request: LaunchRequest
    zone: str
    launched_at: float
    ended_at: float | None = None
    reclaim_at: float | None = None
    no_capacity: str = ""
    over_quota: bool = False


@dataclass
class FakeProvider:
    """Machines that exist only as records. Set `sold_out` and `faults` at any time."""

    name: str
    clock: Clock
    catalogue: Sequence[Offer]
    sold_out: set[str] = field(default_factory=set)
    """Names of offers that answer `NoCapacity`, whatever `available` says."""
    faults: list[FederatorError] = field(default_factory=list)
    """Each call raises and consumes the first of them."""
    notice_s: float = 120.0
    """From `interrupt` until the machine is gone."""
    slow_to_end: bool = False
    """Whether `terminate` takes, and bills, the offer's whole teardown."""
    zones: Sequence[str] = ("",)
    """A machine is in the one of them where fewest are taken back, the first of several."""
    machines: dict[str, _Machine] = field(default_factory=dict)
    """By the names of their requests, also those that have ended."""

    async def offers(self) -> Sequence[Offer]:
        """The catalogue, less what is rented now."""
        self._fail()
        return self._left()

    async def launch(self, request: LaunchRequest) -> Instance:
        """Start it at once; it boots for the offer's delay."""
        self._fail()
        known = self.machines.get(request.name)
        if known is None:
            offer = next((each for each in self.catalogue if each.name == request.offer.name), None)
            if offer is None:
                raise NotFound(f"provider {self.name} has no offer {request.offer.name}", field="offer")
            take_one(next(left for left in self._left() if left.name == offer.name))
            zone = min(self.zones, key=request.interruptions_in)
            known = _Machine(msgspec.structs.replace(request, offer=offer), zone, self.clock.now())
            self.machines[request.name] = known
        return self._instance(known)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """All that were ever launched for that federation."""
        self._fail()
        return [
            self._instance(each) for each in self.machines.values() if each.request.federation == federation
        ]

    async def terminate(self, name: str) -> None:
        """End it now, or after its teardown."""
        self._fail()
        machine = self.machines.get(name)
        if not self.slow_to_end:
            self.vanish(name)
        elif machine is not None and machine.ended_at is None:
            machine.ended_at = self.clock.now() + machine.request.offer.teardown_s

    async def close(self) -> None:
        """Nothing is held."""

    def vanish(self, name: str) -> None:
        """The machine is gone from one moment to the next, as by a power cut."""
        machine = self.machines.get(name)
        if machine is not None and self._ended_at(machine) is None:
            machine.ended_at = self.clock.now()

    def find_nothing_for(self, name: str, why: str, *, over_quota: bool = False) -> None:
        """A launch that was taken comes to nothing."""
        self.vanish(name)
        self.machines[name].no_capacity = why
        self.machines[name].over_quota = over_quota

    def interrupt(self, name: str) -> None:
        """Give notice that the machine will be taken back, as spot markets do: it is gone when the notice is over."""
        machine = self.machines[name]
        if machine.reclaim_at is None:
            machine.reclaim_at = self.clock.now() + self.notice_s

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)

    def _left(self) -> list[Offer]:
        live = Counter(
            each.request.offer.name for each in self.machines.values() if self._ended_at(each) is None
        )
        return [
            msgspec.structs.replace(offer, available=0) if offer.name in self.sold_out else offer
            for offer in as_left(self.catalogue, live)
        ]

    def _ended_at(self, machine: _Machine) -> float | None:
        if (
            machine.ended_at is None
            and machine.reclaim_at is not None
            and self.clock.now() >= machine.reclaim_at
        ):
            machine.ended_at = machine.reclaim_at
        over = machine.ended_at is not None and machine.ended_at <= self.clock.now()
        return machine.ended_at if over else None

    def _instance(self, machine: _Machine) -> Instance:
        now = self.clock.now()
        offer = machine.request.offer
        ended_at = self._ended_at(machine)
        if ended_at is not None:
            status = InstanceStatus.ENDED
        elif machine.reclaim_at is not None:
            status = InstanceStatus.INTERRUPTING
        elif now < machine.launched_at + offer.delay_s:
            status = InstanceStatus.BOOTING
        else:
            status = InstanceStatus.RUNNING
        return Instance(
            name=machine.request.name,
            offer=offer.name,
            status=status,
            launched_at=machine.launched_at,
            ended_at=ended_at,
            tags={**machine.request.tags, "federation": machine.request.federation},
            billed_usd=bill_usd(offer, machine.launched_at, now if ended_at is None else ended_at),
            reclaim_at=machine.reclaim_at,
            no_capacity=machine.no_capacity,
            over_quota=machine.over_quota,
            zone=machine.zone,
        )

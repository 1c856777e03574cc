"""The list of machines as one provider: who is free, who has what, and what to believe of a machine that does not answer.

The truth is at the machines. What this object remembers is what it last heard from each, because a machine that is cut off may go on working: it is listed as it
was, and only its own word says that something on it has ended. A machine that was empty stays empty, for nobody but the leading dispatcher launches anything there.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from federator.kernel.clock import Clock
from federator.kernel.errors import NoCapacity, NotFound, Unavailable
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Offer
from federator_providers.billing import bill_usd
from federator_providers.ssh.address import Address
from federator_providers.ssh.host import Answer, Question
from federator_providers.ssh.settings import SshConfiguration
from federator_providers.stocks import SOLD_OUT_S

SILENT_S = 60.0
"""A machine that did not answer is left alone for so long , for whoever asks looks after the leases of all providers, too."""
log = logging.getLogger(__name__)


class Asking(Protocol):
    """How a machine is asked."""

    async def ask(self, machine: Address, question: Question) -> Answer:
        """What it answers. Raises `Unavailable`."""
        ...


class SshProvider:
    """See `federator.ports.Provider` for what each method promises."""

    def __init__(self, name: str, configuration: SshConfiguration, clock: Clock, login: Asking) -> None:
        self.name = name
        self._given = configuration.given
        self._offers = configuration.offers
        self._machines = configuration.machines
        self._clock = clock
        self._login = login
        self._launching = asyncio.Lock()
        self._heard: dict[Address, tuple[Instance, ...]] = {}
        """What each machine last said of the federation's instances. Missing: it has said nothing yet, or was asked for something since and did not answer."""
        self._silent: dict[Address, float] = {}
        """Machines that did not answer, and when on the boot clock they are asked again."""
        self._free: set[Address] = set()

    async def offers(self) -> Sequence[Offer]:
        """All kinds of machines, each with how many of them answer and are free."""
        await self._ask_all(self._machines, self._question())
        free = [self._machines[machine] for machine in self._free]
        return [replace(offer, available=free.count(offer.name)) for offer in self._offers.values()]

    async def launch(self, request: LaunchRequest) -> Instance:
        """Take a free machine for that name, unless one has or had it."""
        if request.offer.name not in self._offers:
            raise NotFound(f"provider {self.name} has no offer {request.offer.name}", field="offer")
        request = replace(request, offer=self._offers[request.offer.name])
        async with self._launching:
            listed = await self._list(request.federation)
            for machine, instances in listed.items():
                if any(instance.name == request.name for instance in instances):
                    return await self._take(machine, request)
            return await self._take_free(request)

    async def instances(self, federation: str) -> Sequence[Instance]:
        """What the machines say, or said when they last did. Raises `Unavailable` while one has said nothing yet.

        Two machines may have been launched by one name, where the first could not be asked about it. One join token was given to both, so that work is on one of
        them at most; neither is said to have ended before both have.
        """
        listed = await self._list(federation)
        if unknown := [machine for machine in self._machines if machine not in listed]:
            raise Unavailable(
                f"{_names(unknown)} has not answered yet, and may have work of this federation",
                remedy="start it, or take it out of `machines` if it is switched off",
            )
        found: dict[str, Instance] = {}
        for instance in sorted((each for instances in listed.values() for each in instances), key=_life):
            found.setdefault(instance.name, instance)
        return list(found.values())

    async def terminate(self, name: str) -> None:
        """Have it switched off; the machine sees to it within a heartbeat."""
        holders = [
            machine
            for machine, instances in self._heard.items()
            if any(instance.name == name for instance in instances)
        ]
        answers = await self._ask_all(holders or self._machines, replace(self._question(), terminate=name))
        if holders and None in answers.values():
            raise Unavailable(f"{_names(holders)} does not answer, so {name} goes on")

    async def close(self) -> None:
        """Nothing is held."""

    async def _take_free(self, request: LaunchRequest) -> Instance:
        """Take the first free one in an order that is the same each time, so that a launch whose answer was lost is found again.

        No second machine is tried: the first may keep what it was given, which is good for one.
        """
        ours = [machine for machine, offer in self._machines.items() if offer == request.offer.name]
        ours.sort(key=lambda machine: hashlib.sha256(f"{request.name} {machine}".encode()).digest())
        if free := [machine for machine in ours if machine in self._free]:
            return await self._take(free[0], request)
        silent = [machine for machine in ours if machine in self._silent]
        also = f"; {_names(silent)} does not answer" if silent else ""
        raise NoCapacity(f"no machine of {request.offer.name} is free{also}", retry_after_s=SOLD_OUT_S)

    async def _take(self, machine: Address, request: LaunchRequest) -> Instance:
        before = self._heard.pop(machine, ())  # until it has answered, it may have it or not
        self._free.discard(machine)
        answer = await self._login.ask(machine, replace(self._question(), request=request))
        if answer.taken:
            self._heard[machine] = before
            raise NoCapacity(f"{machine} is taken", retry_after_s=SOLD_OUT_S)
        if answer.refused or len(answer.instances) != 1:
            raise Unavailable(f"{machine} refused: {answer.refused[:500]}")
        (instance,) = answer.instances
        self._heard[machine] = (*(each for each in before if each.name != instance.name), instance)
        return self._billed(machine, instance)

    async def _list(self, federation: str) -> dict[Address, list[Instance]]:
        """By machine. Those that have not answered since they may last have changed are left out."""
        answers = await self._ask_all(self._machines, replace(self._question(), federation=federation))
        for machine, answer in answers.items():
            if answer is not None:
                self._heard[machine] = answer.instances
        return {
            machine: [self._billed(machine, each) for each in self._heard[machine] if _of(each, federation)]
            for machine in self._machines
            if machine in self._heard
        }

    async def _ask_all(self, machines: Iterable[Address], question: Question) -> dict[Address, Answer | None]:
        """Each one's answer; None: it gave none."""
        asked = list(machines)
        answers = await asyncio.gather(*(self._answer(machine, question) for machine in asked))
        return dict(zip(asked, answers, strict=True))

    async def _answer(self, machine: Address, question: Question) -> Answer | None:
        if self._clock.boot() < self._silent.get(machine, 0.0):
            return None
        try:
            answer = await self._login.ask(machine, question)
        except Unavailable as error:
            answer = Answer(refused=error.describe())
        listed = not question.terminate and question.request is None
        (self._free.add if listed and answer.free else self._free.discard)(machine)
        if not answer.refused:
            self._silent.pop(machine, None)
            return answer
        if machine not in self._silent:
            log.warning("provider %s: %s: %s", self.name, machine, answer.refused[:500])
        self._silent[machine] = self._clock.boot() + SILENT_S
        return None

    def _question(self) -> Question:
        return Question(
            at=self._clock.now(),
            real_s_per_s=self._clock.real_delay_s(1.0),
            state_dir=self._given.state_dir,
            command=self._given.command,
            env=self._given.env,
        )

    def _billed(self, machine: Address, instance: Instance) -> Instance:
        """As the settings bill that machine, whatever it says, and with no time ahead of the federation's clock."""
        now, offer = self._clock.now(), self._offers[self._machines[machine]]
        launched_at = min(instance.launched_at, now)
        ended_at = None if instance.ended_at is None else min(max(instance.ended_at, launched_at), now)
        billed_usd = bill_usd(offer, launched_at, now if ended_at is None else ended_at)
        return replace(
            instance,
            offer=offer.name,
            launched_at=launched_at,
            ended_at=ended_at,
            billed_usd=billed_usd,
            reclaim_at=None,
        )


def _life(instance: Instance) -> tuple[bool, float]:
    """What lives first, and of these what was launched first."""
    return instance.status is InstanceStatus.ENDED, instance.launched_at


def _of(instance: Instance, federation: str) -> bool:
    return instance.tags.get("federation") == federation


def _names(machines: Iterable[Address]) -> str:
    names = [str(machine) for machine in machines]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

"""The cloud: what it really rents out, and the way of each dispatcher to it, on which calls are throttled, replies lost, and listings old.

The machines are those of the provider that the tests use; here they have a host each, which is there from its boot until the provider says that it has ended.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from federator.kernel.errors import NoCapacity, Transient
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Offer
from federator_providers.fake import FakeProvider
from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.fault_profile import Trouble
from tests.lab.faults.journal import Journal
from tests.lab.faults.network import Network
from tests.lab.faults.plan import LAUNCH, PROVIDER, TERMINATE
from tests.lab.faults.processes import FaultLoop, coming_to

CALL_S = (0.05, 1.5)
STALE_S = 120.0


class Cloud(FakeProvider):
    """The truth about rented machines. `booted` and `gone` are told of each."""

    def __init__(
        self,
        loop: FaultLoop,
        journal: Journal,
        catalogue: Sequence[Offer],
        booted: Callable[[LaunchRequest], None],
        gone: Callable[[str], None],
    ) -> None:
        super().__init__(PROVIDER, MachineClock(loop), catalogue, slow_to_end=True)
        self._loop = loop
        self._journal = journal
        self._booted = booted
        self._gone = gone

    async def launch(self, request: LaunchRequest) -> Instance:
        """As every provider; a new machine will boot."""
        new = request.name not in self.machines
        instance = await super().launch(request)
        if new:
            self._journal.note(PROVIDER, f"launches {request.name[-6:]} {request.offer.name}")
            self._loop.later(request.offer.delay_s, self._boot, request)
        return instance

    async def terminate(self, name: str) -> None:
        """As every provider; the machine is there until its teardown is over."""
        machine = self.machines.get(name)
        before = machine.ended_at if machine is not None else None
        await super().terminate(name)
        if machine is not None and before is None and machine.ended_at is not None:
            self._journal.note(PROVIDER, f"ends {name[-6:]}")
            self._loop.later(max(0.0, machine.ended_at - self.clock.now()), self._end, name)

    def living(self) -> list[str]:
        """Machines that have not ended, oldest first."""
        return [name for name, machine in self.machines.items() if self._ended_at(machine) is None]

    def take_back(self, name: str) -> None:
        """With a notice, as spot markets do."""
        self._journal.note(PROVIDER, f"takes {name[-6:]} back")
        self.interrupt(name)
        self._loop.later(self.notice_s, self._end, name)

    def lose(self, name: str) -> None:
        """From one moment to the next."""
        self._journal.note(PROVIDER, f"loses {name[-6:]}")
        self.vanish(name)
        self._end(name)

    def final(self) -> list[Instance]:
        """Every machine there ever was."""
        return [self._instance(machine) for machine in self.machines.values()]

    def _boot(self, request: LaunchRequest) -> None:
        if self._ended_at(self.machines[request.name]) is None:
            self._booted(request)

    def _end(self, name: str) -> None:
        self._gone(name)


class CloudHandle:
    """`federator.ports.Provider` as one dispatcher reaches it. Not reached, it is as good as throttled."""

    def __init__(self, cloud: Cloud, network: Network, who: str, chance: random.Random) -> None:
        self.name = cloud.name
        self._cloud = cloud
        self._network = network
        self._who = who
        self._chance = chance
        self._seen: list[tuple[float, list[Instance]]] = []

    async def offers(self) -> Sequence[Offer]:
        """As the provider."""
        await self._call()
        return await self._cloud.offers()

    async def launch(self, request: LaunchRequest) -> Instance:
        """As the provider; the machine may be there although the answer is lost."""
        coming_to(LAUNCH)
        await self._call()
        if self._strikes(Trouble.SOLD_OUT):
            raise NoCapacity(f"{request.offer.name} is sold out", retry_after_s=60.0)
        instance = await self._cloud.launch(request)
        await self._answer()
        return instance

    async def instances(self, federation: str) -> Sequence[Instance]:
        """As the provider, or as it was a while ago."""
        await self._call()
        listed = list(await self._cloud.instances(federation))
        now_s = self._network.loop.time()
        self._seen = [each for each in self._seen if each[0] > now_s - STALE_S] + [(now_s, listed)]
        if self._strikes(Trouble.STALE):
            return self._chance.choice(self._seen)[1]
        return listed

    async def terminate(self, name: str) -> None:
        """As the provider; it may have begun although the answer is lost."""
        coming_to(TERMINATE)
        await self._call()
        await self._cloud.terminate(name)
        await self._answer()

    async def close(self) -> None:
        """Nothing is held."""

    async def _call(self) -> None:
        await asyncio.sleep(self._chance.uniform(*CALL_S))
        if self._strikes(Trouble.THROTTLE) or not self._network.reaches(self._who, self.name):
            raise Transient(f"{self.name} is throttling {self._who}", retry_after_s=5.0)

    async def _answer(self) -> None:
        await asyncio.sleep(self._chance.uniform(*CALL_S))
        if self._strikes(Trouble.REPLY_LOST) or not self._network.reaches(self.name, self._who):
            raise Transient(f"{self.name} does not answer {self._who}", retry_after_s=5.0)

    def _strikes(self, trouble: Trouble) -> bool:
        return self._network.profile.draw(self._chance, self.name, trouble) is not None


def over(instance: Instance) -> bool:
    """Whether the provider says that it has ended."""
    return instance.status is InstanceStatus.ENDED

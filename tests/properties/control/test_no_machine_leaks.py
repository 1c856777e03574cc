"""Promise 7: whatever a cloud says, says late or does not say, no machine outlives its lease for long, and none stays that belongs to nobody.

A seed has many lives of leases at once, before a cloud that throttles, loses its answers, answers what it does not do, lists machines late, not at
all or as they were, takes them back and loses them; agents join, or never do. Then the cloud becomes honest, and a few hours later nothing is left.
"""

import random
from collections.abc import Sequence

import msgspec
import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import FederatorError, NoCapacity, Unavailable
from federator.model.capacity import LEASE_ENDED, Instance, InstanceStatus, LaunchRequest, Lease, LeaseStatus
from federator.settings import LeaseSettings
from tests.support.dispatch import OFFER, World, make_world
from tests.support.examples import NIGHTLY

LIVES = 20
SEEDS = 50 if NIGHTLY else 4
"""A thousand lives at night, and eighty in every run."""
POLL_S = 4 * LeaseSettings().poll_s
STORM_S, CALM_S = 2 * 3600.0, 3 * 3600.0
SWEEP_EVERY = 5
"""Polls."""


class LyingCloud:
    """Between the dispatcher and the machines: by chance a call fails before it is carried out or after it, or its answer is not true."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.honest = False
        self._chance, self._cloud = chance, world.provider
        self._launch, self._terminate, self._listing = (
            world.provider.launch, world.provider.terminate, world.provider.instances,
        )  # fmt: skip
        self._seen: list[Sequence[Instance]] = [[]]
        self._hidden: dict[str, int] = {}
        """Machines that the next so many listings do not show."""
        for name in ("launch", "terminate", "instances"):
            setattr(world.provider, name, getattr(self, name))

    async def launch(self, request: LaunchRequest) -> Instance:
        """Sold out, throttled, or done and not answered."""
        self._strike(0.1, NoCapacity("sold out", retry_after_s=60.0))
        self._strike(0.3, Unavailable("throttled"))
        instance = await self._launch(request)
        self._strike(0.4, Unavailable("the answer is lost"))
        return instance

    async def terminate(self, name: str) -> None:
        """Throttled, done and not answered, or answered and not done."""
        self._strike(0.3, Unavailable("throttled"))
        if self._happens(0.3):
            return
        await self._terminate(name)
        self._strike(0.3, Unavailable("the answer is lost"))

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Throttled, as it was some polls ago, or without some of them for a while."""
        self._strike(0.2, Unavailable("throttled"))
        now = await self._listing(federation)
        self._seen = [*self._seen[-4:], now]
        listed = self._chance.choice(self._seen) if self._happens(0.2) else now
        for each in listed:
            if self._happens(0.15):
                self._hidden[each.name] = self._chance.randint(2, 8)
        self._hidden = {name: left - 1 for name, left in self._hidden.items() if left and not self.honest}
        return [each for each in listed if each.name not in self._hidden]

    def disturb(self) -> None:
        """Take a machine back with a notice, or lose one."""
        living = [name for name, machine in self._cloud.machines.items() if machine.ended_at is None]
        if living and self._happens(0.03):
            self._cloud.interrupt(self._chance.choice(living))
        if living and self._happens(0.03):
            self._cloud.vanish(self._chance.choice(living))

    def _happens(self, share: float) -> bool:
        return not self.honest and self._chance.random() < share

    def _strike(self, share: float, error: FederatorError) -> None:
        if self._happens(share):
            raise error


async def begin(world: World, number: int, chance: random.Random) -> None:
    """A lease that is about to be launched."""
    lease = Lease(
        id=f"lease-{number:02}",
        provider="cloudy",
        site="cloudy-r1",
        offer=OFFER,
        status=LeaseStatus.LAUNCHING,
        requested_at=world.clock.now(),
        committed_usd=chance.choice([10.0, 20.0, 60.0]),
    )
    await world.put(lease)


async def live(world: World, cloud: LyingCloud, lives: int, for_s: float, chance: random.Random) -> None:
    """Begin so many leases; poll, step and sweep, as the dispatcher's loops do. Agents join soon, late, or never."""
    core, polls = world.core, int(for_s / POLL_S)
    begins = sorted(chance.randrange(polls) for _ in range(lives))
    for poll in range(polls):
        for number, at in enumerate(begins):
            if at == poll:
                await begin(world, number, chance)
        world.clock.advance(POLL_S)
        cloud.disturb()
        await core.executor.poll()
        await core.executor.step()
        for lease in world.leases():
            if (
                lease.status is LeaseStatus.BOOTING
                and lease.member not in world.sites
                and chance.random() < 0.1
            ):
                await world.boot(lease)
        if poll % SWEEP_EVERY == 0:
            await core.sweeper.end_leaks()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_is_left_of_a_cloud_that_lies(seed: int) -> None:
    chance = random.Random(seed)
    world = await make_world(clock=ManualClock())
    world.provider.catalogue = [msgspec.structs.replace(OFFER, available=LIVES)]
    world.provider.slow_to_end = chance.random() < 0.5
    cloud = LyingCloud(world, chance)
    await live(world, cloud, LIVES, STORM_S, chance)
    cloud.honest = True
    await live(world, cloud, 0, CALM_S, chance)
    machines = await world.provider.instances("federation")
    assert len(machines) > LIVES // 2, "a storm in which nothing is launched tries nothing"
    assert [each.name for each in machines if each.status is not InstanceStatus.ENDED] == []
    assert [lease.id for lease in world.leases() if lease.status not in LEASE_ENDED] == []

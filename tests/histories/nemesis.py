"""Who breaks things, as a seed says, and mends each again."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.histories.world import MEMBERS, NAMES, SHARED, SITE, HistoryWorld
from tests.partitions.proxy import Proxy

FAULT_S = (0.3, 4.0)
"""How long one lasts. A term is three seconds: some leaders come back to theirs, and some do not."""
LATE = 0.5
"""Of cuts, the share that only delays what was sent; the rest loses it."""
AT_LEADER = 0.6
JUMP_S = (-7200.0, -60.0, -1.5, 1.5, 60.0, 7200.0)

Fault = Callable[[], Awaitable[None]]


class Nemesis:
    """Of one world. `done`: how many faults of each kind there were."""

    def __init__(self, world: HistoryWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._busy: set[str] = set()
        """What is broken already: one fault at a time for each."""
        self.faults: dict[str, Fault] = {
            "dispatcher paused": self._pause_dispatcher,
            "dispatcher killed": self._kill_dispatcher,
            "dispatcher cut off from etcd": self._cut_dispatcher,
            "dispatcher cut off from one member": self._cut_one_member,
            "clients cut off": self._cut_clients,
            "site cut off": self._cut_site,
            "agent paused": self._pause_agent,
            "agent killed": self._kill_agent,
            "member paused": self._pause_member,
            "member killed": self._kill_member,
            "member cut off from both others": self._isolate_member,
            "member cut off from one other": self._cut_pair,
            "clock set": self._set_clock,
        }
        if world.disks:
            self.faults |= {
                "disk of a member stalled": self._stall_member,
                "shared disk stalled": self._stall_shared,
            }

    async def rage(self, count: int, within_s: float) -> None:
        """So many faults at times of the seed's choice, several of them at once; returns when all are mended."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                name = self.random.choice(list(self.faults))
                tasks.create_task(self._one(name, self.random.uniform(0.1, within_s)))

    async def _one(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.faults[name]()

    async def _break(
        self, what: str, name: str, wrong: Callable[[], object], right: Callable[[], object]
    ) -> None:
        """Unless it is broken already. What is killed while its disk stands still is gone only once that is thawed, so nobody may wait for it here."""
        if what in self._busy:
            return
        self._busy.add(what)
        try:
            await _done(wrong())
            self.done[name] += 1
            await asyncio.sleep(self.random.uniform(*FAULT_S))
        finally:
            await _done(right())
            self._busy.discard(what)

    async def _dispatcher(self) -> str:
        if self.random.random() < AT_LEADER:
            for name in self.random.sample(NAMES, len(NAMES)):
                with suppress(TimeoutError):
                    if await asyncio.wait_for(self.world.leads(name), 0.5):
                        return name
        return self.random.choice(NAMES)

    def _member(self) -> int:
        return self.random.choice(list(MEMBERS))

    async def _pause_dispatcher(self) -> None:
        name = await self._dispatcher()
        await self._pause(name, "dispatcher paused")

    async def _pause_agent(self) -> None:
        await self._pause(SITE, "agent paused")

    async def _pause(self, name: str, kind: str) -> None:
        world = self.world
        await self._break(
            name, kind, lambda: world.signal(name, signal.SIGSTOP), lambda: world.signal(name, signal.SIGCONT)
        )

    async def _kill_dispatcher(self) -> None:
        name = await self._dispatcher()
        await self._break(
            name,
            "dispatcher killed",
            lambda: self.world.signal(name, signal.SIGKILL),
            lambda: asyncio.to_thread(self.world.start, name),
        )

    async def _kill_agent(self) -> None:
        world = self.world
        await self._break(
            SITE, "agent killed", lambda: asyncio.to_thread(world.processes.kill, SITE), world.start_site
        )

    async def _cut_dispatcher(self) -> None:
        name = await self._dispatcher()
        await self._cut(f"{name}-etcd", "dispatcher cut off from etcd", *self.world.proxies[name])

    async def _cut_one_member(self) -> None:
        name = await self._dispatcher()
        proxy = self.random.choice(self.world.proxies[name])
        await self._cut(f"{name}-etcd", "dispatcher cut off from one member", proxy)

    async def _cut_clients(self) -> None:
        name = await self._dispatcher()
        await self._cut(f"{name}-clients", "clients cut off", self.world.fronts[name])

    async def _cut_site(self) -> None:
        await self._cut("site", "site cut off", *self.world.backs.values())

    async def _cut(self, what: str, kind: str, *proxies: Proxy) -> None:
        """Both ways, or one; late, or lost."""
        up, down = self.random.choice(((True, True), (True, False), (False, True)))
        late = self.random.random() < LATE

        def cut() -> None:
            for proxy in proxies:
                proxy.cut(up=up, down=down)

        def mend() -> None:
            for proxy in proxies:
                if not late:
                    proxy.sever()
                proxy.open()

        await self._break(what, kind, cut, mend)

    async def _pause_member(self) -> None:
        number, members = self._member(), self.world.members
        await self._break(
            f"m{number}", "member paused", lambda: members.pause(number), lambda: members.resume(number)
        )

    async def _kill_member(self) -> None:
        number, members = self._member(), self.world.members
        await self._break(
            f"m{number}",
            "member killed",
            lambda: asyncio.to_thread(members.kill, number),
            lambda: members.start(number),
        )

    async def _isolate_member(self) -> None:
        number = self._member()
        await self._part(
            "member cut off from both others", [pair for pair in self.world.pairs if number in pair]
        )

    async def _cut_pair(self) -> None:
        await self._part("member cut off from one other", [self.random.choice(list(self.world.pairs))])

    async def _part(self, kind: str, pairs: list[frozenset[int]]) -> None:
        def cut() -> None:
            for pair in pairs:
                self.world.pairs[pair].clear()

        def mend() -> None:
            for pair in pairs:
                self.world.pairs[pair].set()

        await self._break("peers", kind, cut, mend)

    async def _stall_member(self) -> None:
        name = f"m{self._member()}"
        await self._stall(name, "disk of a member stalled")

    async def _stall_shared(self) -> None:
        await self._stall(SHARED, "shared disk stalled")

    async def _stall(self, name: str, kind: str) -> None:
        disk = self.world.disks[name]
        await self._break(
            name, kind, lambda: asyncio.to_thread(disk.freeze), lambda: asyncio.to_thread(disk.thaw)
        )

    async def _set_clock(self) -> None:
        """It stays as wrong until it is set again."""
        name = self.random.choice([*NAMES, SITE])
        self.world.set_clock(name, self.random.choice((0.0, *JUMP_S)))
        self.done["clock set"] += 1


async def _done(result: object) -> None:
    """What takes its time is waited for."""
    if isinstance(result, Awaitable):
        await result

"""A machine that runs work: what really happens on it, whatever anybody believes.

Ranks are its processes: they outlive the agent, end by themselves, when they are asked to, or with the machine. The disk keeps the agent's journal. As on a
real host with the `local` runtime, a rank's directory says whether it was ever started, and a watchdog beside each rank that must not outlive its connection
ends it in time, whether there is an agent or not.
"""

import shutil
from collections.abc import Callable

import msgspec

from federator.model.jobs import JobSpec
from federator_agent.core.lent_capacity import HostPool, Slot
from federator_agent.core.state import Change, PlacementRecord
from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.plan import HostPlan, LinkPlan
from tests.lab.faults.ranks import RealRank
from tests.lab.faults.scene import Scene
from tests.lab.faults.transfers import LinkMeter

SAVING_S = (1.0, 8.0)
"""A rank that is asked to end has saved itself within that time."""
TICK_S = 0.001
"""Times are told apart by so much."""
ASKED, KILLED, LATE = 143, 137, 143
CPUS_MILLI, MEMORY_MIB = 64_000, 500_000
COMPACT_CHANGES = 300
POOL = "main"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Change).decode


class HostDisk:
    """The agent's state directory: its journal as the bytes that it would have, specs, and the newest renewal."""

    def __init__(self) -> None:
        self._journal: list[bytes] = []
        self.specs: dict[str, JobSpec] = {}
        self.renewed: tuple[str, float] | None = None
        """Boot id and boot time of the newest renewal."""
        self.joined = False

    def append(self, changes: tuple[Change, ...]) -> None:
        """Durable when it returns."""
        self._journal += [_encode(change) for change in changes]

    def read(self) -> list[Change]:
        """All that was written."""
        return [_decode(line) for line in self._journal]

    @property
    def long(self) -> bool:
        """Whether it is time to rewrite it."""
        return len(self._journal) > COMPACT_CHANGES

    def rewrite(self, changes: list[Change]) -> None:
        """Replace it by the least that says the same."""
        self._journal = [_encode(change) for change in changes]

    def wipe(self) -> None:
        """All but who it is."""
        self._journal.clear()
        self.specs.clear()
        self.renewed = None


class Host:
    """One member's machines. `on_end` is the agent's ear while there is one."""

    def __init__(self, plan: HostPlan, scene: Scene, pool: str = POOL) -> None:
        self.plan = plan
        self.member = plan.member
        self.disk = HostDisk()
        self.clock = MachineClock(scene.loop, plan.rate, plan.ahead_s)
        self.boots = 0
        self.pool = HostPool(
            name=pool,
            model=plan.model,
            gpu_memory_mib=81_920,
            nodes=plan.nodes,
            gpus_per_node=plan.gpus,
            cpus_milli_per_node=CPUS_MILLI,
            memory_mib_per_node=MEMORY_MIB,
        )
        self.folder = scene.folder / plan.member
        """Its disk, in worlds with data."""
        self.meter = (
            LinkMeter(plan.member, plan.link or LinkPlan(), self.clock, scene) if scene.has_data else None
        )
        self.on_end: Callable[[RealRank], None] | None = None
        self.gone = False
        self._wiped_s = 0.0
        self._loop = scene.loop
        self._truth = scene.truth
        self._journal = scene.journal
        self._chance = scene.chance(f"host {plan.member}")
        self._ranks: dict[tuple[str, int], RealRank] = {}
        """All that were started here and whose directory is still there."""

    @property
    def boot_id(self) -> str:
        """Of the present boot."""
        return f"{self.member}-boot-{self.boots}"

    @property
    def work_boot_id(self) -> str:
        """Another one proves that all work is gone."""
        return self.boot_id

    def rank(self, placement: str, rank: int) -> RealRank | None:
        """What is in a rank's directory."""
        return self._ranks.get((placement, rank))

    def start(self, record: PlacementRecord, spec: JobSpec, slot: Slot) -> RealRank | None:
        """Start a rank; None if its directory has been used."""
        key = (record.entry.placement, slot.rank)
        if key in self._ranks:
            return None
        began = RealRank(record, spec, slot, self.plan, self.pool, self._loop.time())
        began.began_at = self.clock.now()
        self._ranks[key] = began
        if spec.stop_within_s and self._left_s(began) <= began.grace_s:
            self._over(began, LATE)
            return began
        self._journal.note(
            self.member, f"rank {began.name} of {began.job[-6:]} runs on {slot.host} {list(slot.gpus)}"
        )
        self._truth.began(began)
        self._truth.when_all_run(began, self._finish_later)
        if spec.stop_within_s:
            self._watch(began)
        return began

    def signal(self, placement: str, rank: int, signal: str) -> None:
        """To one rank, if it runs."""
        found = self._ranks.get((placement, rank))
        if found is None or found.ended_s is not None:
            return
        self._journal.note(self.member, f"{signal} to {found.name}")
        if signal == "KILL":
            self._over(found, KILLED)
        elif found.asked_s is None:
            self._ask(found)

    def discard(self, placement: str) -> None:
        """Remove the directories of a placement that is over."""
        for key in [
            key for key, rank in self._ranks.items() if key[0] == placement and rank.ended_s is not None
        ]:
            del self._ranks[key]

    def reboot(self, *, wiped: bool) -> None:
        """Everything that runs ends. The disk stays, or not."""
        self._journal.note(self.member, "reboots" + (", its disk empty" if wiped else ""))
        self.boots += 1
        self._end_all()
        self.clock.reboot()
        self.disk.renewed = None
        if wiped:
            self.disk.wipe()
            if self.meter is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            self._wiped_s = self._loop.time()
            self._truth.forgotten(self.member)
            self._ranks.clear()

    def forgot(self, rank: RealRank) -> bool:
        """Whether how that rank ended may be known to nobody any more."""
        return self.gone or rank.ended_s is None or rank.ended_s <= self._wiped_s

    def destroy(self) -> None:
        """The machine is no more."""
        self.gone = True
        self._end_all()

    def _end_all(self) -> None:
        for rank in list(self._ranks.values()):
            if rank.ended_s is None:
                rank.code = None
                rank.ended_s, rank.ended_at = self._loop.time(), self.clock.now()
                self._truth.ended(rank)

    # -- how ranks end ------------------------------------------------------------------------------------------------

    def _finish_later(self, rank: RealRank) -> None:
        """All ranks of its gang are there: it begins to get on."""
        self._loop.later(self._truth.left_s(rank), self._finish, rank)

    def _finish(self, rank: RealRank) -> None:
        if rank.ended_s is None and (rank.asked_s is None or self._truth.stubborn(rank)):
            self._over(rank, self._truth.exit_code(rank))

    def _ask(self, rank: RealRank) -> None:
        rank.asked_s = self._loop.time()
        if not self._truth.stubborn(rank):
            self._loop.later(self._chance.uniform(*SAVING_S), self._saved, rank)

    def _saved(self, rank: RealRank) -> None:
        if rank.ended_s is None:
            self._truth.saved(rank)
            self._over(rank, ASKED)

    def _over(self, rank: RealRank, code: int) -> None:
        if self.gone:
            return
        rank.code = code
        rank.ended_s, rank.ended_at = self._loop.time(), self.clock.now()
        self._journal.note(self.member, f"rank {rank.name} has ended: {code}")
        self._truth.ended(rank)
        if self.on_end is not None:
            self.on_end(rank)

    # -- the watchdog -------------------------------------------------------------------------------------------------

    def _left_s(self, rank: RealRank) -> float:
        """By the boot clock: until it must be gone."""
        renewed = self.disk.renewed
        if renewed is None or renewed[0] != self.boot_id:
            return 0.0
        return renewed[1] + float(rank.spec.stop_within_s or 0.0) - self.clock.boot()

    def _watch(self, rank: RealRank) -> None:
        """Look when its time may be over; once it has been asked, no renewal counts."""
        if rank.ended_s is not None or self.gone:
            return
        asks_in_s = self._left_s(rank) - rank.grace_s + min(0.5, rank.grace_s / 10)
        if asks_in_s > TICK_S:
            self._loop.later(self.clock.real_delay_s(asks_in_s) + TICK_S / 2, self._watch, rank)
            return
        self._journal.note(self.member, f"the watchdog ends {rank.name}")
        if rank.asked_s is None:
            self._ask(rank)
        self._loop.later(self.clock.real_delay_s(max(0.0, self._left_s(rank))), self._kill, rank)

    def _kill(self, rank: RealRank) -> None:
        if rank.ended_s is None and not self.gone:
            self._over(rank, KILLED)

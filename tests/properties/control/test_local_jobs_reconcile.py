"""Jobs that a cut-off site admits: none is lost, none runs twice, and the ledger adds up, whatever is cut, killed or said twice.

The agent's core and the dispatcher's records are the real ones; between them is a link that loses what it likes, and under them a disk and processes
that outlive both.
"""

import random
from collections import Counter, deque

import msgspec
import pytest

from federator.kernel.ids import IdSource
from federator.model.allotments import Allotment, AllotmentRule
from federator.model.events import LedgerEntry
from federator.model.jobs import JobSpec, JobStatus
from federator.model.rules import PolicySet
from federator.store.memory import MemoryStore
from federator.wire.jobfile import encode_spec
from federator.wire.link import Desired, desired_digest
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.state import LocalChange, Phase
from tests.support.dispatch import World as Dispatcher
from tests.support.dispatch import make_world
from tests.unit.agent.worlds import World as Agent
from tests.unit.agent.worlds import spec

ALLOTMENT = Allotment(
    policy="Allotment/here",
    queue="default",
    users=("ada",),
    gpu_h=1000.0,
    jobs=200,
    max_duration_s=36_000.0,
    max_priority=50,
    after_s=60.0,
    longest_s=864_000.0,
)
STEPS = 60


class Site:
    """An agent, its host, and the dispatcher behind a link that comes and goes."""

    def __init__(self, seed: int, dispatcher: Dispatcher) -> None:
        self.chance = random.Random(seed)
        self.dispatcher = dispatcher
        self.agent = Agent()
        self.agent.at = dispatcher.clock.now()
        self.ids = IdSource(dispatcher.clock, self.chance.getrandbits)
        self.linked = False
        self.accepted: dict[str, str] = {}
        """Jobs that somebody was told are admitted, by placement."""
        self.starts: Counter[str] = Counter()
        self.ran: dict[str, tuple[float, float | None, int]] = {}
        """Each process: when it began, when it ended, and its exit code."""
        self.coming: deque[ev.Event] = deque()
        self.busy = False
        self.collecting: set[str] = set()
        self.withheld: set[str] = set()
        self.generation = 0

    async def tell(self, *events: ev.Event) -> None:
        """Something happens at the site, and all that follows from it, in the order in which it comes; the agent may die at any of it."""
        self.coming.extend(events)
        if self.busy:
            return
        self.busy = True
        while self.coming:
            event = self.coming.popleft()
            instructions = self.agent.tell(event)
            dies_at = self.chance.randrange(len(instructions) + 1) if self.chance.random() < 0.05 else None
            for number, instruction in enumerate(instructions):
                if number == dies_at:
                    instructions = self._revived()
                    break
                await self._do(instruction)
            else:
                continue
            for instruction in instructions:
                await self._do(instruction)
        self.busy = False

    def _revived(self) -> list[do.Instruction]:
        """The agent dies, with all that it has not written, and comes back."""
        self.linked = False
        for each in (self.coming, self.collecting, self.withheld):
            each.clear()
        works = [change.work.job for change in self.agent.disk if isinstance(change, LocalChange)]
        self.agent.specs = {job.spec_hash: msgspec.json.decode(job.spec, type=JobSpec) for job in works}
        return self.agent.crash()

    async def die(self) -> None:
        for instruction in self._revived():
            await self._do(instruction)

    async def _do(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat list of cases
        match instruction:
            case do.Answer(placement, refusal):
                if not refusal and placement not in self.accepted:
                    self.accepted[placement] = self.agent.state.local[placement].job.job
            case do.Stage(record, _):
                await self.tell(ev.Staged(record.entry.placement, 29500))
            case do.StartRanks(record, _, _):
                placement = record.entry.placement
                self.starts[placement] += 1
                self.ran[placement] = (self.agent.at, None, 0)
                await self.tell(ev.RankStarted(placement, 0, self.agent.at))
            case do.FindRanks(record, _):
                await self._find(record.entry.placement)
            case do.SignalRanks(placement, _, _):
                await self.end(placement, 143)
            case do.Collect(record, _):
                self.collecting.add(record.entry.placement)
            case do.Withhold(placement):
                self.withheld.add(placement)
            case do.Release(placement):
                self.withheld.discard(placement)
            case _ if self.linked:
                await self._say(instruction)
            case _:
                pass

    async def _say(self, instruction: do.Instruction) -> None:
        """What is said arrives; the answer may be lost, with the link."""
        match instruction:
            case do.OfferJobs(jobs):
                intake = self.dispatcher.core.hub.local_jobs
                adopted = await intake.adopt("here", jobs)
                if self.chance.random() < 0.3:
                    assert await intake.adopt("here", jobs) == adopted
                if not self._cut():
                    await self.tell(ev.Adopted(adopted))
            case do.SendStatuses(reports):
                seq = await self.dispatcher.core.progress.absorb("here", reports)
                if not self._cut():
                    await self.tell(ev.Acknowledged(seq))
            case _:
                pass

    def _cut(self) -> bool:
        """Whether an answer is lost, with the link."""
        if self.linked and self.chance.random() < 0.3:
            self.linked = False
            self.coming.append(ev.LinkDown())
        return not self.linked

    async def _find(self, placement: str) -> None:
        if placement not in self.ran:
            await self.tell(ev.RankAbsent(placement, 0))
            return
        begun, ended, code = self.ran[placement]
        await self.tell(ev.RankStarted(placement, 0, begun))
        if ended is not None:
            await self.tell(ev.RankEnded(placement, 0, ended, code))

    async def end(self, placement: str, code: int) -> None:
        begun, ended, _ = self.ran[placement]
        if ended is None:
            self.ran[placement] = (begun, self.agent.at, code)
            await self.tell(ev.RankEnded(placement, 0, self.agent.at, code))

    async def submit(self) -> None:
        of = spec(gpus=self.chance.choice((1, 2)))
        job, placement = self.ids.new("job"), self.ids.new("pl")
        await self.tell(
            ev.LocalSubmitted(
                job=job,
                placement=placement,
                owner="ada",
                spec=of,
                text=encode_spec(of).decode(),
                at=self.agent.at,
            ),
        )

    async def connect(self) -> None:
        """A session, with all that is on its way before anything breaks."""
        self.linked = True
        store = self.dispatcher.core.records.store
        await self.tell(ev.LinkUp(store.incarnation, 1, address="10.0.0.5"))
        if self.linked:
            await self.tell(ev.Allotted((ALLOTMENT,)))
            await self.desired()

    async def desired(self) -> None:
        held = self.dispatcher.core.hub.desired.held("here").values()
        entries = tuple(self.dispatcher.core.hub.desired.entry(each, "here", ("owner",)) for each in held)
        self.generation = self.dispatcher.core.hub.desired.next_generation()
        message = Desired(self.generation, entries, desired_digest(entries), whole=True, term=1)
        await self.tell(ev.DesiredChanged(message))

    async def disconnect(self) -> None:
        self.linked = False
        await self.tell(ev.LinkDown())

    async def collect(self) -> None:
        """Logs and outputs arrive of what the dispatcher knows."""
        for placement in sorted(self.collecting - self.withheld) if self.linked else ():
            self.collecting.discard(placement)
            await self.tell(ev.Collected(placement))

    async def advance(self, seconds: float) -> None:
        self.dispatcher.clock.advance(seconds)
        self.agent.boot_s += seconds
        self.agent.at = self.dispatcher.clock.now()
        await self.tell(ev.Tick())

    async def restart_dispatcher(self) -> None:
        await self.disconnect()
        store = self.dispatcher.core.records.store
        assert isinstance(store, MemoryStore)
        self.dispatcher = await restarted(store, self.dispatcher)

    async def step(self) -> None:
        """Something, at random."""
        what = self.chance.choice(
            ("submit",) * 4 + ("end",) * 4 + ("link",) * 2 + ("die", "cancel", "restart", "time", "time")
        )
        running = [name for name, (_, ended, _) in self.ran.items() if ended is None]
        if what == "submit":
            await self.advance(0.0 if self.linked else 61.0)
            await self.submit()
        elif what == "end" and running:
            await self.end(self.chance.choice(running), self.chance.choice((0, 0, 1)))
        elif what == "link":
            await (self.disconnect() if self.linked else self.connect())
            if not self.linked:
                await self.advance(61.0)
        elif what == "die":
            await self.die()
        elif what == "cancel" and self.agent.state.local:
            await self.tell(ev.LocalCancelled(self.chance.choice(sorted(self.agent.state.local)), "ada"))
        elif what == "restart":
            await self.restart_dispatcher()
        else:
            await self.advance(self.chance.choice((10.0, 70.0, 600.0)))
        await self.collect()

    async def settle(self) -> None:
        """All that runs ends, and the link holds long enough."""
        for placement, (_, ended, _) in sorted(self.ran.items()):
            if ended is None:
                await self.end(placement, 0)
        self.chance.random = lambda: 1.0  # type: ignore[method-assign]
        for _ in range(8):
            await self.advance(70.0)
            if not self.linked:
                await self.disconnect()
                await self.connect()
            await self.tell(ev.ReportDue())
            await self.desired()
            for placement in [name for name, (_, ended, _) in self.ran.items() if ended is None]:
                await self.end(placement, 0)
            await self.collect()


async def restarted(store: MemoryStore, former: Dispatcher) -> Dispatcher:
    again = await make_world(store=store, clock=former.clock)
    again.core.hub.start(term=1)
    return again


async def ledger(dispatcher: Dispatcher) -> list[LedgerEntry]:
    page = await dispatcher.core.records.store.range("ledger/", limit=5000)
    return [msgspec.json.decode(item.value, type=LedgerEntry) for item in page.items]


@pytest.mark.parametrize("seed", range(60))
async def test_no_job_is_lost_none_runs_twice_and_the_ledger_adds_up(seed: int) -> None:
    dispatcher = await make_world()
    await dispatcher.add_site("here", nodes=2)
    rule = AllotmentRule("Allotment/here", ("here",), ALLOTMENT)
    await dispatcher.put(PolicySet(version=1, author="root", reason="test", applied_at=0.0, rules=(rule,)))
    dispatcher.core.hub.start(term=1)
    site = Site(seed, dispatcher)
    await site.connect()
    await site.disconnect()
    await site.advance(61.0)
    for _ in range(STEPS):
        await site.step()
    await site.settle()
    records = site.dispatcher.core.records
    assert site.accepted, "the run says nothing"
    assert set(site.accepted.values()) <= set(records.jobs), "a job is lost"
    assert set(site.starts.values()) == {1}, "a placement ran twice"
    assert len(records.placements) == len(records.jobs), "a job has a second placement"
    for placement, (begun, ended, code) in site.ran.items():
        assert ended is not None
        row, job = records.placements[placement], records.jobs[records.placements[placement].job]
        said = (row.started_at, row.ended_at)
        assert said == (begun, ended)
        assert job.gpu_s == pytest.approx(row.gpus * (ended - begun))
        expected = {0: JobStatus.SUCCEEDED, 1: JobStatus.FAILED, 143: JobStatus.CANCELLED}[code]
        assert job.status is expected, (job, row)
    used = sum(line.gpu_s for line in await ledger(site.dispatcher))
    assert used == pytest.approx(sum(job.gpu_s for job in records.jobs.values()))
    left = [record for record in site.agent.state.records.values() if record.phase is not Phase.ENDED]
    assert not left
    assert all(work.adopted for work in site.agent.state.local.values())

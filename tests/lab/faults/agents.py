"""An agent as a process: the production machine with a disk, a link and hands, all of which may be gone after any step.

What `federator_agent.loop`, `link` and `hands` do with files, sockets and processes is done here with the simulated ones, in the same order: what the machine wants
durable is on disk before anything that follows from it, and after each instruction the agent may be dead.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from federator.kernel.errors import Permanent
from federator.model.allotments import LocalJob
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.model.sites import SiteReport
from federator.wire import link
from federator.wire.needs import DATA, OUTPUTS
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.lent_capacity import Site
from federator_agent.core.machine import next_wake_boot_s, step
from federator_agent.core.state import (
    Change,
    LocalChange,
    Phase,
    PlacementRecord,
    RecordChange,
    State,
    restore,
    whole,
)
from federator_agent.staging_errors import StagingError
from tests.lab.faults.data import Data
from tests.lab.faults.dispatchers import Dispatcher
from tests.lab.faults.fault_profile import Trouble
from tests.lab.faults.hosts import Host
from tests.lab.faults.links import Bulk, Link
from tests.lab.faults.nonsense import all_free, nonsense
from tests.lab.faults.processes import Process, unwind
from tests.lab.faults.ranks import RealRank
from tests.lab.faults.scene import Scene

REPORT_EVERY_S = 60.0
ABILITIES = (DATA, OUTPUTS)
PORT = 29_500
COLLECTING_S, WITHHELD_LOOK_S = 0.5, 10.0


class AgentLife:
    """One process of an agent, from its start to its death."""

    def __init__(
        self,
        host: Host,
        process: Process,
        scene: Scene,
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        self.host = host
        self.process = process
        self._profile = scene.profile
        self._truth = scene.truth
        self._chance = scene.chance(process.name)
        self._clock = host.clock
        self._state = self._first_state()
        self._events: list[ev.Event] = []
        self._turning = False
        self._alarm: asyncio.TimerHandle | None = None
        self.link = Link(host, process, scene, dispatchers, self)
        self.asked: dict[str, asyncio.Future[str]] = {}
        """What people at the host wait to be told, by placement."""
        self._withheld: set[str] = set()
        self._staging: dict[str, asyncio.Task[None]] = {}
        self._data = Data(host, scene, self.link.server, self.link.ticket) if scene.has_data else None

    def _first_state(self) -> State:
        """Before anything is remembered."""
        site = Site(name=self.host.plan.site, pools=(self.host.pool,))
        return State(site=site, self_fencing=True, abilities=ABILITIES)

    def begin(self) -> None:
        """Remember, look at what is left of the life before, and dial. Runs in the process."""
        self.host.on_end = self._rank_ended
        state = restore(self._state, self.host.disk.read())
        hashes = {r.entry.spec_hash for r in state.records.values() if r.phase is not Phase.ENDED}
        for work in state.local.values():
            self._keep_spec(work.job)
        specs = {name: self.host.disk.specs[name] for name in sorted(hashes & self.host.disk.specs.keys())}
        self._state = msgspec.structs.replace(state, specs=specs)
        renewed = self.host.disk.renewed
        renewed_s = renewed[1] if renewed is not None and renewed[0] == self.host.boot_id else None
        self._handle([ev.Awake(self.host.work_boot_id, renewed_s)])
        self.process.spawn(self.link.run(), "link")
        self.process.spawn(self._reports(), "reports")

    def die(self) -> None:
        """Its process is dead: the other end of its link notices, and files that it had locked are free."""
        self.link.hang_up()
        for task in self._staging.values():
            unwind(task)

    # -- the machine --------------------------------------------------------------------------------------------------

    def tell(self, *events: ev.Event) -> None:
        """Something happened."""
        self._events += events
        if not self._turning:
            self._turning = True
            self.process.call(self._turn)

    def _turn(self) -> None:
        self._turning = False
        events, self._events = self._events, []
        self._handle(events)

    def _handle(self, events: list[ev.Event]) -> None:
        now = ev.Now(self._clock.now(), self._clock.boot())
        self._state, instructions = step(self._state, events, now)
        for instruction in instructions:
            self.process.comes_to(type(instruction).__name__)
            if self.process.stumbles():
                return
            self._carry_out(instruction)
        if self.host.disk.long:
            self.host.disk.rewrite(whole(self._state))
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        wake_boot_s = next_wake_boot_s(self._state)
        if wake_boot_s is not None:
            delay_s = self._clock.true_delay_s(wake_boot_s) + 1e-4
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self.tell, ev.Tick())

    async def _reports(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.tell(ev.ReportDue())

    def _carry_out(self, instruction: do.Instruction) -> None:
        """What is said and written; the rest is the hands'."""
        match instruction:
            case do.Persist(changes):
                self.host.disk.append(changes)
                self._note(changes)
            case do.KeepRenewal(boot_s):
                self.host.disk.renewed = (self.host.boot_id, boot_s)
            case do.SendStatuses(reports):
                self.link.say(link.Statuses(reports))
            case do.SendReport(report):
                self.link.say(self._report(report))
            case do.SendDesiredAck(generation, digest):
                self.link.say(link.DesiredAck(generation, digest))
            case do.OfferJobs(jobs):
                self.link.say(link.LocalJobs(jobs))
            case do.Answer(placement, refusal):
                self._answer(placement, refusal)
            case _:
                self._do(instruction)

    def _do(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat list of cases
        match instruction:
            case do.FetchSpec(spec_hash):
                self._fetch(spec_hash)
            case do.FindPort(placement):
                self.tell(ev.PortFound(placement, PORT))
            case do.Stage(record):
                task = asyncio.get_running_loop().create_task(self._stage(record))
                self._staging[record.entry.placement] = task
            case do.StopStaging(placement):
                self._stop_staging(placement)
            case do.StartRanks(record, spec, ranks):
                self._start(record, spec, ranks)
            case do.FindRanks(record, ranks):
                for rank in ranks:
                    self._find(record.entry.placement, rank)
            case do.SignalRanks(placement, ranks, signal):
                self._signal(placement, ranks, signal)
            case do.Withhold(placement):
                self._withheld.add(placement)
            case do.Release(placement):
                self._withheld.discard(placement)
            case do.Collect(record):
                self.process.spawn(self._collect(record), "collect")
            case do.Discard(placement):
                self.host.discard(placement)
                if self._data is not None:
                    self._data.discard(placement)

    def _note(self, changes: Sequence[Change]) -> None:
        """What this member's disk says that it has admitted, that it holds, and that it ends."""
        for work in (change.work for change in changes if isinstance(change, LocalChange)):
            self._truth.admitted(work.job, self.host.member)
        for record in (change.record for change in changes if isinstance(change, RecordChange)):
            if record.slots:
                self._truth.seated.add((record.entry.placement, self.host.member))
            if record.stop is not None:
                self._truth.means_to_end(record.entry.placement, self.host.member)

    def _answer(self, placement: str, refusal: str) -> None:
        """Somebody at the host is told; the spec is kept beside the job."""
        work = self._state.local.get(placement)
        if work is not None and not refusal:
            self._keep_spec(work.job)
        asked = self.asked.pop(placement, None)
        if asked is not None and not asked.done():
            asked.set_result(refusal)

    def _keep_spec(self, job: LocalJob) -> None:
        self.host.disk.specs[job.spec_hash] = msgspec.json.decode(job.spec, type=JobSpec)

    def _stop_staging(self, placement: str) -> None:
        task = self._staging.pop(placement, None)
        if task is not None:
            task.cancel()
        self.tell(ev.StagingStopped(placement))

    def _report(self, report: SiteReport) -> link.Report:
        """Now and then it says that all is free, whatever runs."""
        if self._profile.draw(self._chance, self.host.member, Trouble.LIES):
            report = all_free(report, self.host.pool)
        return link.Report(report, self._clock.boot())

    def say_nonsense(self) -> None:
        """A broken agent: a message that nobody can have meant, as the world and not as this process."""
        if self._state.pools:
            self.link.say_text(self._chance.choice(nonsense(self._state, self.host.pool, self._clock.now())))

    # -- the hands ----------------------------------------------------------------------------------------------------

    def _fetch(self, spec_hash: str) -> None:
        spec = self.host.disk.specs.get(spec_hash)
        if spec is not None:
            self.tell(ev.SpecArrived(spec_hash, spec))
        else:
            self.process.spawn(self._get_spec(spec_hash), "spec")

    async def _get_spec(self, spec_hash: str) -> None:
        try:
            data = await self.link.ask(lambda it: it.spec(spec_hash))
        except Permanent as error:
            self.tell(ev.SpecUnknown(spec_hash, error.describe()))
            return
        spec = msgspec.json.decode(data, type=JobSpec)
        self.host.disk.specs[spec_hash] = spec
        self.tell(ev.SpecArrived(spec_hash, spec))

    async def _stage(self, record: PlacementRecord) -> None:
        placement = record.entry.placement
        try:
            hosts = await self._prepared(record, self._state.spec(record))
        except StagingError as error:
            self._staging.pop(placement, None)
            self.tell(ev.StagingFailed(placement, error.cause, error.message, error.exit_code, error.status))
        else:
            self._staging.pop(placement, None)
            self.tell(ev.Staged(placement, PORT, hosts))

    async def _prepared(self, record: PlacementRecord, spec: JobSpec) -> dict[int, str]:
        """Have all there that it needs; where its ranks are, if somebody else has chosen. Raises `StagingError`."""
        await asyncio.sleep(self.host.plan.staging_s * self._chance.uniform(0.5, 1.5))
        if self._data is not None:
            await self._data.bring(record, spec)
        if self._profile.draw(self._chance, self.host.member, Trouble.STAGING_FAILS):
            raise StagingError(Cause.STAGING, "the disk does not take it")
        return {}

    def _start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        placement = record.entry.placement
        if self._data is not None:
            self._data.read(record, spec)
        for slot in record.slots:
            if slot.rank not in ranks:
                continue
            began = self.host.start(record, spec, slot)
            if self.process.stumbles():
                return
            if began is None:
                detail = "it could not be started: its directory has been used"
                self.tell(ev.RankEnded(placement, slot.rank, self._clock.now(), None, detail))
                continue
            self.tell(ev.RankStarted(placement, slot.rank, began.began_at))
            if began.ended_s is not None:
                self.tell(ev.RankEnded(placement, slot.rank, began.ended_at, began.code))

    def _find(self, placement: str, rank: int) -> None:
        found = self.host.rank(placement, rank)
        if found is None:
            self.tell(ev.RankAbsent(placement, rank))
            return
        if found.ended_s is None or found.code is not None:
            self.tell(ev.RankStarted(placement, rank, found.began_at))
        if found.ended_s is not None:
            self.tell(ev.RankEnded(placement, rank, found.ended_at, found.code))

    def _signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        record = self._state.records.get(placement)
        stop = record.stop if record is not None else None
        for rank in ranks:
            real = self.host.rank(placement, rank)
            cut_off = real is not None and real.spec.stop_within_s
            if stop is not None and stop.cause is Cause.STOPPED and real is not None and not cut_off:
                self._truth.asked(real)
            self._send(placement, rank, signal)

    def _send(self, placement: str, rank: int, signal: str) -> None:
        self.host.signal(placement, rank, signal)

    def _rank_ended(self, rank: RealRank) -> None:
        """Its process is watched by this one."""
        assert rank.ended_s is not None
        event = ev.RankEnded(rank.placement, rank.rank, rank.ended_at, rank.code)
        if self.process.alive:
            self.process.call(self.tell, event)

    async def _collect(self, record: PlacementRecord) -> None:
        """Logs and outputs go home, however long nobody is there."""
        await asyncio.sleep(COLLECTING_S)
        while record.entry.placement in self._withheld:
            await asyncio.sleep(WITHHELD_LOOK_S)
        if self._data is None:
            await self.link.ask(Bulk.take)
        detail = "" if self._data is None else await self._data.collect(record, self._state.spec(record))
        self.tell(ev.Collected(record.entry.placement, detail))

    # -- the link -----------------------------------------------------------------------------------------------------

    def acceptable(self, incarnation: str, term: int) -> bool:
        """Not a store that was left, and within the present one no leader of before."""
        state = self._state
        return incarnation not in state.left and (incarnation != state.incarnation or term >= state.term)

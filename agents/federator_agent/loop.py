"""The only part that sleeps: tells the core what happened, and carries out what it says.

Everything runs in one event loop; what takes long (staging, collecting, fetching) is a task that reports back by an event. What
the core wants persisted is on disk before anything that follows from it is done.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from federator.kernel.clock import Clock, parse_clock
from federator.kernel.route import Way
from federator.model.jobs import JobSpec
from federator.model.sites import GpuUse, SiteReport
from federator.wire.link import (
    GPU_USE,
    LINK_LIMITS,
    LINK_STATE,
    LOCAL_JOBS,
    MAX_STATUSES,
    SAMPLES,
    UNCHANGED,
    Adopted,
    Allotments,
    DesiredAck,
    Dial,
    Heard,
    LocalJobs,
    Report,
    Sample,
    Samples,
    StatusAck,
    Statuses,
    Unchanged,
    Welcome,
)
from federator_agent import gpu_probe, metadata
from federator_agent.bulk import Bulk
from federator_agent.config import AgentSettings
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.capacity_report import unchanged
from federator_agent.core.machine import next_wake_boot_s, step
from federator_agent.core.state import Change, Phase, PlacementRecord, RecordChange, State, restore, whole
from federator_agent.data.carrier import Carrier
from federator_agent.executor import InstructionExecutor
from federator_agent.home import place
from federator_agent.keys import Keys
from federator_agent.link import Link, Said
from federator_agent.link_use import RENEW_WITHIN_S, LinkUse
from federator_agent.local import traces
from federator_agent.local.devices import Devices
from federator_agent.local.gpu_tests import GpuTests
from federator_agent.local.watchdog import read_renewal
from federator_agent.runtime import Runtime, Surroundings, Tasks
from federator_agent.runtimes import abilities, keeping_apart, kind, runtime
from federator_agent.spool import Identity, Spool
from federator_agent.tunnels import Tunnels
from federator_agent.usage import UsageTotals

if TYPE_CHECKING:
    from federator_agent.local_socket import LocalSocket

LOOK_S = 1.0
"""Longest real sleep: so soon is a pause seen."""
MOST_EVENTS = 500
"""Events that are taken up together, at most: the clock is looked at in between."""
BREATH = 5.0
"""Between two looks at what work uses there is at least this many times what the last one took."""
USE_ANYWAY_S = 60.0
"""Real seconds after which the use of GPUs is told though it is as it was."""
LINK_EVERY_S = 60.0
"""Clock seconds from one word about the link to the next, at least."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
log = logging.getLogger("federator_agent")


class Agent:
    """An agent at work. One task runs `serve`; everything else is told through `tell`."""

    def __init__(self, settings: AgentSettings, identity: Identity, spool: Spool, way: Way) -> None:
        self._settings = settings
        self._identity = identity
        self._spool = spool
        self._clock: Clock = parse_clock(settings.clock)
        self._kind = kind(settings)
        self._confinement = keeping_apart(settings)
        told = self._confinement if self._kind.name == "local" else None
        self._gpu_tests = None
        if settings.gpu_test is not None:
            given, apart = settings.environment, self._confinement
            seen = gpu_probe.visible(settings.gpu_probe)
            self._gpu_tests = GpuTests(settings.gpu_test, settings.state_dir, given, apart, self._clock, seen)
        self._devices = Devices(
            settings.site,
            settings.state_dir,
            watch=settings.watch_gpus,
            tests=self._gpu_tests,
            library=gpu_probe.library(settings.gpu_probe),
        )
        self._told_use: tuple[tuple[GpuUse, ...], float] = (), 0.0
        self.state = State(
            site=self._devices.site,
            ailing=self._devices.ailing,
            outlives=self._kind.outlives,
            runtime=self._kind.name if self._kind.outlives else "",
            abilities=abilities(self._settings),
            isolation=told.mode if told else "",
            trusts=told.isolation.trusts if told and not told.apart else (),
        )
        self._events: asyncio.Queue[ev.Event] = asyncio.Queue()
        self._report_at_boot_s = 0.0
        self._report_every(settings.report_every_s or 5.0)
        self._tasks = Tasks()
        home, name = place(settings.state_dir), self._kind.name
        keys = Keys(spool.directory, settings.host_key)
        self.link_use = LinkUse(self._clock, settings.link)
        self._told_link_boot_s = -LINK_EVERY_S
        self._told_report: SiteReport | None = None
        """In this session."""
        self.link = Link(identity, keys, way, traces.boot_id(), self, self.link_use, home, name)
        self._socket: LocalSocket | None = None
        if settings.local_submit is not None:
            from federator_agent import local_socket  # noqa: PLC0415 - it reads job files

            self._socket = local_socket.LocalSocket(
                settings.local_submit, self._clock, lambda: self.state, self.tell, spool.placements
            )
        self.executor: InstructionExecutor
        self._tunnels: Tunnels

    # What the link tells -------------------------------------------------------------------------------------------

    def boot_s(self) -> float:
        """The boot clock now."""
        return self._clock.boot()

    @property
    def connected(self) -> bool:
        """Whether a session with a dispatcher stands."""
        return self.link.stands

    def link_up(self, welcome: Welcome, proved_boot_s: float) -> None:
        """A session stands."""
        self._report_every(self._settings.report_every_s or welcome.report_every_s)
        self._told_report = None
        self.executor.logs.ask_again()
        address = self._settings.address or self.link.local_address
        self.tell(ev.LinkUp(welcome.incarnation, welcome.term, proved_boot_s, address))

    def link_down(self) -> None:
        """It is over."""
        self.tell(ev.LinkDown())

    def said(self, message: Said) -> None:
        """The dispatcher said something. Names that could lead out of the state directory are not acted on."""
        if isinstance(message, StatusAck):
            self.tell(ev.Acknowledged(message.seq))
            return
        if isinstance(message, Heard):
            self.link_use.round_trip_s = max(0.0, self._clock.boot() - message.sent_boot_s)
            self.tell(ev.Renewed(message.sent_boot_s))
            return
        if isinstance(message, Allotments):
            self.tell(ev.Allotted(message.allotments))
            return
        if isinstance(message, Adopted):
            self.tell(ev.Adopted(message.placements))
            return
        if isinstance(message, Dial):
            self._tunnels.open(message)
            return
        names = {name for entry in message.entries for name in (entry.placement, entry.job, entry.spec_hash)}
        if bad := [name for name in names if not _SAFE.fullmatch(name)]:
            log.error("a desired set with the impossible name %r is ignored", bad[0])
            return
        self.tell(ev.DesiredChanged(message))

    def acceptable(self, incarnation: str, term: int | None) -> bool:
        """Not a store that was left, and within the present one no older leader."""
        state = self.state
        if incarnation in state.left:
            return False
        return incarnation != state.incarnation or term is None or term >= state.term

    def _report_every(self, every_s: float) -> None:
        """Take up a pace. Every report asks for a renewal, so a slow one does not go together with `stop_within`."""
        self._report_every_s = every_s
        fences = self._kind.self_fencing and every_s <= RENEW_WITHIN_S
        self.state = msgspec.structs.replace(self.state, self_fencing=fences)

    def _jobs_are_apart(self) -> bool:
        """Whether jobs run with other rights than the agent has."""
        if self._settings.slurm is not None:
            return self._settings.slurm.maps
        return self._kind.name == "local" and self._confinement.apart

    def job_of(self, placement: str) -> str:
        """Whose a placement is; empty: of none that is known here."""
        record = self.state.records.get(placement)
        return record.entry.job if record else ""

    def _running(self, placement: str, rank: int) -> tuple[PlacementRecord, JobSpec] | None:
        """What a rank that runs here is of."""
        record = self.state.records.get(placement)
        if record is None or rank not in record.live_ranks or record.phase is not Phase.RUNNING:
            return None
        return record, self.state.spec(record)

    def _over(self, placement: str, rank: int) -> bool:
        """Whether a rank has ended."""
        record = self.state.records.get(placement)
        return record is None or rank not in record.live_ranks

    # The loop ------------------------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Something happened."""
        self._events.put_nowait(event)

    async def serve(self) -> None:
        """Run until cancelled. What runs here goes on without the agent."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            bulk = Bulk(self.link, http, self.link_use)
            around = Surroundings(
                site=self._identity.site,
                environment=self._settings.environment,
                clock=self._clock,
                spool=self._spool,
                bulk=bulk,
                carrier=Carrier(
                    self._spool.directory,
                    self._clock,
                    self._settings.inputs_cache_bytes,
                    self._settings.data_addresses,
                    self._settings.data_networks,
                    apart=self._jobs_are_apart(),
                    bulk=bulk,
                    link=self.link_use,
                ),
                tasks=self._tasks,
                tell=self.tell,
                images=self._settings.images,
                visible=gpu_probe.visible(self._settings.gpu_probe),
                secrets=self._settings.secrets,
                confinement=self._confinement,
                gang_key=self._spool.gang_key(),
            )
            work = runtime(self._settings, around)
            self.executor = InstructionExecutor(around, work)
            self._tunnels = Tunnels(around, work, self._running, self._over)
            try:
                self._begin()
                self._tasks.spawn(self._devices.watch(self.tell))
                if self._gpu_tests is not None:
                    self._tasks.spawn(self._gpu_tests.run(self._devices.watched, self._gpus_in_use))
                self._tasks.spawn(self._sample(work))
                if self._settings.notices is not None:
                    self._tasks.spawn(metadata.watch(self._settings.notices, self.tell))
                if self._socket is not None:
                    self._tasks.spawn(self._socket.serve())
                self._tasks.spawn(self.link.run(http))
                await self._turn_for_ever()
            finally:
                await self.link.say_goodbye()
                await self.executor.let_go()
                self._spool.close()

    def _gpus_in_use(self) -> set[int]:
        """The GPUs of this host that work of ours has."""
        open_ = (record for record in self.state.records.values() if record.phase is not Phase.ENDED)
        return {number for record in open_ for slot in record.slots for number in slot.gpus}

    async def _sample(self, work: Runtime) -> None:
        """Tell what runs here really uses, for ever. Looking at a cluster takes its time; between two looks there is several times as much."""
        totals, took_s = UsageTotals(), 0.0
        then_s, then_real_s = self._clock.boot(), time.monotonic()
        while True:
            pause_s = min(self._kind.sample_s, 2 * self._clock.real_delay_s(self._report_every_s))
            await asyncio.sleep(max(pause_s, BREATH * took_s))
            now_s, now_real_s = self._clock.boot(), time.monotonic()
            records = self.state.records.values()
            running = [record for record in records if record.phase in (Phase.RUNNING, Phase.STOPPING)]
            readings = await work.usage(running, self._devices.gpus)
            took_s = time.monotonic() - now_real_s
            found = totals.add(
                readings,
                running={record.entry.placement for record in running},
                passed_s=now_s - then_s,
                real_s=now_real_s - then_real_s,
                rates=self._settings.electricity.at(self._clock.now()),
            )
            then_s, then_real_s = now_s, now_real_s
            if not self.link_use.may_tell:
                continue
            samples = [Sample(name, used) for name, used in found.items() if SAMPLES in self.link.takes]
            for begin in range(0, len(samples), MAX_STATUSES):
                self.link.say(Samples(tuple(samples[begin : begin + MAX_STATUSES])))
            self._tell_gpu_use(running, now_real_s)
            self._tell_link_state(now_s)

    def _tell_gpu_use(self, running: Iterable[PlacementRecord], now_s: float) -> None:
        """Tell how busy each GPU is, if that has changed, and now and then if it has not."""
        held: dict[int, list[str]] = {}
        for record in running:
            for number in {number for slot in record.slots for number in slot.gpus}:
                held.setdefault(number, []).append(record.entry.placement)
        use = self._devices.use(held)
        told, told_s = self._told_use
        if GPU_USE in self.link.takes and use and (use != told or now_s - told_s >= USE_ANYWAY_S):
            self._told_use = use, now_s
            self.link.say(Samples((), use))

    def _tell_link_state(self, now_s: float) -> None:
        """Tell what the link was used for, now and then."""
        if LINK_STATE in self.link.takes and now_s - self._told_link_boot_s >= LINK_EVERY_S:
            self._told_link_boot_s = now_s
            self.link.say(Samples((), link=self.link_use.state(limits=LINK_LIMITS in self.link.takes)))

    def _begin(self) -> None:
        """Remember, and look at what is left of the life before."""
        state = restore(self.state, self._spool.load())
        hashes = {
            record.entry.spec_hash for record in state.records.values() if record.phase is not Phase.ENDED
        }
        for work in state.local.values():
            if work.job.spec_hash in hashes:
                self._spool.keep_spec(work.job.spec_hash, work.job.spec.encode())
        specs = {name: spec for name in hashes if (spec := self._spool.spec(name))}
        self.state = msgspec.structs.replace(state, specs=specs, paused=self._spool.paused)
        self._tidy()
        self.executor.begin(list(state.records.values()))
        renewed_s = read_renewal(self._spool.renewals)
        if renewed_s is not None:
            renewed_s /= self._clock.real_delay_s(1.0) or 1.0
        self.handle(ev.Awake(self._kind.boot_id, renewed_s))

    async def _turn_for_ever(self) -> None:
        while True:
            events = await self.next_events()
            self.tick()
            if events:
                self.handle(*events)

    async def next_events(self) -> list[ev.Event]:
        """All that has happened since, once anything has; none when it is time to look at the clock.

        They share one wait for the disk: while that lasts, the next ones gather.
        """
        if not self._events.empty():
            return [self._events.get_nowait() for _ in range(min(self._events.qsize(), MOST_EVENTS))]
        wake = min(self._report_at_boot_s, next_wake_boot_s(self.state) or self._report_at_boot_s)
        sleep_s = min(LOOK_S, self._clock.real_delay_s(wake - self._clock.boot()))
        try:
            async with asyncio.timeout(max(sleep_s, 0.001)):
                return [await self._events.get()]
        except TimeoutError:
            return []

    def tick(self) -> None:
        """What is due by time, and the owner's pause, which is a file and announces nothing."""
        if self._spool.paused != self.state.paused:
            self.handle(ev.Paused(self._spool.paused))
        if self._clock.boot() >= self._report_at_boot_s:
            self._report_at_boot_s = self._clock.boot() + self.link_use.pace_s(self._report_every_s)
            self.handle(ev.ReportDue())
            self.executor.logs.drop_oldest(self._collecting())
        wake = next_wake_boot_s(self.state)
        if wake is not None and wake <= self._clock.boot():
            self.handle(ev.Tick())

    def handle(self, *events: ev.Event) -> None:
        """One step. An event that the core fails at is dropped whole: the state is as it was, and other work goes on."""
        now = ev.Now(self._clock.now(), self._clock.boot())
        try:
            self.state, instructions = step(self.state, events, now)
        except Exception:
            if len(events) > 1:
                for event in events:
                    self.handle(event)
                return
            log.exception("the core failed at %s", type(events[0]).__name__)
            return
        for instruction in instructions:
            self._carry_out(instruction)
        if self._spool.long:
            self._spool.rewrite(whole(self.state))
            self._tidy()

    def _carry_out(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.Persist(changes):
                self._spool.append(changes)
                _note_ends(changes)
            case do.SendStatuses(reports):
                self.link.say(Statuses(reports))
            case do.SendReport(report):
                self._report(report)
            case do.SendDesiredAck(generation, digest):
                self.link.say(DesiredAck(generation, digest))
            case do.OfferJobs(jobs):
                if LOCAL_JOBS in self.link.takes:
                    self.link.say(LocalJobs(jobs))
            case do.Answer(placement, refusal):
                self._answer(placement, refusal)
            case _:
                self.executor.carry_out(instruction)

    def _report(self, report: SiteReport) -> None:
        """Say it whole, or only that the last one still holds."""
        if UNCHANGED in self.link.takes and unchanged(self._told_report, report):
            self.link.say(Unchanged(self._clock.boot()))
            return
        self._told_report = report
        self.link.say(Report(report, self._clock.boot()))

    def _answer(self, placement: str, refusal: str) -> None:
        """Say what was decided of a job of the agent's own; its spec stays beside it, as that of any other."""
        work = self.state.local.get(placement)
        if work is not None and not refusal:
            self._spool.keep_spec(work.job.spec_hash, work.job.spec.encode())
        if self._socket is not None:
            self._socket.answered(placement, refusal)

    def _collecting(self) -> list[Path]:
        """Directories of what has ended and whose logs are still on their way."""
        records = self.state.records.items()
        return [self._spool.placements / name for name, record in records if record.phase is Phase.COLLECTING]

    def _tidy(self) -> None:
        """Drop what no placement needs: specs, and checkpoints that nobody came back to."""
        entries = [record.entry for record in self.state.records.values()] + list(self.state.desired.values())
        self._spool.drop_specs({entry.spec_hash for entry in entries})
        self._spool.drop_checkpoints({entry.job for entry in entries})


def _note_ends(changes: tuple[Change, ...]) -> None:
    """A line for each placement that has just ended."""
    for change in changes:
        if isinstance(change, RecordChange) and change.record.verdict and not change.record.acknowledged:
            verdict = change.record.verdict
            log.info(
                "%s is %s (%s) %s",
                change.record.entry.placement,
                verdict.status,
                verdict.cause,
                verdict.detail,
            )

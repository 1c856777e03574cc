"""A simulated site: the production machine of the agent, with hands that start nothing.

What the machine tells it to do is done on paper: staging takes as long as the world says, ranks run as long as their job has left, a signal is
heeded after a moment. It speaks with the hub over a pipe that may take its time: in the records that messages are, for both ends are in one process and nobody changes
a record, or as they go over the wire, encoded and decoded, which comes to the same schedule.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator import __version__
from federator.hub import DirectPipe, Pipe
from federator.kernel.clock import Clock
from federator.model.jobs import JobSpec
from federator.model.placements import PlacementReport
from federator.model.sites import SiteReport
from federator.simulation.work import WorkDone
from federator.wire import link
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.lent_capacity import Site
from federator_agent.core.machine import next_wake_boot_s, step
from federator_agent.core.state import PlacementRecord, State

SAVING_S = 5.0
"""A rank that is asked to end has saved itself after so long, or is killed when its grace is shorter."""
STOPPED, KILLED = 143, 137
"""Exit codes of a rank that was asked to end, and of one that was killed."""
PORT = 29_500
TIMED = (ev.LinkUp, ev.DesiredChanged, ev.SettingUp, ev.RankStarted, ev.RankEnded, ev.Tick)
"""After these the machine may want its next tick sooner than before."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What a site is like, beyond what it has: seconds that a message takes each way, and that staging takes."""

    latency_s: float = 0.0
    staging_s: float = 0.0
    report_every_s: float = 3600.0


class _Way:
    """A link to an agent in this process, from the hub's end. What is said arrives `latency_s` later, in order."""

    def __init__(self, hear: Callable[[link.Down], None], latency_s: float) -> None:
        self._hear = hear
        self._latency_s = latency_s
        self._loop = asyncio.get_running_loop()
        self._up: asyncio.Queue[str | link.Up | None] = asyncio.Queue()
        self.closed = False

    async def receive(self) -> str | link.Up | None:
        """The agent's next message; None once the link is gone."""
        return None if self.closed else await self._up.get()

    async def send(self, text: str) -> None:
        """To the agent. Raises ConnectionError once the link is gone."""
        self.deliver(link.decode_down(text))

    def deliver(self, message: link.Down) -> None:
        """To the agent. Raises ConnectionError once the link is gone."""
        if self.closed:
            raise ConnectionError("the link is gone")
        self._later(self._hear, message)

    async def close(self) -> None:
        """End it."""
        self.cut()

    def say(self, message: link.Up) -> None:
        """To the hub, as the agent."""
        if not self.closed:
            self._later(self._up.put_nowait, message)

    def cut(self) -> None:
        """The link breaks, for both."""
        if not self.closed:
            self.closed = True
            self._up.put_nowait(None)

    def _later(self, deliver: Callable[[Any], None], message: object) -> None:
        if self._latency_s:
            self._loop.call_later(self._latency_s, deliver, message)
        else:
            self._loop.call_soon(deliver, message)


class RecordPipe(_Way, DirectPipe):
    """Messages go as the records that they are."""


class TextPipe(_Way):
    """Messages go as over the wire: encoded and decoded."""

    def say(self, message: link.Up) -> None:
        """To the hub, as the agent."""
        if not self.closed:
            self._later(self._up.put_nowait, link.encode(message).decode())


class SimulatedAgent:
    """One member: its machine, its link, and the ranks that it believes to run."""

    def __init__(  # noqa: PLR0913 - what it is made of, by name
        self,
        *,
        member: str,
        site: Site,
        conditions: Conditions,
        clock: Clock,
        serve: Callable[[Pipe], Awaitable[None]],
        spec: Callable[[str], JobSpec],
        progress: WorkDone,
        brings_s: Callable[[str], float] = lambda _: 0.0,
        encoded: bool = False,
    ) -> None:
        self.member = member
        self._conditions = conditions
        self._encoded = encoded
        self._clock = clock
        self._serve = serve
        self._spec = spec
        self._progress = progress
        self._brings_s = brings_s
        self._loop = asyncio.get_running_loop()
        self._key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(member.encode()).digest())
        self._state = State(site=site)
        self._events: list[ev.Event] = []
        self._turning = False
        self._acknowledged: link.DesiredAck | None = None
        self._statuses: dict[str, PlacementReport] = {}
        self._latest: SiteReport | None = None
        self._pipe: RecordPipe | TextPipe | None = None
        self._session: asyncio.Task[None] | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._report: asyncio.TimerHandle | None = None
        self._running: dict[str, tuple[PlacementRecord, float, asyncio.TimerHandle]] = {}
        """Of each placement whose ranks run: its record, since when, and its end."""
        self._staging: dict[str, asyncio.TimerHandle] = {}
        self.alive = True

    @property
    def public_key(self) -> str:
        """By which the dispatcher knows it, in hex."""
        return self._key.public_key().public_bytes_raw().hex()

    def start(self) -> None:
        """Wake up and dial out."""
        self._tell(ev.Awake(f"boot-of-{self.member}"))
        self.dial()
        self._report_later()

    def dial(self) -> None:
        """Open a session."""
        make = TextPipe if self._encoded else RecordPipe
        self._pipe = make(self._hear, self._conditions.latency_s)
        self._session = self._loop.create_task(self._hold(self._pipe), name=f"link of {self.member}")
        hello = link.Hello(link.PROTOCOL, self.member, self._boot_id, __version__, "local", self.member)
        self._say(hello)

    def die(self) -> None:
        """The machine is gone, and all that ran on it."""
        self.alive = False
        for timer in (self._tick, self._report, *self._staging.values()):
            if timer is not None:
                timer.cancel()
        for _, _, end in self._running.values():
            end.cancel()
        self._running.clear()
        if self._pipe is not None:
            self._pipe.cut()

    # -- the link -----------------------------------------------------------------------------------------------------

    @property
    def _boot_id(self) -> str:
        return f"boot-of-{self.member}"

    async def _hold(self, pipe: RecordPipe | TextPipe) -> None:
        await self._serve(pipe)
        if self.alive and pipe is self._pipe:
            self._tell(ev.LinkDown())

    def _say(self, message: link.Up) -> None:
        if self._pipe is not None:
            self._pipe.say(message)

    def _hear(self, message: link.Down) -> None:
        if not self.alive:
            return
        match message:
            case link.Challenge() as challenge:
                signature = self._key.sign(link.challenge_bytes(challenge, self.member)).hex()
                self._say(link.Proof(signature))
            case link.Welcome(incarnation=incarnation, term=term):
                self._tell(ev.LinkUp(incarnation, term, self._clock.boot(), self.member))
            case link.Desired() as desired:
                self._tell(ev.DesiredChanged(desired))
            case link.StatusAck(seq):
                self._tell(ev.Acknowledged(seq))
            case link.Heard(sent_boot_s):
                self._tell(ev.Renewed(sent_boot_s))
            case link.Refusal(code, detail):
                raise AssertionError(f"{self.member} was refused: {code}: {detail}")

    # -- the machine --------------------------------------------------------------------------------------------------

    def _tell(self, *events: ev.Event) -> None:
        """Something happened; what happens at one moment is taken up together."""
        self._events += events
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Take up what has happened, and what follows from it at the same moment; then say what there is to be said, the newest of each."""
        timed = False
        while self._events and self.alive:
            events, self._events = self._events, []
            now = ev.Now(self._clock.now(), self._clock.boot())
            self._state, instructions = step(self._state, events, now)
            for instruction in instructions:
                self._carry_out(instruction)
            timed = timed or any(isinstance(event, TIMED) for event in events)
        self._turning = False
        if not self.alive:
            return
        self._send()
        if timed:
            self._set_alarm()

    def _send(self) -> None:
        """At one moment a placement may begin to start and run: the dispatcher hears that it runs."""
        acknowledged, self._acknowledged = self._acknowledged, None
        statuses, self._statuses = self._statuses, {}
        report, self._latest = self._latest, None
        if acknowledged is not None:
            self._say(acknowledged)
        reports = sorted(statuses.values(), key=lambda status: status.seq)
        for first in range(0, len(reports), link.MAX_STATUSES):
            self._say(link.Statuses(tuple(reports[first : first + link.MAX_STATUSES])))
        if report is not None:
            self._say(link.Report(report, self._clock.boot()))

    def _set_alarm(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        wake_boot_s = next_wake_boot_s(self._state)
        self._tick = None
        if wake_boot_s is not None:
            delay_s = max(0.0, wake_boot_s - self._clock.boot())
            self._tick = self._loop.call_later(delay_s, self._tell, ev.Tick())

    def _report_later(self) -> None:
        self._report = self._loop.call_later(self._conditions.report_every_s, self._report_now)

    def _report_now(self) -> None:
        self._tell(ev.ReportDue())
        self._report_later()

    def _carry_out(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat list of cases
        match instruction:
            case do.SendStatuses(reports):
                self._statuses.update((report.placement, report) for report in reports)
            case do.SendReport(report):
                self._latest = report
            case do.SendDesiredAck(generation, digest):
                self._acknowledged = link.DesiredAck(generation, digest)
            case do.FetchSpec(spec_hash):
                self._tell(ev.SpecArrived(spec_hash, self._spec(spec_hash)))
            case do.FindPort(placement):
                self._tell(ev.PortFound(placement, PORT))
            case do.Stage(record):
                self._stage(record.entry.placement, record.entry.spec_hash)
            case do.StopStaging(placement):
                timer = self._staging.pop(placement, None)
                if timer is not None:
                    timer.cancel()
                self._tell(ev.StagingStopped(placement))
            case do.StartRanks(record, _, ranks):
                self._start(record, ranks)
            case do.SignalRanks(placement, ranks, signal):
                self._signal(placement, ranks, signal)
            case do.Collect(record):
                self._tell(ev.Collected(record.entry.placement))
            case do.Persist() | do.KeepRenewal() | do.Discard() | do.FindRanks():
                pass  # its memory is as durable as the simulation, and nothing lies on a disk

    # -- the ranks ----------------------------------------------------------------------------------------------------

    def _stage(self, placement: str, spec_hash: str) -> None:
        """Get its files ready, and bring its data."""
        staging_s = self._conditions.staging_s + self._brings_s(spec_hash)
        if not staging_s:
            self._tell(ev.Staged(placement, PORT))
            return
        self._staging[placement] = self._loop.call_later(staging_s, self._staged, placement)

    def _staged(self, placement: str) -> None:
        self._staging.pop(placement, None)
        self._tell(ev.Staged(placement, PORT))

    def _start(self, record: PlacementRecord, ranks: tuple[int, ...]) -> None:
        """All ranks of a placement that are here run, and end, together."""
        entry, now = record.entry, self._clock.now()
        left_s = self._progress.left_s(
            entry.job, self._model(record), self.member, resume=entry.resume, form=entry.form
        )
        end = self._loop.call_later(left_s, self._end, entry.placement, ranks, 0)
        self._running[entry.placement] = (record, now, end)
        self._tell(*(ev.RankStarted(entry.placement, rank, now) for rank in ranks))

    def _signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        if placement not in self._running:
            return
        record, since_at, end = self._running[placement]
        if signal == "KILL":
            self._end(placement, ranks, KILLED)
            return
        end.cancel()
        after_s = min(SAVING_S, end.when() - self._loop.time())
        again = self._loop.call_later(max(0.0, after_s), self._saved, record, since_at, ranks)
        self._running[placement] = (record, since_at, again)

    def _saved(self, record: PlacementRecord, since_at: float, ranks: tuple[int, ...]) -> None:
        ran_s, entry = self._clock.now() - since_at, record.entry
        self._progress.save(
            entry.job, self._model(record), self.member, ran_s, resume=entry.resume, form=entry.form
        )
        self._end(record.entry.placement, ranks, STOPPED)

    def _end(self, placement: str, ranks: tuple[int, ...], code: int) -> None:
        _, _, end = self._running.pop(placement)
        end.cancel()
        now = self._clock.now()
        self._tell(*(ev.RankEnded(placement, rank, now, code) for rank in ranks))

    def _model(self, record: PlacementRecord) -> str:
        pool = self._state.pool(record.entry.pool)
        return pool.model if pool else ""

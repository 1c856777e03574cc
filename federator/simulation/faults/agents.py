"""An agent as a process: the production machine with a disk, a link and hands, all of which may be gone after any step.

What `federator_agent.loop`, `link` and `hands` do with files, sockets and processes is done here with the simulated ones, in the same order: what the machine wants
durable is on disk before anything that follows from it, and after each instruction the agent may be dead.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator import __version__
from federator.kernel.errors import FederatorError, Permanent, Transient, Unavailable
from federator.model.capacity import Shape
from federator.model.jobs import JobSpec
from federator.model.placements import Cause, PlacementReport, PlacementStatus
from federator.model.sites import SiteReport
from federator.simulation.faults.dispatchers import Dispatcher
from federator.simulation.faults.hosts import Host, RealRank
from federator.simulation.faults.network import Connection
from federator.simulation.faults.processes import Process
from federator.simulation.faults.scene import Scene
from federator.simulation.faults.weather import Trouble
from federator.wire import link
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.lending import HostPool, Site
from federator_agent.core.machine import next_wake_boot_s, step
from federator_agent.core.reporting import site_report
from federator_agent.core.state import Change, Phase, Record, RecordChange, State, restore, whole
from federator_agent.dialling import Backoff

REPORT_EVERY_S = 60.0
GREETING_S = 20.0
REFUSED_PAUSE_S = 300.0
LASTED_S = 5.0
PORT = 29_500
COLLECTING_S = 0.5


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
        self._network = scene.network
        self._dispatchers = list(dispatchers)
        self._truth = scene.truth
        self._journal = scene.journal
        self._chance = scene.chance(process.name)
        self._instance = f"life-of-{process.name}"
        self._clock = host.clock
        self._key = key_of(host.member)
        self._state = State(site=Site(name=host.plan.site, pools=(host.pool,)), self_fencing=True)
        self._events: list[ev.Event] = []
        self._turning = False
        self._alarm: asyncio.TimerHandle | None = None
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._ticket = ""
        self._staging: dict[str, asyncio.Task[None]] = {}

    def begin(self) -> None:
        """Remember, look at what is left of the life before, and dial. Runs in the process."""
        self.host.on_end = self._rank_ended
        state = restore(self._state, self.host.disk.read())
        hashes = {r.entry.spec_hash for r in state.records.values() if r.phase is not Phase.ENDED}
        specs = {name: self.host.disk.specs[name] for name in sorted(hashes & self.host.disk.specs.keys())}
        self._state = msgspec.structs.replace(state, specs=specs)
        renewed = self.host.disk.renewed
        renewed_s = renewed[1] if renewed is not None and renewed[0] == self.host.boot_id else None
        self._handle([ev.Awake(self.host.boot_id, renewed_s)])
        self.process.spawn(self._link(), "link")
        self.process.spawn(self._reports(), "reports")

    def die(self) -> None:
        """Its process is dead: the other end of its link notices."""
        self._hang_up()

    # -- the machine --------------------------------------------------------------------------------------------------

    def _tell(self, *events: ev.Event) -> None:
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
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._tell, ev.Tick())

    async def _reports(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self._tell(ev.ReportDue())

    def _carry_out(self, instruction: do.Instruction) -> None:
        """What is said and written; the rest is the hands'."""
        match instruction:
            case do.Persist(changes):
                self.host.disk.append(changes)
                self._note_seats(changes)
            case do.KeepRenewal(boot_s):
                self.host.disk.renewed = (self.host.boot_id, boot_s)
            case do.SendStatuses(reports):
                self._say(link.Statuses(reports))
            case do.SendReport(report):
                self._say(self._report(report))
            case do.SendDesiredAck(generation, digest):
                self._say(link.DesiredAck(generation, digest))
            case _:
                self._do(instruction)

    def _do(self, instruction: do.Instruction) -> None:  # noqa: C901 - a flat list of cases
        match instruction:
            case do.FetchSpec(spec_hash):
                self._fetch(spec_hash)
            case do.FindPort(placement):
                self._tell(ev.PortFound(placement, PORT))
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
            case do.Collect(record):
                self.process.spawn(self._collect(record), "collect")
            case do.Discard(placement):
                self.host.discard(placement)

    def _note_seats(self, changes: Sequence[Change]) -> None:
        """What this member's disk says that it holds."""
        for change in changes:
            if isinstance(change, RecordChange) and change.record.slots:
                self._truth.seated.add((change.record.entry.placement, self.host.member))

    def _stop_staging(self, placement: str) -> None:
        task = self._staging.pop(placement, None)
        if task is not None:
            task.cancel()
        self._tell(ev.StagingStopped(placement))

    def _report(self, report: SiteReport) -> link.Report:
        """Now and then it says that all is free, whatever runs."""
        if self._network.weather.draw(self._chance, self.host.member, Trouble.LIES):
            report = _all_free(report, self.host.pool)
        return link.Report(report, self._clock.boot())

    def say_nonsense(self) -> None:
        """A broken agent: a message that nobody can have meant, as the world and not as this process."""
        if self._connection is not None and self._up.is_set():
            self._connection.up.say(self._chance.choice(self._nonsense()))

    def _nonsense(self) -> list[str]:
        pool = _all_free(site_report(self._state, ev.Now(0.0, 0.0)), self.host.pool).pools[0]
        lies = (
            msgspec.structs.replace(pool, nodes=-1),
            msgspec.structs.replace(pool, lent_gpus=10**9),
            msgspec.structs.replace(pool, free=pool.free * 50),
        )
        said = [link.encode(link.Report(SiteReport(taken_at=0.0, pools=(lie,)))).decode() for lie in lies]
        foreign = PlacementReport(
            placement="pl-nobody", epoch=1, seq=1, status=PlacementStatus.SUCCEEDED, at=self._clock.now()
        )
        said += ["", "{", '{"type":"report"}', "[" * 5000, link.encode(link.Statuses((foreign,))).decode()]
        said += [self._of_others(record) for record in self._state.records.values()][:2]
        return said

    def _of_others(self, record: Record) -> str:
        """A word on work of ours, of an attempt that there never was."""
        report = PlacementReport(
            placement=record.entry.placement,
            epoch=record.entry.epoch + 7,
            seq=1,
            status=PlacementStatus.SUCCEEDED,
            at=self._clock.now(),
        )
        return link.encode(link.Statuses((report,))).decode()

    # -- the hands ----------------------------------------------------------------------------------------------------

    def _fetch(self, spec_hash: str) -> None:
        spec = self.host.disk.specs.get(spec_hash)
        if spec is not None:
            self._tell(ev.SpecArrived(spec_hash, spec))
        else:
            self.process.spawn(self._get_spec(spec_hash), "spec")

    async def _get_spec(self, spec_hash: str) -> None:
        try:
            data = await self._bulk(lambda it: it.spec(spec_hash))
        except Permanent as error:
            self._tell(ev.SpecUnknown(spec_hash, error.describe()))
            return
        spec = msgspec.json.decode(data, type=JobSpec)
        self.host.disk.specs[spec_hash] = spec
        self._tell(ev.SpecArrived(spec_hash, spec))

    async def _bulk(self, ask: Callable[["Bulk"], object]) -> bytes:
        """A request beside the session, with its ticket; again until it is answered."""
        while True:
            await self._up.wait()
            assert self._connection is not None
            server = self._server(self._connection.server)
            bulk = Bulk(server, self._ticket)
            try:
                return await self._network.ask(self.host.member, server, partial(bulk.answer, ask))
            except (Transient, Unavailable, Permanent) as error:
                if isinstance(error, Permanent) and error.code != "unauthenticated":
                    raise
            await asyncio.sleep(self._chance.uniform(0.5, 5.0))

    async def _stage(self, record: Record) -> None:
        placement = record.entry.placement
        await asyncio.sleep(self.host.plan.staging_s * self._chance.uniform(0.5, 1.5))
        self._staging.pop(placement, None)
        if self._network.weather.draw(self._chance, self.host.member, Trouble.STAGING_FAILS):
            self._tell(ev.StagingFailed(placement, Cause.STAGING, "the disk does not take it"))
        else:
            self._tell(ev.Staged(placement, PORT))

    def _start(self, record: Record, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        placement = record.entry.placement
        for slot in record.slots:
            if slot.rank not in ranks or self.process.stumbles():
                continue
            began = self.host.start(record, spec, slot)
            if began is None:
                detail = "it could not be started: its directory has been used"
                self._tell(ev.RankEnded(placement, slot.rank, self._clock.now(), None, detail))
                continue
            self._tell(ev.RankStarted(placement, slot.rank, began.began_at))
            if began.ended_s is not None:
                self._tell(ev.RankEnded(placement, slot.rank, began.ended_at, began.code))

    def _find(self, placement: str, rank: int) -> None:
        found = self.host.rank(placement, rank)
        if found is None:
            self._tell(ev.RankAbsent(placement, rank))
            return
        if found.ended_s is None or found.code is not None:
            self._tell(ev.RankStarted(placement, rank, found.began_at))
        if found.ended_s is not None:
            self._tell(ev.RankEnded(placement, rank, found.ended_at, found.code))

    def _signal(self, placement: str, ranks: tuple[int, ...], signal: str) -> None:
        record = self._state.records.get(placement)
        stop = record.stop if record is not None else None
        for rank in ranks:
            real = self.host.rank(placement, rank)
            cut_off = real is not None and real.spec.stop_within_s
            if stop is not None and stop.cause is Cause.STOPPED and real is not None and not cut_off:
                self._truth.asked(real)
            self.host.signal(placement, rank, signal)

    def _rank_ended(self, rank: RealRank) -> None:
        """Its process is watched by this one."""
        assert rank.ended_s is not None
        event = ev.RankEnded(rank.placement, rank.rank, rank.ended_at, rank.code)
        if self.process.alive:
            self.process.call(self._tell, event)

    async def _collect(self, record: Record) -> None:
        """Logs and outputs go home, however long nobody is there."""
        await asyncio.sleep(COLLECTING_S)
        await self._bulk(Bulk.take)
        self._tell(ev.Collected(record.entry.placement))

    # -- the link -----------------------------------------------------------------------------------------------------

    def _server(self, name: str) -> Dispatcher:
        return next(each for each in self._dispatchers if each.name == name)

    def _say(self, message: link.Up) -> None:
        if self._connection is not None and self._up.is_set():
            self._connection.up.say(link.encode(message).decode())

    async def _link(self) -> None:
        """Hold a session for ever."""
        backoff = Backoff(self._chance)
        clock = asyncio.get_running_loop().time
        while True:
            since_s = clock()
            asked_s = await self._session(self._dispatchers[0])
            self._connection = None
            if self._up.is_set():
                self._up.clear()
                self._tell(ev.LinkDown())
                if clock() - since_s > LASTED_S:
                    backoff.reset()
            self._dispatchers.append(self._dispatchers.pop(0))
            await asyncio.sleep(backoff.next_s(asked_s))

    async def _session(self, server: Dispatcher) -> float:
        """One session, until it ends; the pause that the dispatcher asks for."""
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        try:
            async with asyncio.timeout(GREETING_S):
                connection = await server.accept(self.host.member, heard.put_nowait)
                greeted = await self._greet(connection, heard)
        except (TimeoutError, FederatorError):
            self._hang_up()
            return 0.0
        if isinstance(greeted, link.Refusal):
            self._hang_up()
            self._journal.note(self.host.member, f"is refused: {greeted.code}: {greeted.detail[:80]}")
            return REFUSED_PAUSE_S if greeted.retry_after_s is None else greeted.retry_after_s
        while (text := await heard.get()) is not None:
            match link.decode_down(text):
                case link.Desired() as desired:
                    self._tell(ev.DesiredChanged(desired))
                case link.StatusAck(seq):
                    self._tell(ev.Acknowledged(seq))
                case link.Heard(sent_boot_s):
                    self._tell(ev.Renewed(sent_boot_s))
                case link.Refusal(code, detail, retry_after_s):
                    self._hang_up()
                    self._journal.note(self.host.member, f"is sent away: {code}: {detail[:80]}")
                    return REFUSED_PAUSE_S if retry_after_s is None else retry_after_s
        self._hang_up()
        return 0.0

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.abandoned_by(self.host.member)

    async def _greet(
        self, connection: Connection, heard: "asyncio.Queue[str | None]"
    ) -> link.Welcome | link.Refusal:
        """Say who calls, and prove it; and obey no store that was left, and no leader of before."""
        self._connection = connection
        hello = link.Hello(
            link.PROTOCOL,
            self.host.member,
            self.host.boot_id,
            __version__,
            "local",
            self._instance,
            self.host.member,
        )
        asked_boot_s = self._clock.boot()
        connection.up.say(link.encode(hello).decode())
        challenge = await _next(heard)
        if not isinstance(challenge, link.Challenge):
            return _as_refusal(challenge)
        proof = link.Proof(self._key.sign(link.challenge_bytes(challenge, self.host.member)).hex())
        connection.up.say(link.encode(proof).decode())
        welcome = await _next(heard)
        if not isinstance(welcome, link.Welcome):
            return _as_refusal(welcome)
        state = self._state
        if welcome.incarnation in state.left or (
            welcome.incarnation == state.incarnation and welcome.term < state.term
        ):
            return link.Refusal("old-term", f"term {welcome.term} is older than {state.term}", 15.0)
        self._ticket = welcome.ticket
        self._up.set()
        self._journal.note(self.host.member, f"has a session with {connection.server}, term {welcome.term}")
        self._tell(ev.LinkUp(welcome.incarnation, welcome.term, asked_boot_s, self.host.member))
        return welcome


class Bulk:
    """What a dispatcher answers beside the session, to whoever has its ticket."""

    def __init__(self, server: Dispatcher, ticket: str) -> None:
        self._server = server
        self._ticket = ticket

    async def answer(self, ask: Callable[["Bulk"], object]) -> bytes:
        """The answer. Raises `Unauthenticated` for a ticket that is not good any more."""
        self._server.serving().hub.session_of(self._ticket)
        answer = ask(self)
        assert isinstance(answer, bytes)
        return answer

    def take(self) -> bytes:
        """Logs and outputs are taken."""
        return b""

    def spec(self, spec_hash: str) -> bytes:
        """A spec's bytes."""
        return self._server.serving().records.spec_bytes(spec_hash)


def key_of(member: str) -> Ed25519PrivateKey:
    """Its key: made from its name."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(member.encode()).digest())


async def _next(heard: "asyncio.Queue[str | None]") -> link.Down:
    text = await heard.get()
    if text is None:
        raise Unavailable("the connection is gone")
    return link.decode_down(text)


def _as_refusal(message: link.Down) -> link.Refusal:
    """Out of order is as good as refused."""
    return (
        message
        if isinstance(message, link.Refusal)
        else link.Refusal("disorder", type(message).__name__, 1.0)
    )


def _all_free(report: SiteReport, pool: HostPool) -> SiteReport:
    free = (Shape(pool.gpus_per_node, pool.cpus_milli_per_node, pool.memory_mib_per_node, pool.nodes),)
    return msgspec.structs.replace(
        report, pools=tuple(msgspec.structs.replace(each, free=free) for each in report.pools)
    )

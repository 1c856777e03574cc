"""Agent connections: sessions, tickets for bulk, and back-pressure.

A session is served over a `Pipe`, so nothing here knows HTTP. Nothing piles up for a slow agent: at most one desired set is on its way, and an agent
that does not take or acknowledge what it is sent is disconnected; it comes back and starts from the whole set. Nor for a slow store: what an agent
says of its placements meanwhile is written together by the next write, what was repeated once; its reports are heard without waiting for that.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from federator.hub.desired import DesiredPlacements, SyncSession
from federator.hub.frames import Ended, believe, decode, ended_by, invalid, send
from federator.hub.handshake import Arrival, Turns, contest, shake_hands
from federator.hub.outside import Doorkeeper, Inventory, LocalIntake, Pipe, Rows, StatusSink
from federator.hub.report_validation import (
    check_gpu_use,
    check_link_state,
    check_local_jobs,
    check_report,
    check_samples,
    check_statuses,
)
from federator.hub.session import Session
from federator.kernel.errors import Conflict, Damaged, Transient, Unauthenticated, Unavailable
from federator.kernel.ids import IdSource
from federator.kernel.tasks import cancel_and_wait
from federator.model.placements import Placement, PlacementReport
from federator.model.sites import SiteReport
from federator.settings import LinkSettings
from federator.telemetry import METRICS, get_logger
from federator.wire import link
from federator.wire.tunnel import Attach, Exec

HANDSHAKE_S = 15.0
ACKNOWLEDGE_S = 60.0
"""Real seconds after which an agent counts as stuck."""
WRONG_DIGESTS = 3
"""Desired sets in a row that an agent may get wrong."""
MOST_OFFERED = 4 * link.MAX_LOCAL_JOBS
"""Jobs of one agent that may wait to be taken over: it says some, and the next once those are."""
MOST_UNWRITTEN = 4 * link.MAX_STATUSES
"""Statuses of one agent that may wait for the store; it is not listened to beyond that."""
TAKES = (
    link.SAMPLES,
    link.GPU_USE,
    link.LOCAL_JOBS,
    link.RESUMING,
    link.LINK_STATE,
    link.LINK_LIMITS,
    link.UNCHANGED,
    link.ZIPPED_LOGS,
)
"""Messages, or parts of them, that agents may say only once they know that they are understood."""
PROVEN_BY_REBOOT = frozenset({"local"})
"""Runtimes whose work is processes of the agent's own host: none of them outlives its boot. Of a cluster, the agent's host proves nothing."""

log = get_logger("hub")


class Hub:
    """All sessions. `serve` runs one of them."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        records: Rows,
        admission: Doorkeeper,
        inventory: Inventory,
        progress: StatusSink,
        local_jobs: LocalIntake,
        settings: LinkSettings,
        ids: IdSource,
        trace_share: float = 0.0,
    ) -> None:
        self._admission = admission
        self._inventory = inventory
        self._progress = progress
        self.local_jobs = local_jobs
        self._settings = settings
        self._ids = ids
        self._records = records
        self._term = 0
        self.sessions: dict[str, Session] = {}
        self._tickets: dict[str, Session] = {}
        self._closing = False
        self.quiet = False
        """Agents are heard and not told what to do. When that is over, each is told after its next report."""
        self.turns = Turns()
        self.desired = DesiredPlacements(records, self._changed, trace_share=trace_share)

    def start(self, *, term: int) -> None:
        """Begin to lead in this term. Called once, when all records are loaded."""
        self._term = term
        self.desired.load()

    def session_of(self, ticket: str) -> Session:
        """The live session with that ticket. Raises `Unauthenticated`."""
        session = self._tickets.get(_digest(ticket))
        if session is None:
            raise Unauthenticated("no session has this ticket", remedy="open the link first")
        return session

    def require_tunnels(self, member: str) -> Session:
        """The session of the member. Raises `Unavailable` while there is none, `Conflict` where the agent is too old for tunnels."""
        session = self.sessions.get(member)
        if session is None or session.ended.done():
            raise Unavailable(f"{member} is not connected just now", remedy="try again once its site is back")
        if link.TUNNELS not in session.hello.knows:
            raise Conflict(
                f"the agent of {member} (version {session.hello.version}) is too old for exec and port-forward",
                remedy="have its site upgrade it",
            )
        return session

    def dial(self, member: str, dial: link.Dial) -> None:
        """Ask the member's agent to dial out a tunnel. Raises as `require_tunnels`, and `Conflict` where it is too old for `Attach`.

        One that is too old to keep a terminal is asked for one that ends with its tunnel.
        """
        session = self.require_tunnels(member)
        session.due.append(dial if link.TERMINALS in session.hello.knows else _without_keeping(session, dial))
        session.wake.set()

    def held(self, member: str) -> Mapping[str, Placement]:
        """The open placements that have a rank at this member."""
        return self.desired.held(member)

    def dismiss(self, member: str, because: str) -> None:
        """End the member's session, if there is one: it is not to come back as it is."""
        if member in self.sessions:
            self.sessions[member].end(Ended("unauthenticated", because))

    async def close(self) -> None:
        """End all sessions; agents come back by themselves."""
        self._closing = True
        for session in tuple(self.sessions.values()):
            session.end(Ended("shutting-down", "the dispatcher stops", retry_after_s=1.0))

    async def serve(
        self, pipe: Pipe, judged: Callable[[Session | None], None] = lambda _session: None
    ) -> None:
        """One connection from its first message to its end. Never raises for what the other side does.

        `judged` is called with the session when the agent's key is proven, where it may raise ConnectionError; with None when it is not.
        """
        session: Session | None = None
        try:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    arrival = await self._arrive(pipe)
                session = self._open(arrival, pipe)
                ended = await self._run(session, judged)
            except Ended as reason:
                ended = reason
            except TimeoutError:
                ended = Ended("slow", "the handshake took too long", retry_after_s=1.0)
            except ConnectionError:
                ended = Ended("disconnected")
            METRICS.count("federator_link_ended_total", cause=ended.cause)
            if session is not None:
                # Strangers could fill the log; they are counted.
                log.info("session ended", member=session.member, cause=ended.cause)
            if session is None and ended.cause == "unauthenticated":
                judged(None)
            if ended.refusal is not None:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    await send(pipe, ended.refusal)
        finally:
            with contextlib.suppress(ConnectionError):
                await pipe.close()

    async def _arrive(self, pipe: Pipe) -> Arrival:
        """The handshake, up to the point where the seat is free. That takes seconds: a key that is worth nothing any more by then opens nothing."""
        arrival = await shake_hands(pipe, self._admission, self._records.store.incarnation)
        await self.turns.take()
        while (incumbent := self.sessions.get(arrival.member.id)) is not None:
            await contest(incumbent, arrival.hello, self._admission)
            if self.sessions.get(arrival.member.id) is incumbent:
                break
        hello = arrival.hello
        log.info("session opens", member=hello.member, runtime=hello.runtime, version=hello.version)
        return arrival._replace(member=arrival.proven())

    def _open(self, arrival: Arrival, pipe: Pipe) -> Session:
        if self._closing:
            raise Ended("shutting-down", "the dispatcher stops", retry_after_s=1.0)
        member = arrival.member
        session = Session(
            self._ids.new("ses"),
            member,
            arrival.hello,
            pipe,
            SyncSession(self.desired, member.id, arrival.hello.knows),
        )
        older = self.sessions.get(member.id)
        if older is not None:
            # No return for the old one: it is the same agent's, or it did not answer.
            older.end(Ended("replaced", "another session of this member has been opened"))
            self._forget(older)
        self.sessions[member.id] = session
        self._tickets[_digest(session.ticket)] = session
        self._inventory.opened(member, session.id, session.hello.version)
        METRICS.set("federator_link_sessions", len(self.sessions))
        return session

    def _forget(self, session: Session) -> None:
        if self._tickets.pop(_digest(session.ticket), None) is None:
            return
        if self.sessions.get(session.member) is session:
            del self.sessions[session.member]
        self._inventory.closed(session.member, session.id, stopped=session.said_goodbye)
        METRICS.set("federator_link_sessions", len(self.sessions))

    async def _run(self, session: Session, judged: Callable[[Session | None], None]) -> Ended:
        """Serve until something ends the session; returns what."""
        loops: list[asyncio.Task[None]] = []
        try:
            judged(session)
            welcome = link.Welcome(
                session=session.id,
                ticket=session.ticket,
                incarnation=self._records.store.incarnation,
                term=self._term,
                report_every_s=self._settings.report_every_s,
                takes=tuple(word for word in TAKES if word in session.hello.knows),
            )
            await send(session.pipe, welcome)
            session.wake.set()
            loops += [
                asyncio.create_task(self._ending(session, self._read)),
                asyncio.create_task(self._ending(session, self._absorb)),
                asyncio.create_task(self._ending(session, self._adopt)),
                asyncio.create_task(self._ending(session, self._settle)),
                asyncio.create_task(self._ending(session, self._write)),
            ]
            return await session.ended
        finally:
            self._forget(session)  # also if it does not take what it is told at the end
            await cancel_and_wait(*loops)

    async def _ending(self, session: Session, loop: Callable[[Session], Awaitable[None]]) -> None:
        """Run a loop of the session; whatever ends it ends the session, with a cause."""
        try:
            await loop(session)
            session.end(Ended("disconnected"))
        except Ended as ended:
            session.end(ended)
        except ConnectionError:
            session.end(Ended("disconnected"))
        except (Transient, Conflict, Damaged) as error:
            session.end(ended_by(error))
        except Exception:
            # The agent did nothing that we refuse: whatever this is, it is ours, and it may come back.
            log.exception("a session failed", member=session.member)
            session.end(Ended("bug", "the dispatcher failed at this", retry_after_s=5.0))

    async def _read(self, session: Session) -> None:
        while (text := await session.pipe.receive()) is not None:
            session.heard.set()
            match decode(text):
                case link.Report(report, sent_boot_s):
                    believe(check_report, report)
                    self._report(session, report, sent_boot_s)
                case link.Unchanged(sent_boot_s):
                    if session.report is None:
                        raise invalid("there is no report that could still hold")
                    self._report(session, session.report, sent_boot_s)
                case link.Statuses(reports):
                    await self._take(session, reports)
                case link.Samples(samples, gpus, state):
                    believe(check_samples, samples)
                    believe(check_gpu_use, gpus)
                    believe(check_link_state, state)
                    self._inventory.measured(session.member, samples, gpus, state)
                case link.LocalJobs(jobs):
                    believe(check_local_jobs, jobs)
                    session.offered.update((job.placement, job) for job in jobs)
                    if len(session.offered) > MOST_OFFERED:
                        raise invalid("more local jobs than can wait")
                    session.offers.set()
                case link.DesiredAck() as acknowledged:
                    self._acknowledged(session, acknowledged)
                case other:
                    raise invalid(f"{type(other).__name__} has no place in a session")

    def _report(self, session: Session, report: SiteReport, sent_boot_s: float | None) -> None:
        """Take up what the agent says that it sees, and owe it a renewal."""
        session.report = report
        if not session.reported.done():
            session.reported.set_result(report)
        believe(partial(self._inventory.report, session.member, session.id), report)
        if sent_boot_s is not None:
            session.renewal = sent_boot_s
            session.wake.set()

    async def _settle(self, session: Session) -> None:
        """Look at what the agent knew when it came: all that it has not told the end of is counted in its first report.

        After another boot of its host, what it does not count any more is lost. The new boot is noted only then: a dispatcher that
        fails in between finds the old one again.
        """
        report = await session.reported
        while session.unwritten or session.absorbing:
            await session.until_written()
        boot_id = session.hello.boot_id
        if not session.briefed and session.hello.runtime in PROVEN_BY_REBOOT:
            await self._progress.rebooted(session.member, report.counted)
        if session.former_boot_id != boot_id or session.declared_dead:
            await self._admission.remember_boot(session.member, boot_id)
        session.briefed = True
        session.wake.set()
        await session.ended

    async def _take(self, session: Session, reports: Sequence[PlacementReport]) -> None:
        """Leave statuses to be written; wait while too many wait already."""
        if len(reports) > link.MAX_STATUSES:
            raise invalid(f"over {link.MAX_STATUSES} statuses in one message")
        believe(check_statuses, reports)
        session.unwritten.update(((report.placement, report.status), report) for report in reports)
        session.taken.set()
        while len(session.unwritten) > MOST_UNWRITTEN:
            await session.until_written()

    async def _absorb(self, session: Session) -> None:
        """Make durable what was said, all that has gathered at a time, and have it acknowledged."""
        while True:
            await session.taken.wait()
            session.taken.clear()
            reports = tuple(sorted(session.unwritten.values(), key=lambda report: report.seq))
            session.unwritten.clear()
            # A placement must not be forgotten at the agent before its last status is acknowledged there.
            session.absorbing = True
            try:
                session.acknowledge = await self._progress.absorb(session.member, reports)
            finally:
                session.absorbing = False
            METRICS.count("federator_link_statuses_total", len(reports))
            # What follows goes out with the acknowledgement, however soon the next are absorbed.
            session.due += self._due(session)
            session.wake.set()
            session.written.set()

    async def _adopt(self, session: Session) -> None:
        """Take over what the agent has admitted by itself, and say so. What is not taken over now the agent tells again."""
        while True:
            await session.offers.wait()
            session.offers.clear()
            jobs = tuple(session.offered.values())
            session.offered.clear()
            adopted = await self.local_jobs.adopt(session.member, jobs)
            if adopted:
                session.due.append(link.Adopted(adopted))
                session.wake.set()

    def _acknowledged(self, session: Session, message: link.DesiredAck) -> None:
        if not session.sync.acknowledged(message):
            log.warning("desired sets differ", member=session.member, generation=message.generation)
            if session.sync.wrong_digests > WRONG_DIGESTS:
                raise Ended("digest", "desired sets are not kept as they were sent", retry_after_s=60.0)
        if session.sync.on_its_way is None:
            session.stuck_at = None
        session.wake.set()

    async def _write(self, session: Session) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(session.stuck_at):
                    await session.wake.wait()
                session.wake.clear()
                due, session.due = session.due, []
                for message in due + self._due(session):
                    if isinstance(message, link.Desired):
                        session.stuck_at = clock() + ACKNOWLEDGE_S
                    await send(session.pipe, message)
            except TimeoutError:
                raise Ended("slow", "the agent does not take or acknowledge", retry_after_s=1.0) from None

    def _due(self, session: Session) -> list[link.Down]:
        """What is to be sent now."""
        due: list[link.Down] = []
        if session.renewal is not None:
            self._inventory.answered(session.member)
            due.append(link.Heard(session.renewal))
            session.renewal = None
        if link.LOCAL_JOBS in session.hello.knows:
            allotments = self.local_jobs.allotments(session.member)
            if allotments != session.allotted:
                session.allotted = allotments
                due.append(link.Allotments(allotments))
        if session.acknowledge is not None:
            due.append(link.StatusAck(session.acknowledge))
            session.acknowledge = None
        ready = session.briefed and not session.absorbing and not self.quiet
        desired = session.sync.next(self._term) if ready else None
        if desired is not None:
            METRICS.count("federator_link_desired_total", whole=str(desired.whole).lower())
            due.append(desired)
        return due

    def _changed(self, member: str, placement: str) -> None:
        session = self.sessions.get(member)
        if session is not None:
            session.sync.mark(placement)
            session.wake.set()


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()


def _without_keeping(session: Session, dial: link.Dial) -> link.Dial:
    if isinstance(dial.request, Attach):
        raise Conflict(
            f"the agent of {session.member} (version {session.hello.version}) keeps no terminals",
            remedy="have its site upgrade it; federator exec opens a shell in the job",
        )
    if isinstance(dial.request, Exec):
        return msgspec.structs.replace(dial, request=msgspec.structs.replace(dial.request, keep=False))
    return dial

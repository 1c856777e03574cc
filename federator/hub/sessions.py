"""Agent connections: the handshake, sessions, tickets for bulk, and back-pressure.

A session is served over a `Pipe`, so nothing here knows HTTP. Nothing is buffered for a slow agent: statuses are read no faster than they
become durable, at most one desired set is on its way, and an agent that does not take or acknowledge what it is sent is disconnected; it
comes back and starts from the whole set.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from federator.hub.belief import check_report, check_statuses
from federator.hub.desired import Board, Briefing
from federator.hub.outside import Doorkeeper, Inventory, Pipe, Progress, Rows
from federator.kernel.errors import (
    Conflict,
    Damaged,
    FederatorError,
    Invalid,
    Permanent,
    Transient,
    Unauthenticated,
)
from federator.kernel.ids import IdSource
from federator.model.placements import Placement, PlacementReport
from federator.model.sites import Member
from federator.settings import LinkSettings
from federator.telemetry import METRICS, get_logger
from federator.wire import link

HANDSHAKE_S = 15.0
SEND_S = 15.0
ACKNOWLEDGE_S = 60.0
"""Real seconds after which an agent counts as stuck."""
WRONG_DIGESTS = 3
"""Desired sets in a row that an agent may get wrong."""

M = TypeVar("M", link.Hello, link.Proof)
S = TypeVar("S")
log = get_logger("hub")


class _Ended(Exception):
    """The session ends; the agent is sent `refusal` if there is one."""

    def __init__(self, cause: str, detail: str = "", *, retry_after_s: float | None = None) -> None:
        self.cause = cause
        self.refusal = link.Refusal(cause, detail, retry_after_s) if detail else None
        super().__init__(cause)


class Session:
    """One authenticated connection."""

    def __init__(self, session_id: str, member: str, pipe: Pipe, briefing: Briefing) -> None:
        self.id = session_id
        self.member = member
        self.pipe = pipe
        self.briefing = briefing
        self.ticket = secrets.token_urlsafe(32)
        self.renewal: float | None = None
        """The time in the newest report, which the agent is still to be given back."""
        self.acknowledge: int | None = None
        """Statuses up to this number are durable, and the agent is still to be told."""
        self.absorbing = False
        self.stuck_at: float | None = None
        """By the loop's clock: when waiting for an acknowledgement is over."""
        self.wake = asyncio.Event()
        self.ended: asyncio.Future[_Ended] = asyncio.get_running_loop().create_future()

    def end(self, ended: _Ended) -> None:
        """Let the session end; the first cause counts."""
        if not self.ended.done():
            self.ended.set_result(ended)


class Hub:
    """All sessions. `serve` runs one of them."""

    def __init__(
        self,
        *,
        records: Rows,
        admission: Doorkeeper,
        inventory: Inventory,
        progress: Progress,
        settings: LinkSettings,
        ids: IdSource,
    ) -> None:
        self._admission = admission
        self._inventory = inventory
        self._progress = progress
        self._settings = settings
        self._ids = ids
        self._records = records
        self._term = 0
        self._sessions: dict[str, Session] = {}
        self._tickets: dict[str, Session] = {}
        self._closing = False
        self._board = Board(records, self._changed)

    def start(self, *, term: int) -> None:
        """Begin to lead in this term. Called once, when all records are loaded."""
        self._term = term
        self._board.load()

    def session_of(self, ticket: str) -> Session:
        """The live session with that ticket. Raises `Unauthenticated`."""
        session = self._tickets.get(_digest(ticket))
        if session is None:
            raise Unauthenticated("no session has this ticket", remedy="open the link first")
        return session

    def held(self, member: str) -> Mapping[str, Placement]:
        """The open placements that have a rank at this member."""
        return self._board.held(member)

    async def close(self) -> None:
        """End all sessions; agents come back by themselves."""
        self._closing = True
        for session in tuple(self._sessions.values()):
            session.end(_Ended("shutting-down", "the dispatcher stops", retry_after_s=1.0))

    async def serve(self, pipe: Pipe) -> None:
        """One connection from its first message to its end. Never raises for what the other side does."""
        session: Session | None = None
        try:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    member = await self._shake_hands(pipe)
                session = self._open(member, pipe)
                ended = await self._run(session)
            except _Ended as reason:
                ended = reason
            except TimeoutError:
                ended = _Ended("slow", "the handshake took too long", retry_after_s=1.0)
            except ConnectionError:
                ended = _Ended("disconnected")
            METRICS.count("federator_link_ended_total", cause=ended.cause)
            log.info("session ended", member=session.member if session else "", cause=ended.cause)
            if ended.refusal is not None:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    await _send(pipe, ended.refusal)
        finally:
            if session is not None:
                self._forget(session)
            with contextlib.suppress(ConnectionError):
                await pipe.close()

    async def _shake_hands(self, pipe: Pipe) -> Member:
        hello = await _expect(pipe, link.Hello)
        if hello.protocol != link.PROTOCOL:
            raise _Ended("protocol", f"this dispatcher speaks protocol {link.PROTOCOL}, not {hello.protocol}")
        challenge = link.Challenge(secrets.token_hex(32), self._records.store.incarnation)
        await _send(pipe, challenge)
        proof = await _expect(pipe, link.Proof)
        try:
            member = self._admission.verify_session(hello.member, challenge, proof.signature)
            if await self._admission.remember_boot(member.id, hello.boot_id):
                await self._progress.rebooted(member.id)
        except FederatorError as error:
            raise _ended_by(error) from error
        log.info("session opens", member=member.id, runtime=hello.runtime, version=hello.version)
        return member

    def _open(self, member: Member, pipe: Pipe) -> Session:
        if self._closing:
            raise _Ended("shutting-down", "the dispatcher stops", retry_after_s=1.0)
        session = Session(self._ids.new("ses"), member.id, pipe, Briefing(self._board, member.id))
        older = self._sessions.get(member.id)
        if older is not None:
            # No return for the old one: two agents with one key would otherwise take turns for ever.
            older.end(_Ended("replaced", "another session of this member has been opened"))
            self._forget(older)
        self._sessions[member.id] = session
        self._tickets[_digest(session.ticket)] = session
        self._inventory.opened(member, session.id)
        METRICS.set("federator_link_sessions", len(self._sessions))
        return session

    def _forget(self, session: Session) -> None:
        if self._tickets.pop(_digest(session.ticket), None) is None:
            return
        if self._sessions.get(session.member) is session:
            del self._sessions[session.member]
        self._inventory.closed(session.member, session.id)
        METRICS.set("federator_link_sessions", len(self._sessions))

    async def _run(self, session: Session) -> _Ended:
        """Serve until something ends the session; returns what."""
        welcome = link.Welcome(
            session=session.id,
            ticket=session.ticket,
            incarnation=self._records.store.incarnation,
            term=self._term,
            report_every_s=self._settings.report_every_s,
        )
        await _send(session.pipe, welcome)
        session.wake.set()
        loops = [
            asyncio.create_task(self._ending(session, self._read)),
            asyncio.create_task(self._ending(session, self._write)),
        ]
        try:
            return await session.ended
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _ending(self, session: Session, loop: Callable[[Session], Awaitable[None]]) -> None:
        """Run a loop of the session; whatever ends it ends the session, with a cause."""
        try:
            await loop(session)
            session.end(_Ended("disconnected"))
        except _Ended as ended:
            session.end(ended)
        except ConnectionError:
            session.end(_Ended("disconnected"))
        except (Transient, Conflict, Damaged) as error:
            session.end(_ended_by(error))
        except Exception:
            # The agent did nothing that we refuse: whatever this is, it is ours, and it may come back.
            log.exception("a session failed", member=session.member)
            session.end(_Ended("bug", "the dispatcher failed at this", retry_after_s=5.0))

    async def _read(self, session: Session) -> None:
        while (text := await session.pipe.receive()) is not None:
            match _decode(text):
                case link.Report(report, sent_boot_s):
                    _believe(check_report, report)
                    self._inventory.report(session.member, session.id, report)
                    if sent_boot_s is not None:
                        session.renewal = sent_boot_s
                        session.wake.set()
                case link.Statuses(reports):
                    await self._absorb(session, reports)
                case link.DesiredAck() as acknowledged:
                    self._acknowledged(session, acknowledged)
                case other:
                    raise _Ended(
                        "invalid", f"{type(other).__name__} has no place in a session", retry_after_s=60.0
                    )

    async def _absorb(self, session: Session, reports: Sequence[PlacementReport]) -> None:
        if len(reports) > link.MAX_STATUSES:
            raise _Ended("invalid", f"over {link.MAX_STATUSES} statuses in one message", retry_after_s=60.0)
        _believe(check_statuses, reports)
        # A placement must not be forgotten at the agent before its last status is acknowledged there.
        session.absorbing = True
        try:
            session.acknowledge = await self._progress.absorb(session.member, tuple(reports))
        finally:
            session.absorbing = False
        METRICS.count("federator_link_statuses_total", len(reports))
        session.wake.set()

    def _acknowledged(self, session: Session, message: link.DesiredAck) -> None:
        if not session.briefing.acknowledged(message):
            log.warning("desired sets differ", member=session.member, generation=message.generation)
            if session.briefing.wrong_digests > WRONG_DIGESTS:
                raise _Ended("digest", "desired sets are not kept as they were sent", retry_after_s=60.0)
        if session.briefing.on_its_way is None:
            session.stuck_at = None
        session.wake.set()

    async def _write(self, session: Session) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(session.stuck_at):
                    await session.wake.wait()
                session.wake.clear()
                for message in self._due(session):
                    if isinstance(message, link.Desired):
                        session.stuck_at = clock() + ACKNOWLEDGE_S
                    await _send(session.pipe, message)
            except TimeoutError:
                raise _Ended("slow", "the agent does not take or acknowledge", retry_after_s=1.0) from None

    def _due(self, session: Session) -> list[link.Down]:
        """What is to be sent now."""
        due: list[link.Down] = []
        if session.renewal is not None:
            self._inventory.answered(session.member)
            due.append(link.Heard(session.renewal))
            session.renewal = None
        if session.acknowledge is not None:
            due.append(link.StatusAck(session.acknowledge))
            session.acknowledge = None
        desired = None if session.absorbing else session.briefing.next(self._term)
        if desired is not None:
            METRICS.count("federator_link_desired_total", whole=str(desired.whole).lower())
            due.append(desired)
        return due

    def _changed(self, member: str, placement: str) -> None:
        session = self._sessions.get(member)
        if session is not None:
            session.briefing.mark(placement)
            session.wake.set()


async def _expect(pipe: Pipe, kind: type[M]) -> M:
    text = await pipe.receive()
    if text is None:
        raise _Ended("disconnected")
    message = _decode(text)
    if not isinstance(message, kind):
        raise _Ended("invalid", f"expected {kind.__name__}, got {type(message).__name__}", retry_after_s=60.0)
    return message


def _believe(check: Callable[[S], None], said: S) -> None:
    """End the session of whoever says what cannot be true. It may come back: an agent is repaired, or brought up to date."""
    try:
        check(said)
    except Invalid as error:
        raise _Ended("invalid", error.describe(), retry_after_s=60.0) from None


def _decode(text: str) -> link.Up:
    try:
        return link.decode_up(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _Ended("invalid", str(error), retry_after_s=60.0) from None


async def _send(pipe: Pipe, message: link.Down) -> None:
    # Not asyncio.wait_for: before Python 3.12 it may swallow the cancellation that ends a session.
    async with asyncio.timeout(SEND_S):
        await pipe.send(link.encode(message).decode())


def _ended_by(error: FederatorError) -> _Ended:
    """Permanent errors need a person's help, unless they are our own; all others pass."""
    if isinstance(error, Damaged):
        return _Ended(error.code, "the dispatcher's store is damaged", retry_after_s=60.0)
    if isinstance(error, Permanent):
        return _Ended(error.code, error.describe())
    retry_after_s = error.retry_after_s if isinstance(error, Transient) else 1.0
    return _Ended(error.code, error.describe(), retry_after_s=retry_after_s)


def _digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()

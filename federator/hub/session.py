"""One session: what it is still owed, and whether its agent is there."""

import asyncio
import secrets

from federator.hub.desired import SyncSession
from federator.hub.frames import Ended, Goodbye
from federator.hub.outside import Pipe
from federator.model.allotments import Allotment, LocalJob
from federator.model.placements import PlacementReport, PlacementStatus
from federator.model.sites import Member, SiteReport, SiteStatus
from federator.wire import link


class Session:
    """One authenticated connection."""

    def __init__(
        self, session_id: str, member: Member, hello: link.Hello, pipe: Pipe, sync: SyncSession
    ) -> None:
        self.id = session_id
        self.member = member.id
        self.hello = hello
        self.pipe = pipe
        self.sync = sync
        self.ticket = secrets.token_urlsafe(32)
        self.former_boot_id = member.boot_id
        self.declared_dead = member.status is SiteStatus.LOST
        """Of the boot that this member was last heard in; empty: it never was."""
        self.briefed = member.boot_id in ("", hello.boot_id)
        """It may be told its desired set. After another boot of its host, not before it has said what it still knows of."""
        self.reported: asyncio.Future[SiteReport] = asyncio.get_running_loop().create_future()
        """Its first report."""
        self.report: SiteReport | None = None
        """Its newest."""
        self.renewal: float | None = None
        """The time in the newest report, which the agent is still to be given back."""
        self.acknowledge: int | None = None
        """Statuses up to this number are durable, and the agent is still to be told."""
        self.unwritten: dict[tuple[str, PlacementStatus], PlacementReport] = {}
        """What has been said and is not being written yet; agents repeat themselves, so each status of a placement is there once."""
        self.taken = asyncio.Event()
        """There is something among them."""
        self.written = asyncio.Event()
        """Some have become durable since somebody last waited for that."""
        self.absorbing = False
        """Some are being written."""
        self.offered: dict[str, LocalJob] = {}
        """Jobs that the agent has admitted by itself and that are not taken over yet, by placement."""
        self.offers = asyncio.Event()
        """There are some."""
        self.allotted: tuple[Allotment, ...] | None = None
        """What the agent was told that it may admit; None: nothing yet."""
        self.told_ends: set[str] = set()
        """Logs of which it was told that they end before what it sent: what it sends so again is all there is."""
        self.due: list[link.Down] = []
        """What is to be sent before anything else."""
        self.stuck_at: float | None = None
        """By the loop's clock: when waiting for an acknowledgement is over."""
        self.wake = asyncio.Event()
        self.heard = asyncio.Event()
        """Something has been said since somebody last began to listen for it."""
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def end(self, ended: Ended) -> None:
        """Let the session end; the first cause counts."""
        if not self.ended.done():
            self.ended.set_result(ended)

    @property
    def said_goodbye(self) -> bool:
        """Whether its agent has ended it because it stops."""
        return self.ended.done() and isinstance(self.ended.result(), Goodbye)

    async def until_written(self) -> None:
        """Wait until the next statuses are durable."""
        self.written.clear()
        await self.written.wait()

    async def answers(self, within_s: float) -> bool:
        """Whether the agent is still there: it is told its desired set once more, and acknowledges that. Real seconds."""
        self.heard.clear()
        self.sync.repeat()
        self.wake.set()
        heard = asyncio.ensure_future(self.heard.wait())
        await asyncio.wait((heard, self.ended), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()
        return not self.ended.done() and (self.heard.is_set() or self.absorbing)

"""What the hub needs from around it, as protocols: it stands beside `control` and imports nothing of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from federator.model.allotments import Allotment, LocalJob
from federator.model.jobs import Job, JobSpec
from federator.model.placements import Placement, PlacementReport
from federator.model.sites import GpuUse, LinkState, Member, SiteReport
from federator.ports import Store
from federator.wire import link


class Pipe(Protocol):
    """One connection to an agent: text frames both ways."""

    async def receive(self) -> str | link.Up | None:
        """The next frame, or None once the connection is gone. Of a `DirectPipe`, the message itself. Raises `frames.Goodbye`."""
        ...

    async def send(self, text: str) -> None:
        """Send a frame; waits while the other side does not take it. Raises ConnectionError."""
        ...

    async def close(self) -> None:
        """End the connection; a pending `receive` returns None."""
        ...


class DirectPipe(ABC):
    """A pipe whose other end is in this process and takes everything at once: messages are records that nobody changes, and need not become text."""

    @abstractmethod
    def deliver(self, message: link.Down) -> None:
        """Hand a message over. Raises ConnectionError."""


class Written(Protocol):
    """An applied change of records, as far as the hub looks at it."""

    @property
    def rows(self) -> Mapping[str, object]:
        """The rows written, by key."""
        ...

    @property
    def deletes(self) -> Sequence[str]:
        """The keys of the rows that are no more."""
        ...


class Rows(Protocol):
    """What the hub reads of the records."""

    @property
    def jobs(self) -> Mapping[str, Job]:
        """Jobs by id."""
        ...

    @property
    def open_placements(self) -> Mapping[str, Placement]:
        """Placements that make up the desired sets."""
        ...

    @property
    def revision(self) -> int:
        """The newest revision applied: durable, and growing over restarts."""
        ...

    @property
    def store(self) -> Store:
        """The store behind them, for its incarnation."""
        ...

    def spec(self, digest: str) -> JobSpec:
        """The decoded spec of that hash."""
        ...

    def subscribe(self, listener: Callable[[Written], None]) -> Callable[[], None]:
        """Call `listener` after every applied change."""
        ...


class Doorkeeper(Protocol):
    """Who checks agents' keys."""

    def verify_session(self, member_id: str, challenge: link.Challenge, signature: str) -> Member:
        """The member that signed the challenge. Raises `Unauthenticated`."""
        ...

    async def remember_boot(self, member_id: str, boot_id: str) -> None:
        """Note the host's boot id durably."""
        ...

    async def contested(self, member_id: str, because: str) -> None:
        """Another agent has shown the member's key: note it durably."""
        ...


class Inventory(Protocol):
    """Who hears of sessions and reports."""

    def opened(self, member: Member, session: str, version: str) -> None:
        """A session stands, of an agent of that version."""
        ...

    def report(self, member: str, session: str, report: SiteReport) -> None:
        """Fresh telemetry. Raises `Invalid` where all sites together would have too much."""
        ...

    def measured(
        self,
        member: str,
        samples: Sequence[link.Sample],
        gpus: Sequence[GpuUse] = (),
        state: LinkState | None = None,
    ) -> None:
        """What ranks of placements there use, how busy each GPU is, and how the link is."""
        ...

    def answered(self, member: str) -> None:
        """A renewal is about to be sent. Called before, never after: whoever counts from it must not be ahead of the agent."""
        ...

    def closed(self, member: str, session: str, *, stopped: bool = False) -> None:
        """The connection ended; `stopped`: because its agent has, which said so."""
        ...


class LocalIntake(Protocol):
    """Who takes over what agents have admitted by themselves."""

    def allotments(self, member: str) -> tuple[Allotment, ...]:
        """What the member may admit while it is cut off."""
        ...

    async def adopt(self, member: str, jobs: Sequence[LocalJob]) -> tuple[str, ...]:
        """Make these jobs durable; the placements that the agent need not tell of again."""
        ...


class StatusSink(Protocol):
    """Who takes placement statuses."""

    async def absorb(self, member: str, reports: tuple[PlacementReport, ...]) -> int:
        """Make them durable; returns the number to acknowledge."""
        ...

    async def rebooted(self, member: str, known: Collection[str]) -> None:
        """The member's host has booted anew, and its work was processes of that host. `known`: placements that its agent remembers."""
        ...

"""What the core needs from outside, on one page.

Adapters implement these protocols; the composition roots (`federator.app`, `federator.simulation`) choose them. Each
docstring is the contract, and one contract suite in `tests/contract` holds every implementation to it.
"""

from array import array
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Protocol

import msgspec

from federator.model.archive import (
    ArchivedJob,
    ArchiveFilter,
    ArchivePage,
    Column,
    FilePart,
    StoredJob,
    UsageSum,
)
from federator.model.capacity import Instance, LaunchRequest, Offer
from federator.model.events import Alert
from federator.model.outlook import Outlook, Proof
from federator.model.plans import Plan
from federator.model.rules import PolicyRule
from federator.model.snapshot import Problem
from federator.model.spans import Span
from federator.wire.contrast import PolicyTrial, TrialOutcome


class Item(msgspec.Struct, frozen=True, gc=False):
    """One stored key. `revision` is that of the transaction that wrote this value."""

    key: str
    value: bytes
    revision: int


class Page(msgspec.Struct, frozen=True):
    """Part of a range, in key order. `next_after` goes into the next call; None when this is the last page."""

    items: tuple[Item, ...]
    revision: int
    next_after: str | None


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write `value`; with `expires_in_s`, the key is gone that long (real seconds) after its last write."""

    key: str
    value: bytes
    expires_in_s: float | None = None


class Compare(msgspec.Struct, frozen=True, gc=False):
    """The key's revision must still be this one; 0: the key must not exist."""

    key: str
    revision: int


class Transaction(msgspec.Struct, frozen=True):
    """All of it, or nothing: comparisons first, then deletes and puts. A key stands at most once in puts and deletes together."""

    compares: tuple[Compare, ...] = ()
    puts: tuple[Put, ...] = ()
    deletes: tuple[str, ...] = ()


class Store(Protocol):
    """Ordered keys with one growing revision, as etcd has them.

    Keys are non-empty ASCII, ordered by code point. Every committed transaction that writes gets a revision above
    those of all that were answered before it came; of those that came at the same time some may share one, if they have no key in common. What `commit` has returned is durable and seen by every later read. A store that fails raises `Unavailable`, and has then written nothing; where a
    write may have happened all the same, `OutcomeUnknown`: nothing that was read before may be relied on until it is read again.
    """

    MAX_OPERATIONS: int
    """Largest number of puts and deletes in one transaction."""

    @property
    def incarnation(self) -> str:
        """A random name given when the store was created; another one after a restore was adopted."""
        ...

    async def get(self, key: str) -> Item | None:
        """The key's present value, or None."""
        ...

    async def range(self, prefix: str, *, after: str | None = None, limit: int = 1000) -> Page:
        """Keys that start with `prefix`, strictly after `after`, in order, at most `limit`."""
        ...

    async def commit(self, transaction: Transaction) -> int:
        """Do it atomically and durably; return its revision. Raises `StoreConflict` (nothing written) when a comparison fails."""
        ...

    def refuse_if_full(self) -> None:
        """Raise `Unavailable` when what is kept already needs the room there is: nothing new should be taken in."""
        ...

    async def close(self) -> None:
        """Flush and release; no call may follow."""
        ...


async def every_item(
    store: Store, prefix: str, *, after: str | None = None, limit: int = 1000
) -> AsyncIterator[Item]:
    """All keys that start with `prefix`, strictly after `after`, in order; read so many at a time."""
    while True:
        page = await store.range(prefix, after=after, limit=limit)
        for item in page.items:
            yield item
        after = page.next_after
        if after is None:
            return


class Usage(msgspec.Struct, frozen=True):
    """What is kept, in bytes."""

    blobs: Mapping[str, int]
    """By hash."""
    logs: Mapping[str, int]
    """By the first part of the logs' names."""

    @property
    def blobs_bytes(self) -> int:
        """All blobs together."""
        return sum(self.blobs.values())

    @property
    def logs_bytes(self) -> int:
        """All logs together."""
        return sum(self.logs.values())


class BlobUpload(Protocol):
    """Bytes on their way into `Blobs`, of which nobody sees anything before they are kept. Calls may block on disk, one at a time."""

    @property
    def length(self) -> int:
        """How many bytes have come."""
        ...

    @property
    def digest(self) -> str:
        """The hash of what has come."""
        ...

    def write(self, part: bytes) -> None:
        """Add to the end."""
        ...

    def keep(self) -> str:
        """Keep what has come, durably, and return its hash."""
        ...

    def discard(self) -> None:
        """Forget what was not kept; after `keep` it does nothing."""
        ...


class Blobs(Protocol):
    """Bytes by content hash, and growing logs: what is too large for the store. Calls may block on disk or network; callers use threads.

    To put bytes, or to find with `has` that they are there, is to use them: whoever is about to name them in a record has then some time
    in which they are not dropped.
    """

    GATHERS_LOGS: bool
    """Whether what is appended to logs is with this process alone until `keep_logs`, or for some seconds."""

    def put(self, data: bytes) -> str:
        """Keep the bytes durably and return their hash; keeping them twice is the same as once."""
        ...

    def draft(self) -> BlobUpload:
        """Begin to keep bytes that come in parts: what is too large to be held in memory."""
        ...

    def open(self, digest: str) -> BinaryIO | None:
        """The bytes, to be read in parts and closed by the caller; None: they are not here. Raises `Damaged` as `get` does."""
        ...

    def get(self, digest: str) -> bytes | None:
        """The bytes, or None."""
        ...

    def has(self, digest: str) -> bool:
        """Whether `get` would find it."""
        ...

    def append_log(self, name: str, offset: int, data: bytes) -> int:
        """Write `data` at `offset` of a log and return its length; a repeated or overlapping write changes nothing it already has.

        A gap (offset beyond the length) is filled with a line that says how many bytes were lost.
        """
        ...

    def read_log(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`; empty at the end or for an unknown log."""
        ...

    def log_length(self, name: str) -> int:
        """Length in bytes; 0 for an unknown log."""
        ...

    def keep_logs(self, names: Collection[str]) -> None:
        """Make durable what the logs of these names and all below them have; called before their writer forgets its own copy."""
        ...

    def unused(self, for_s: float) -> list[str]:
        """The hashes of all bytes that nobody has used for so many real seconds."""
        ...

    def drop(self, digest: str, unused_for_s: float) -> bool:
        """Forget the bytes, unless they have been used again meanwhile; whether they are gone. Unknown ones are."""
        ...

    def drop_logs(self, name: str) -> None:
        """Forget the log of that name and all below it; unknown is fine."""
        ...

    def free_bytes(self) -> int:
        """How much room the disk has left."""
        ...

    def usage(self) -> Usage:
        """How much is kept now."""
        ...

    def close(self) -> None:
        """Keep what has come and release what is held; no call may follow."""
        ...


class Written(msgspec.Struct, frozen=True):
    """A file that is kept."""

    digest: str
    size_bytes: int
    rows: int


class Archive(Protocol):
    """Files of jobs that have ended, kept as blobs. Calls block; callers use threads.

    Raises `Unavailable` for what takes too long or cannot be read, and `NotFound` when the bytes of a file are gone.
    """

    def write(self, rows: Iterable[ArchivedJob]) -> Written:
        """Keep these rows, which are in the order of their ids, durably as a file."""
        ...

    def merge(self, parts: Sequence[FilePart], without: Sequence[str] = ()) -> Written:
        """Keep what counts of these files as one, in their order, without the jobs of some people."""
        ...

    def page(
        self, parts: Sequence[FilePart], where: ArchiveFilter, page: ArchivePage
    ) -> tuple[list[tuple[float | str, str]], int]:
        """A page of what is asked for, as values and ids of jobs or arrays, and how many there are in all."""
        ...

    def jobs(
        self, parts: Sequence[FilePart], where: ArchiveFilter, *, limit: int, events: bool = False
    ) -> list[StoredJob]:
        """The records of the newest jobs that are asked for, the oldest of them first; with their events only where asked."""
        ...

    def runs(self, parts: Sequence[FilePart], each: int, most: int) -> list[str]:
        """Ids of jobs that succeeded: of every queue and name the newest `each`, first one of all names, then a second."""
        ...

    def arrays(self, parts: Sequence[FilePart], arrays: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Of these arrays, as a line of a list and all tasks added up."""
        ...

    def usage(
        self, parts: Sequence[FilePart], where: ArchiveFilter, by: Sequence[Column], most: int
    ) -> list[UsageSum]:
        """Jobs added up by some keys, at most so many groups."""
        ...

    def rows(
        self, parts: Sequence[FilePart], columns: Sequence[str], *, without: Sequence[str] = ()
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Some columns of all rows in the order of their ids, some rows at a time; without the jobs of some people."""
        ...

    def client_keys(self, parts: Sequence[FilePart], key: str) -> list[str]:
        """What was submitted under a client id (`OWNER/ID`), as JSON; empty where nothing was."""
        ...

    def blobs(self, parts: Sequence[FilePart], without: Sequence[str] = ()) -> "array[int]":
        """The first 8 bytes of the hashes of all blobs that these jobs name, in order; without the jobs of some people."""
        ...

    def forget(self, digest: str) -> None:
        """A file is not asked for any more."""
        ...

    def close(self) -> None:
        """Release what is open; no call may follow."""
        ...


class Provider(Protocol):
    """A cloud that rents capacity. All names are the client's, so that a repeated call finds the first one.

    Raises `Transient` for throttling and faults, `NoCapacity` when the offer is sold out, `Permanent` otherwise.

    An entry point of group `federator.providers` makes it of its name, `settings` and the clock. It asks nobody: it is called to check the settings, too,
    and raises `Invalid` with a field below `$.providers.NAME`.
    """

    name: str

    async def offers(self) -> Sequence[Offer]:
        """What could be rented now, with prices."""
        ...

    async def launch(self, request: LaunchRequest) -> Instance:
        """Start one instance named `request.name`. The same name again returns the first instance, whatever has become of it."""
        ...

    async def instances(self, federation: str) -> Sequence[Instance]:
        """Every instance tagged with this federation, ended ones included for at least an hour."""
        ...

    async def terminate(self, name: str) -> None:
        """Begin to end it. Unknown or already ended is fine. Done when `instances` shows it ended."""
        ...

    async def close(self) -> None:
        """Release connections; instances go on."""
        ...


class PolicyKind(Protocol):
    """One kind of policy document: validated and compiled at apply, never called by decisions."""

    kind: str

    @property
    def spec(self) -> type[msgspec.Struct]:
        """The record that `spec` is read into."""
        ...

    def compile(self, name: str, spec: object) -> tuple[PolicyRule, ...]:
        """Check the decoded `spec` and turn it into rules. Raises `Invalid` with a field path below `$.spec`."""
        ...


class Courier(Protocol):
    """Takes alerts to people."""

    async def deliver(self, alert: Alert) -> None:
        """Bring it there, trying again as often as is sensible. Raises `Transient` when that was in vain; no error names a secret."""
        ...


class LedgerTarget(Protocol):
    """Keeps the sealed ledger outside of the store."""

    async def append(self, name: str, lines: Sequence[bytes]) -> None:
        """Keep these lines, the last of which is their seal, after all that came before; return when they are there.

        `name` is the seal's, and the same when it is sent again. Raises `Unavailable` when it is not certain that all are there.
        """
        ...


class SpanTarget(Protocol):
    """Takes spans of jobs for whoever looks at traces."""

    def export(self, span: Span) -> None:
        """Take one that is over, at once and without waiting; what cannot be sent in time may be lost. Never raises."""
        ...

    async def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        ...


class IdentityProvider(Protocol):
    """Believes what an OpenID Connect provider has signed, by keys that it fetches beside the requests."""

    def verify(self, bearer: str) -> Mapping[str, object]:
        """The claims of a token whose signature is right; what they say is for the caller to judge.

        Raises `Unauthenticated` with the reason in `why`, and `Unavailable` while the keys to judge by are not there.
        """
        ...

    async def run(self) -> None:
        """Keep the keys fresh, until cancelled. Never raises for a provider that does not answer."""
        ...


class Lookout(Protocol):
    """Runs `look_ahead` and `prove` somewhere: in a child process of its own."""

    async def look_ahead(self, problem: Problem, counts: Sequence[int], *, limit_s: float) -> Outlook | None:
        """A relaxed plan of so many jobs like each of the problem's; None when there is none within the limit (real seconds). Never raises."""
        ...

    async def certify(self, problem: Problem, plan: Plan, *, limit_s: float) -> Proof | None:
        """How good the plan's decisions are; None when that was not found out within the limit (real seconds). Never raises."""
        ...

    async def close(self) -> None:
        """End the child."""
        ...


class PolicyTrials(Protocol):
    """Simulates a proposed set of policies beside the one in force, somewhere else."""

    async def run(self, trial: PolicyTrial) -> TrialOutcome:
        """Both sides of it. Raises `TooLarge` over the limits on time and memory, `Unavailable`."""
        ...


class Solver(Protocol):
    """Runs `decide` somewhere: in a child process (production) or here (simulator, offline tool)."""

    async def decide(
        self, problem: Problem, *, stages: tuple[str, ...], seed: int, limit_s: float
    ) -> Plan | None:
        """The plan; None when the child was late (real seconds), died or returned nonsense: greedy's plan stands. Never raises."""
        ...

    async def close(self) -> None:
        """End the child."""
        ...

"""The records as this dispatcher knows them: the store's rows, decoded, in memory – and the one way to change them.

Memory is never ahead of the store: a change is computed from what is in memory, written with a comparison on the revision of every row it
replaces and on the leader's term, and applied here only once it is durable. Two tasks that change the same row at once race in the store; the
loser computes its change again from the newer row. So there are no locks, and a change that was acknowledged cannot be lost.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from federator.control.record.decoders import decode_spec, decoded, labels_of
from federator.control.record.holders import HeldCounts
from federator.control.record.job_index import JobIndex
from federator.control.record.leadership import Reign
from federator.control.record.past import Past
from federator.control.record.rows import ClientKey, Outputs
from federator.kernel.errors import Bug, NotFound, StoreConflict
from federator.model.archive import ArchiveFile
from federator.model.arrays import JobArray
from federator.model.capacity import Lease, LeaseStatus
from federator.model.events import Event, LedgerEntry
from federator.model.identity import BlobOwner, JoinToken, OwnAddress, Token
from federator.model.jobs import TERMINAL, Job, JobSpec, JobStatus
from federator.model.ledger import LedgerState, Seal
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.rules import PolicySet
from federator.model.series import Series, series_key
from federator.model.services import Service, service_key
from federator.model.sites import Member, Site
from federator.ports import Compare, Put, Store, Transaction

ATTEMPTS = 50
SHARED_WORDS = ("name", "owner", "queue", "spec_hash", "array", "series", "because")
"""Fields of a job that many jobs have in common."""
MOST_WORDS = 200_000
UNSENT_LEASE = (LeaseStatus.REQUESTED, LeaseStatus.LAUNCHING, LeaseStatus.BOOTING)
OWED_A_STOP = frozenset({PlacementStatus.LOST, PlacementStatus.REVOKED})
"""Given up without the site's word: should it come back, it must still be told to stop."""


class Flag(msgspec.Struct, frozen=True):
    """A switch that a person has thrown, such as `burst-paused`."""

    name: str
    on: bool
    who: str
    at: float


class Spec(msgspec.Struct, frozen=True, gc=False):
    """A job's immutable part, as the bytes that its hash is of."""

    digest: str
    data: bytes


class _Table(NamedTuple):
    prefix: str
    key: Callable[[Any], str]
    kept: bool
    """Whether rows are held in memory; the others are read from the store when asked for."""


TABLES: dict[type, _Table] = {
    Job: _Table("job/", lambda r: r.id, True),
    Placement: _Table("placement/", lambda r: r.id, True),
    Lease: _Table("lease/", lambda r: r.id, True),
    Site: _Table("site/", lambda r: r.name, True),
    Member: _Table("member/", lambda r: r.id, True),
    Token: _Table("token/", lambda r: r.digest, True),
    JoinToken: _Table("join/", lambda r: r.digest, True),
    PolicySet: _Table("policies/", lambda r: f"{r.version:08d}", True),
    ClientKey: _Table("client/", lambda r: f"{r.owner}/{r.client_id}", True),
    JobArray: _Table("array/", lambda r: r.id, True),
    Series: _Table("series/", lambda r: series_key(r.owner, r.name), True),
    Service: _Table("service/", lambda r: service_key(r.owner, r.name), True),
    Flag: _Table("flag/", lambda r: r.name, True),
    OwnAddress: _Table("address/", lambda r: r.name, True),
    Spec: _Table("spec/", lambda r: r.digest, True),
    Outputs: _Table("outputs/", lambda r: r.job, True),
    BlobOwner: _Table("blob-owner/", lambda r: r.key, True),
    LedgerState: _Table("ledger-state/", lambda _: "", True),
    ArchiveFile: _Table("archive/", lambda r: r.id, True),
    Event: _Table("event/", lambda r: f"{r.job}/{r.id}", False),
    LedgerEntry: _Table("ledger/", lambda r: r.id, False),
    Seal: _Table("seal/", lambda r: f"{r.number:012d}", False),
}

Record = (
    Job
    | Placement
    | Lease
    | Site
    | Member
    | Token
    | JoinToken
    | PolicySet
    | ClientKey
    | JobArray
    | Series
    | Service
    | Flag
    | OwnAddress
    | Spec
    | Outputs
    | BlobOwner
    | LedgerState
    | ArchiveFile
    | Seal
    | Event
    | LedgerEntry
)


@dataclass
class Changes:
    """Rows to write and keys to delete, as one transaction. A row put twice: the later counts."""

    rows: dict[str, Record] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)
    relies_on: list[str] = field(default_factory=list)
    """Keys of rows that must still be as they are when this is written, though it does not write them."""
    quiet: bool = False
    """No decision reads what it changes: no turn follows."""

    def put(self, *records: Record) -> None:
        """Write these rows."""
        for record in records:
            self.rows[row_key(record)] = record

    def __bool__(self) -> bool:
        return bool(self.rows or self.deletes)


def row_key(record: Record) -> str:
    """The store's key of a row."""
    table = TABLES[type(record)]
    return table.prefix + table.key(record)


class Records:
    """All rows in memory, by kind and name. Read the dictionaries freely; change them through `transact` alone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.jobs: dict[str, Job] = {}
        self.placements: dict[str, Placement] = {}
        self.leases: dict[str, Lease] = {}
        self.sites: dict[str, Site] = {}
        self.members: dict[str, Member] = {}
        self.tokens: dict[str, Token] = {}
        self.join_tokens: dict[str, JoinToken] = {}
        self.policy_sets: dict[str, PolicySet] = {}
        self.client_keys: dict[str, ClientKey] = {}
        self.job_arrays: dict[str, JobArray] = {}
        """Arrays that were larger than what is written at once, by id: which of their tasks are no jobs yet."""
        self.series: dict[str, Series] = {}
        self.services: dict[str, Service] = {}
        """Both by owner and name."""
        self.flags: dict[str, Flag] = {}
        self.addresses: dict[str, OwnAddress] = {}
        """Where people have said to be reached, by name."""
        self.outputs: dict[str, Outputs] = {}
        self.blob_owners: dict[str, BlobOwner] = {}
        """By digest and owner."""
        self.ledger_state: dict[str, LedgerState] = {}
        """How far the ledger's chain goes, if there is one: a single row."""
        self.archive_files: dict[str, ArchiveFile] = {}
        """The files of jobs that have ended and are not here any more, by id,"""
        self.past = Past()
        """and what somebody has asked of them lately."""
        self.index = JobIndex(self.jobs, self.job_arrays)
        """The same jobs in order, by owner, queue, status and name."""
        self.held_counts = HeldCounts()
        """How much of them each person and team has."""
        self.arrays: dict[str, dict[str, Job]] = {}
        """The tasks of every array, by id."""
        self.runs: dict[str, dict[str, Job]] = {}
        """The jobs of every series' runs, by id."""
        self.pipelines: dict[str, dict[str, Job]] = {}
        """The jobs of every pipeline, by id."""
        self.open_jobs: dict[str, Job] = {}
        """Jobs that are not terminal, in order of submission."""
        self.open_placements: dict[str, Placement] = {}
        """Placements that are not proven over, or that were given up without the site's word: they make up the desired sets."""
        self.revision = 0
        self._specs: dict[str, Spec] = {}
        self._revisions: dict[str, int] = {}
        self._words: dict[str, str] = {}
        self._underway = _Underway()
        """Keys that writes on their way rely on: they must not be deleted meanwhile."""
        self._reign: Reign | None = None
        self.listeners: list[Callable[[Changes], None]] = []
        self._kinds = self._by_kind()

    def _by_kind(self) -> dict[type, dict[str, Any]]:
        return {
            Job: self.jobs,
            Placement: self.placements,
            Lease: self.leases,
            Site: self.sites,
            Member: self.members,
            Token: self.tokens,
            JoinToken: self.join_tokens,
            PolicySet: self.policy_sets,
            ClientKey: self.client_keys,
            JobArray: self.job_arrays,
            Series: self.series,
            Service: self.services,
            Flag: self.flags,
            OwnAddress: self.addresses,
            Spec: self._specs,
            Outputs: self.outputs,
            BlobOwner: self.blob_owners,
            LedgerState: self.ledger_state,
            ArchiveFile: self.archive_files,
        }

    async def load(self) -> None:
        """Read every kept row. Called once, before anything else runs."""
        for kind, table in TABLES.items():
            if not table.kept:
                continue
            decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
            after: str | None = None
            while True:
                page = await self.store.range(table.prefix, after=after, limit=5000)
                self.revision = max(self.revision, page.revision)
                for item in page.items:
                    self._keep(item.key, decoded(decoder, item), item.revision)
                after = page.next_after
                if after is None:
                    break

    def lead(self, reign: Reign) -> None:
        """From now on every write is one of this reign."""
        self._reign = reign

    async def commit(self, transaction: Transaction) -> int:
        """Write what is not kept in memory, within the term. Raises `NotLeading`, and what the store does."""
        return await (self._reign or self.store).commit(transaction)

    def subscribe(self, listener: Callable[[Changes], None]) -> Callable[[], None]:
        """Call `listener` after every applied change; returns how to stop it."""
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def revision_of(self, record: Record) -> int:
        """The store revision of this row; 0 when there is none."""
        return self._revisions.get(row_key(record), 0)

    def spec(self, digest: str) -> JobSpec:
        """The decoded spec of that hash."""
        return decode_spec(self.spec_bytes(digest))

    def spec_bytes(self, digest: str) -> bytes:
        """The bytes that the hash is of. Raises `NotFound`."""
        spec = self._specs.get(digest)
        if spec is not None:
            return spec.data
        past = self.past.specs.get(digest)
        if past is None:
            raise NotFound(f"no spec {digest}")
        return past

    def open_job(self, name: str) -> Job | None:
        """A job, or a task of an array that is not expanded."""
        return self.jobs.get(name) or self.index.unexpanded.task(name)

    def has_left(self, array: str) -> bool:
        """Whether tasks of that array are no jobs yet."""
        row = self.job_arrays.get(array)
        return row is not None and bool(row.left)

    def is_over(self, array: str) -> bool:
        """Whether nothing more will happen to any task of it."""
        return self.index.task_counts(array).keys() <= TERMINAL

    def known_job(self, name: str) -> Job | None:
        """The same, or a job of the archive that somebody has asked for."""
        return self.open_job(name) or self.past.jobs.get(name)

    def known_placement(self, name: str | None) -> Placement | None:
        """An attempt, also one of such a job."""
        return self.placements.get(name or "") or self.past.placements.get(name or "")

    def known_outputs(self, job: str) -> Outputs | None:
        """What a job has left, also one of the archive. Of a job that has succeeded none but those of its success: what another attempt has left is a part at best."""
        found, of = self.outputs.get(job) or self.past.outputs.get(job), self.known_job(job)
        made = self.known_placement(found.placement) if found is not None else None
        over = of is not None and of.status is JobStatus.SUCCEEDED
        return None if over and made is not None and made.status is not PlacementStatus.SUCCEEDED else found

    def specs_labelled(self, labels: dict[str, str]) -> set[str]:
        """Hashes of the specs that have all these labels."""
        wanted = labels.items()
        return {name for name, spec in self._specs.items() if wanted <= labels_of(name, spec.data).items()}

    def unused_specs(self) -> list[str]:
        """Hashes of specs that no job is of, no attempt (a job may be given another spec after it) and none that is just being written."""
        index, relied_on = self.index, self._underway.relied_on
        others = {array.template.spec_hash for array in self.job_arrays.values()}
        others.update(placement.spec_hash for placement in self.placements.values())
        return [
            name
            for name in self._specs
            if not index.of_spec(name) and name not in others and not relied_on[f"spec/{name}"]
        ]

    def has_spec(self, digest: str) -> bool:
        """Whether that spec is stored, and is not just being dropped: who needs one that is has to write it again."""
        return digest in self._specs and not self._underway.dropped[f"spec/{digest}"]

    def followed(self, job: Job) -> Iterator[Job]:
        """The jobs that this one must follow, as far as their records live; of an array, all its tasks."""
        for name in job.after:
            before = self.jobs.get(name)
            yield from (before,) if before is not None else self.arrays.get(name, {}).values()

    def predecessors(self, job: Job) -> Iterator[tuple[str, bool | None]]:
        """The jobs and arrays that this one must follow, and whether each has come to what it must; None while it still may. Takes no longer for many tasks."""
        for name, how in job.follows():
            before = self.open_job(name) or self.index.unexpanded.past(name)
            yield name, how.met((before.status,) if before is not None else self.index.task_counts(name))

    def one_of(self, name: str, statuses: Collection[JobStatus]) -> Job | None:
        """A job, or the first task of an array, that is in one of these."""
        job = self.open_job(name) or self.index.unexpanded.past(name)
        if job is not None:
            return job if job.status in statuses else None
        found = (ids[0] for status in statuses for ids in self.index.tasks(name, status))
        first = min(found, default=None)
        return self.index.unexpanded.one_of(name, statuses) if first is None else self.jobs[first]

    def may_run(self, placement: Placement) -> bool:
        """Whether anything of the placement may run: not while it is only reserved, nor before its lease's agent has joined."""
        if placement.order is Order.RESERVE:
            return False
        lease = self.leases.get(placement.lease or "")
        return lease is None or lease.status not in UNSENT_LEASE or lease.member in self.members

    @property
    def policies(self) -> PolicySet:
        """The set in force: the newest version, or an empty one."""
        if not self.policy_sets:
            return PolicySet(version=0, author="", reason="no policies yet", applied_at=0.0)
        return self.policy_sets[max(self.policy_sets)]

    async def transact(self, compute: Callable[[], Changes]) -> Changes:
        """Compute a change from memory, write it, apply it, tell the listeners; again from the start when a row moved meanwhile.

        `compute` must be a pure function of these records. An empty change writes nothing. Raises `NotLeading` when this
        dispatcher does not lead any more, and whatever `compute` raises.
        """
        for _ in range(ATTEMPTS):
            changes = compute()
            if not changes:
                return changes
            # A caller that is cancelled (its connection broke) does not take back what it has sent to the store: what becomes
            # durable must be applied here all the same, or these rows could never be changed again.
            # The comparisons are those of the rows just read: made here, before anything else may run and move them.
            write = asyncio.ensure_future(self._write(changes, self._transaction(changes)))
            self._underway.add(changes)
            write.add_done_callback(partial(self._written, changes))
            try:
                await asyncio.shield(write)
            except StoreConflict:
                await asyncio.sleep(0)
                continue
            return changes
        raise Bug(f"a change lost {ATTEMPTS} races in a row")

    async def _write(self, changes: Changes, transaction: Transaction) -> None:
        self._apply(changes, await self.commit(transaction))

    def _written(self, changes: Changes, write: asyncio.Future[None]) -> None:
        self._underway.remove(changes)
        if not write.cancelled():
            write.exception()  # looked at, also where the caller was cancelled and nobody else does

    def takes(self, changes: Changes) -> bool:
        """Whether the store takes so much in one transaction. One comparison is left for the leader's term."""
        most, written = self.store.MAX_OPERATIONS, len(changes.rows) + len(changes.deletes)
        return written <= most and len(self._compares(changes)) < most

    def _transaction(self, changes: Changes) -> Transaction:
        puts = tuple(Put(key, msgspec.json.encode(row)) for key, row in changes.rows.items())
        return Transaction(tuple(self._compares(changes)), puts, tuple(changes.deletes))

    def _compares(self, changes: Changes) -> list[Compare]:
        compares = [
            Compare(key, self._revisions.get(key, 0))
            for key, row in changes.rows.items()
            if TABLES[type(row)].kept
        ]
        compares += [Compare(key, self._revisions[key]) for key in changes.deletes if key in self._revisions]
        return compares + [Compare(key, self._revisions.get(key, 0)) for key in changes.relies_on]

    def _apply(self, changes: Changes, revision: int) -> None:
        for key, row in changes.rows.items():
            if TABLES[type(row)].kept:
                self._keep(key, row, revision)
        for key in changes.deletes:
            self._drop(key)
        self.revision = max(self.revision, revision)
        for listener in tuple(self.listeners):
            listener(changes)

    def _keep(self, key: str, row: Record, revision: int) -> None:
        self._revisions[key] = revision
        if isinstance(row, Job):
            self._share_words(row)
            self.index.put(self.jobs.get(row.id), row)
        elif isinstance(row, JobArray):
            self.index.put_array(self.job_arrays.get(row.id), row)
        rows, name = self._kinds[type(row)], TABLES[type(row)].key(row)
        self.held_counts.note(rows.get(name), row)
        rows[name] = row
        if isinstance(row, Job):
            _hold(self.open_jobs, row.id, row, wanted=not row.terminal)
            if row.array is not None:
                self.arrays.setdefault(row.array, {})[row.id] = row
            if row.series is not None:
                self.runs.setdefault(series_key(row.owner, row.series), {})[row.id] = row
            if row.pipeline is not None:
                self.pipelines.setdefault(row.pipeline, {})[row.id] = row
        elif isinstance(row, Placement):
            owed_a_stop = not row.stop_acknowledged and (row.status in OWED_A_STOP or bool(row.parts))
            _hold(self.open_placements, row.id, row, wanted=not row.ended or owed_a_stop)

    def _share_words(self, job: Job) -> None:
        """Let equal words of all jobs be one object: of 100,000 jobs they would take more memory than all the rest."""
        if len(self._words) > MOST_WORDS:
            self._words.clear()  # what is shared by now stays so
        for name in SHARED_WORDS:
            word = getattr(job, name)
            if word is not None:
                force_setattr(job, name, self._words.setdefault(word, word))

    def _drop(self, key: str) -> None:
        self._revisions.pop(key, None)
        prefix, _, name = key.partition("/")
        former = None
        for kind, table in TABLES.items():
            if table.kept and table.prefix == prefix + "/":
                former = self._kinds[kind].pop(name, None)
        self.held_counts.note(former, None)
        self.open_jobs.pop(name, None)
        self.open_placements.pop(name, None)
        if isinstance(former, JobArray):
            self.index.unexpanded.drop(former)
        if isinstance(former, Job):
            self.index.drop(former)
            if former.array is not None:
                _leave(self.arrays, former.array, name)
            if former.series is not None:
                _leave(self.runs, series_key(former.owner, former.series), name)
            if former.pipeline is not None:
                _leave(self.pipelines, former.pipeline, name)


def _leave(groups: dict[str, dict[str, Job]], group: str, name: str) -> None:
    groups[group].pop(name, None)
    if not groups[group]:
        del groups[group]


class _Underway:
    """Keys in changes that are being written. The store may take them in another order than they were sent in."""

    def __init__(self) -> None:
        self.relied_on: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def add(self, changes: Changes) -> None:
        """They are on their way."""
        self.relied_on.update(changes.relies_on)
        self.dropped.update(changes.deletes)

    def remove(self, changes: Changes) -> None:
        """They are written, or will not be."""
        for counts, keys in ((self.relied_on, changes.relies_on), (self.dropped, changes.deletes)):
            for key in keys:
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]


def _hold(index: dict[str, Any], name: str, row: Record, *, wanted: bool) -> None:
    if wanted:
        index[name] = row
    else:
        index.pop(name, None)

"""Recorded decisions: the problem and the plan of a turn, so that anyone can ask later why, and run it again.

A record is a checkpoint, or what changed since the record before it (`decision_parts`): nothing stores a whole snapshot per turn. Records that follow
from one checkpoint are a *run*: it ends after some minutes, some number of records, or a restart, and is dropped as a whole, for no part of it can
be read without what came before. A replay runs the same stages that completed and compares byte for byte.

Records of before this were one whole problem each, compressed; they can still be read.
"""

import asyncio
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

import msgspec

from federator.control.record.decision_parts import Parts, join, pack, split, unpack
from federator.control.record.records import Records
from federator.kernel.errors import Damaged, NotFound
from federator.model.outlook import Proof
from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.planning.plans.differences import completed, differences
from federator.ports import Put, Solver, Store, Transaction, every_item
from federator.settings import RetentionSettings
from federator.wire.decisions import DecisionRow, ReplayResult

PREFIX = "decision/"
INDEX = "decision-index/"
LONGEST_RUN = 48
"""Records of one run: they are dropped in one transaction, each has two keys, and stores take 120."""
RUNS = 8
"""Where few records are kept, runs are so short that there are about so many: else half of what may be kept would go at once."""
REPLAY_S = 60.0
"""Real seconds that a replay may take."""


class DecisionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision as it is stored: what `pack` made of it, given the decision `base` (None: given nothing)."""

    problem: bytes = b""
    """Of old records: JSON, deflated."""
    plan: bytes = b""
    parts: bytes = b""
    base: str | None = None


class _Newest(NamedTuple):
    """The last record, which the next one is written against."""

    decision: str
    checkpoint: str
    began_at: float
    length: int
    """Records of its run so far."""
    parts: Parts


class DecisionLog:
    """The recorded decisions of this store, newest last."""

    def __init__(self, records: Records, retention: RetentionSettings, solver: Solver) -> None:
        self._records = records
        self._store: Store = records.store
        self.retention = retention
        self.solver = solver
        self._rows: OrderedDict[str, DecisionRow] = OrderedDict()
        self._runs: OrderedDict[str, list[str]] = OrderedDict()
        """The decisions of each run by that of its checkpoint, in the order of the checkpoints."""
        self.size_bytes = 0
        self._newest: _Newest | None = None
        self._writing = asyncio.Lock()
        """Turns, proofs and retention write each for itself: no run may be dropped twice, or while it is continued."""

    async def load_index(self) -> None:
        """Read what is recorded. Called once."""
        async for item in every_item(self._store, INDEX):
            self._add(msgspec.json.decode(item.value, type=DecisionRow))

    def rows(self) -> list[DecisionRow]:
        """All recorded decisions, oldest first."""
        return sorted(self._rows.values(), key=_place)

    def before(self, decision: str | None, since_at: float, until_at: float, limit: int) -> list[DecisionRow]:
        """The newest so many before that one (None: of all) that were taken in that time, oldest first. Raises `NotFound` for one that is not kept."""
        rows = self.rows()
        end = bisect_left(rows, (until_at, ""), key=_place)
        if decision is not None:
            end = min(end, bisect_left(rows, _place(self.row(decision)), key=_place))
        begin = bisect_left(rows, (since_at, ""), key=_place)
        return rows[max(begin, end - limit) : max(begin, end)]

    def kept(self, decision: str) -> bool:
        """Whether it can be shown: a turn that did nothing is recorded only where it was certified."""
        return decision in self._rows

    def row(self, decision: str) -> DecisionRow:
        """What is listed of it. Raises `NotFound`."""
        row = self._rows.get(decision)
        if row is None:
            raise NotFound(f"no recorded decision {decision}", remedy="begin again with the newest")
        return row

    def proof(self, decision: str) -> Proof | None:
        """How good it was, where it was certified."""
        row = self._rows.get(decision)
        return row.proof if row else None

    async def record(
        self, problem: Problem, plan: Plan, *, committed: int | None = None, stale: int = 0
    ) -> None:
        """Keep this decision, of which so many actions were committed (None: all) or found stale, and drop the oldest runs over the limits."""
        if self.retention.decisions:
            async with self._writing:
                await self._record(problem, plan, committed, stale)

    async def certified(self, problem: Problem, plan: Plan, proof: Proof) -> None:
        """Keep how good a decision was beside it; one that did nothing is recorded for that."""
        if not self.retention.decisions:
            return
        async with self._writing:
            if not self.kept(plan.decision):
                await self._record(problem, plan, committed=0)
            row = msgspec.structs.replace(self._rows[plan.decision], proof=proof)
            await self._records.commit(Transaction(puts=(Put(INDEX + row.id, msgspec.json.encode(row)),)))
            self._rows[row.id] = row

    async def _record(self, problem: Problem, plan: Plan, committed: int | None, stale: int = 0) -> None:
        # Whether it was written is not known where this fails: then nothing may be written against it.
        before, self._newest = self._continued(plan.taken_at), None
        parts = split(problem, plan)
        data = pack(before.parts if before else [], parts)
        row = DecisionRow(
            id=plan.decision,
            at=plan.taken_at,
            winner=plan.winner,
            objective_usd=plan.objective_usd,
            actions=len(plan.actions) if committed is None else committed,
            jobs=len(problem.snapshot.jobs),
            stages=", ".join(stage.stage for stage in plan.stages if stage.completed),
            size_bytes=len(data),
            winner_reason=plan.winner_reason,
            waiting=len(plan.waiting),
            stale=stale,
            checkpoint=before.checkpoint if before else plan.decision,
        )
        record = DecisionRecord(parts=data, base=before.decision if before else None)
        puts = (
            Put(PREFIX + row.id, msgspec.msgpack.encode(record)),
            Put(INDEX + row.id, msgspec.json.encode(row)),
        )
        dropped = self._over_the_limit(row)
        await self._records.commit(Transaction(puts=puts, deletes=_keys(dropped)))
        # Only now: were the disk full, the list would name what is not there.
        self._newest = _Newest(
            row.id,
            row.checkpoint,
            before.began_at if before else row.at,
            before.length + 1 if before else 1,
            parts,
        )
        self._add(row)
        self._forget(dropped)

    async def drop_before(self, at: float) -> None:
        """Drop the runs that ended before then."""
        async with self._writing:
            for checkpoint, names in list(self._runs.items()):
                if max(self._rows[name].at for name in names) < at:
                    await self._records.commit(Transaction(deletes=_keys(names)))
                    self._forget(names)
                    if self._newest is not None and self._newest.checkpoint == checkpoint:
                        self._newest = None

    async def load(self, decision: str) -> tuple[Problem, Plan]:
        """What was seen and what was decided. Raises `NotFound`, `Damaged`."""
        problem, plan, _ = await self._load(decision, None, [])
        return problem, plan

    async def each(self, decisions: Iterable[str]) -> AsyncIterator[tuple[Problem, Plan]]:
        """The same of several, oldest first; those that are gone or damaged are left out. What lies between two of one run is unpacked once."""
        before: str | None = None
        parts: Parts = []
        for decision in decisions:
            try:
                problem, plan, parts = await self._load(decision, before, parts)
            except (NotFound, Damaged):
                continue  # dropped meanwhile, or a disk was: the others tell what they can
            before = decision
            yield problem, plan

    async def _load(self, decision: str, before: str | None, known: Parts) -> tuple[Problem, Plan, Parts]:
        """`known`: the parts of the decision `before`, from which this one may follow."""
        run = []
        name: str | None = decision
        while name is not None and name != before:
            record = await self._stored(name, decision)
            run.append(record)
            name = record.base
        return await asyncio.to_thread(_read, run, [] if name is None else known)

    async def replay(self, decision: str) -> ReplayResult:
        """Decide again from the record; say whether the same came out, and where not."""
        problem, plan = await self.load(decision)
        stages = tuple(stage.stage for stage in completed(plan).stages)
        again = await self.solver.decide(problem, stages=stages, seed=plan.seed, limit_s=REPLAY_S)
        if again is None:
            return ReplayResult(False, ("the solver did not answer",))
        found = differences(problem, plan, again)
        return ReplayResult(not found, tuple(found))

    async def _stored(self, name: str, asked: str) -> DecisionRecord:
        item = await self._store.get(PREFIX + name)
        if item is None:
            raise NotFound(
                f"no recorded decision {asked}",
                remedy="'federator decisions list' shows those that are kept",
            )
        try:
            return msgspec.msgpack.decode(item.value, type=DecisionRecord)
        except msgspec.MsgspecError as error:
            raise Damaged(f"the recorded decision {name} cannot be read: {error}") from None

    def _continued(self, at: float) -> _Newest | None:
        """The record that the next one is written against; None: it begins a run."""
        newest, retention = self._newest, self.retention
        longest = min(LONGEST_RUN, max(1, retention.decisions // RUNS))
        if newest is None or newest.length >= longest:
            return None
        return newest if at - newest.began_at < retention.decisions_checkpoint_s else None

    def _add(self, row: DecisionRow) -> None:
        if row.id in self._rows:  # recorded while the index was read, or after a write whose answer was lost
            return
        self._rows[row.id] = row
        self._runs.setdefault(row.checkpoint or row.id, []).append(row.id)
        self.size_bytes += row.size_bytes

    def _forget(self, names: list[str]) -> None:
        """One run, whole."""
        for name in list(names):
            row = self._rows.pop(name)
            self._runs.pop(row.checkpoint or row.id, None)
            self.size_bytes -= row.size_bytes

    def _over_the_limit(self, new: DecisionRow) -> list[str]:
        """The oldest run, when there is no room for it beside the new record; never the one that the record continues."""
        count, size_bytes = len(self._rows) + 1, self.size_bytes + new.size_bytes
        if count <= self.retention.decisions and size_bytes <= self.retention.decisions_mib * 2**20:
            return []
        oldest = next(iter(self._runs), new.checkpoint)
        return [] if oldest == new.checkpoint else self._runs[oldest]


def _place(row: DecisionRow) -> tuple[float, str]:
    return row.at, row.id


def _keys(names: list[str]) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in (PREFIX, INDEX))


def _read(run: Sequence[DecisionRecord], parts: Parts) -> tuple[Problem, Plan, Parts]:
    """The first of these records, of which each follows from the next one, and the last from `parts`. Raises `Damaged`."""
    if run and run[0].problem:
        return *_read_whole(run[0]), []
    for record in reversed(run):
        parts = unpack(parts, record.parts)
    return *join(parts), parts


def _read_whole(record: DecisionRecord) -> tuple[Problem, Plan]:
    """A record of before there were parts. Raises `Damaged`."""
    try:
        problem = msgspec.json.decode(zlib.decompress(record.problem), type=Problem)
        return problem, msgspec.json.decode(zlib.decompress(record.plan), type=Plan)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise Damaged(f"a recorded decision cannot be read: {error}") from None

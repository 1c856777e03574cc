"""Recorded decisions: the problem and the plan of a turn, so that anyone can ask later why, and run it again.

For now each record is the whole problem, compressed; limits by count and size keep the store small. A replay runs the same stages that completed
and compares byte for byte.
"""

import zlib
from collections import OrderedDict

import msgspec

from federator.control.records import Records
from federator.kernel.errors import NotFound
from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.ports import Put, Solver, Store, Transaction
from federator.settings import RetentionSettings
from federator.wire.http import DecisionRow

PREFIX = "decision/"
INDEX = "decision-index/"
MOST_DROPPED = 50
"""Decisions dropped in one transaction: each has two keys, and stores take 120."""


class Record(msgspec.Struct, frozen=True):
    """A decision as it is stored: JSON, deflated."""

    problem: bytes
    plan: bytes


class DecisionLog:
    """The recorded decisions of this store, newest last."""

    def __init__(self, records: Records, retention: RetentionSettings, solver: Solver) -> None:
        self._records = records
        self._store: Store = records.store
        self._retention = retention
        self._solver = solver
        self._rows: OrderedDict[str, DecisionRow] = OrderedDict()
        self._size_bytes = 0

    async def load_index(self) -> None:
        """Read what is recorded. Called once."""
        after: str | None = None
        while True:
            page = await self._store.range(INDEX, after=after)
            for item in page.items:
                self._add(msgspec.json.decode(item.value, type=DecisionRow))
            after = page.next_after
            if after is None:
                return

    def rows(self) -> list[DecisionRow]:
        """All recorded decisions, oldest first."""
        return list(self._rows.values())

    def kept(self, decision: str) -> bool:
        """Whether it can be shown: a turn that did nothing is not recorded."""
        return decision in self._rows

    async def record(self, problem: Problem, plan: Plan, *, committed: int | None = None) -> None:
        """Keep this decision, of which so many actions were committed (None: all), and drop the oldest over the limits."""
        if not self._retention.decisions:
            return
        record = Record(
            zlib.compress(msgspec.json.encode(problem), 1), zlib.compress(msgspec.json.encode(plan), 1)
        )
        row = DecisionRow(
            id=plan.decision,
            at=plan.taken_at,
            winner=plan.winner,
            objective_usd=plan.objective_usd,
            actions=len(plan.actions) if committed is None else committed,
            jobs=len(problem.snapshot.jobs),
            stages=", ".join(stage.stage for stage in plan.stages if stage.completed),
            size_bytes=len(record.problem) + len(record.plan),
        )
        puts = (
            Put(PREFIX + row.id, msgspec.msgpack.encode(record)),
            Put(INDEX + row.id, msgspec.json.encode(row)),
        )
        dropped = self._over_the_limit(row)
        await self._records.commit(Transaction(puts=puts, deletes=_keys(dropped)))
        # Only now: were the disk full, the list would name what is not there.
        self._add(row)
        self._forget(dropped)

    async def drop_before(self, at: float) -> None:
        """Drop the decisions of before then."""
        while dropped := [row.id for row in self._rows.values() if row.at < at][:MOST_DROPPED]:
            await self._records.commit(Transaction(deletes=_keys(dropped)))
            self._forget(dropped)

    async def load(self, decision: str) -> tuple[Problem, Plan]:
        """What was seen and what was decided. Raises `NotFound`."""
        item = await self._store.get(PREFIX + decision)
        if item is None:
            raise NotFound(
                f"no recorded decision {decision}",
                remedy="'federator decisions list' shows those that are kept",
            )
        record = msgspec.msgpack.decode(item.value, type=Record)
        problem = msgspec.json.decode(zlib.decompress(record.problem), type=Problem)
        return problem, msgspec.json.decode(zlib.decompress(record.plan), type=Plan)

    async def replay(self, decision: str) -> dict[str, object]:
        """Decide again from the record; say whether the same came out, and where not."""
        problem, plan = await self.load(decision)
        stages = tuple(stage.stage for stage in plan.stages if stage.completed)
        again = await self._solver.decide(problem, stages=stages, seed=plan.seed, limit_s=60.0)
        if again is None:
            return {"identical": False, "differences": ["the solver did not answer"]}
        done = tuple(stage for stage in plan.stages if stage.completed)
        before = msgspec.to_builtins(msgspec.structs.replace(plan, stages=done))
        after = msgspec.to_builtins(again)
        differences = [name for name in before if before[name] != after[name]]
        return {"identical": not differences, "differences": differences}

    def _add(self, row: DecisionRow) -> None:
        self._rows[row.id] = row
        self._size_bytes += row.size_bytes

    def _forget(self, names: list[str]) -> None:
        for name in names:
            row = self._rows.pop(name, None)
            self._size_bytes -= row.size_bytes if row is not None else 0

    def _over_the_limit(self, new: DecisionRow) -> list[str]:
        """The oldest, as far as there is no room for them beside the new one."""
        count, size_bytes = len(self._rows) + 1, self._size_bytes + new.size_bytes
        dropped: list[str] = []
        for name, row in self._rows.items():
            fits = count <= self._retention.decisions and size_bytes <= self._retention.decisions_mib * 2**20
            if fits or len(dropped) == MOST_DROPPED:
                break
            count, size_bytes = count - 1, size_bytes - row.size_bytes
            dropped.append(name)
        return dropped


def _keys(names: list[str]) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in (PREFIX, INDEX))

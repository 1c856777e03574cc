"""The rules as one decision sees them: what a policy says of each user, or of what a queue keeps for itself, as caps with numbers in them.

A cap for each owner becomes one for every owner whose waiting work could exceed it; a limit on lending becomes a cap on everybody else, from the GPUs
that there are at this moment. Planner and checker then know nothing but caps.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from federator.control.record.records import Records
from federator.model.capacity import Market
from federator.model.jobs import in_gpus, tidy
from federator.model.rules import (
    CapRow,
    CapUnit,
    Each,
    GuaranteeRow,
    PoolSelector,
    Rule,
    Scope,
    admits_queue,
    in_scope,
    planned,
)
from federator.model.snapshot import BusyView, JobView, PoolView

OWNED = PoolSelector(markets=(Market.OWNED,))
MOST_TOGETHER = 4
"""Of more queues that keep GPUs for themselves, only each by itself and all together are counted."""


class ConcreteRules:
    """Knows the policies in force; makes what depends on the moment at every look."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._version = -1
        self._each: list[CapRow] = []
        self._keeping: list[GuaranteeRow] = []
        self._plain: tuple[Rule, ...] = ()

    def at(self, jobs: Sequence[JobView], pools: Sequence[PoolView]) -> tuple[Rule, ...]:
        """All rules for a decision about these waiting jobs and this capacity."""
        policies = self._records.policies
        if policies.version != self._version:
            self._version = policies.version
            self._each = [r for r in policies.rules if isinstance(r, CapRow) and r.each]
            self._keeping = [r for r in policies.rules if isinstance(r, GuaranteeRow) and _keeps(r)]
            self._plain = tuple(r for r in planned(policies.rules) if not (isinstance(r, CapRow) and r.each))
        if not self._each and not self._keeping:
            return self._plain
        own = (row for cap in self._each if cap.each is Each.OWNER for row in _per_owner(cap, jobs, pools))
        return (*self._plain, *own, *_kept_free(self._keeping, pools))


def of_owner(cap: CapRow, owner: str) -> CapRow:
    """A cap for each owner, as the one for this owner."""
    scope = msgspec.structs.replace(cap.scope, owners=(owner,))
    return msgspec.structs.replace(cap, each=Each.TOGETHER, scope=scope, share=owner)


def _per_owner(cap: CapRow, jobs: Sequence[JobView], pools: Sequence[PoolView]) -> Iterator[CapRow]:
    wanted: dict[str, float] = {}
    for job in jobs:
        if in_scope(cap.scope, queue=job.queue, owner=job.owner, labels=job.labels):
            adds = cap.counts(job.gpus_total, job.licenses)
            wanted[job.owner] = wanted.get(job.owner, 0) + adds
    if cap.unit is not CapUnit.USD:  # what cannot reach its limit needs no row
        used = dict(wanted)
        for busy in _ours(pools):
            if busy.owner in wanted and in_scope(
                cap.scope, queue=busy.queue, owner=busy.owner, labels=busy.labels
            ):
                used[busy.owner] += cap.counts(busy.gpus_total, busy.licenses, int(busy.leads))
        wanted = {owner: count for owner, count in wanted.items() if tidy(used[owner]) > cap.limit}
    yield from (of_owner(cap, owner) for owner in sorted(wanted))


def _keeps(row: GuaranteeRow) -> bool:
    return row.lending_limit is not None and row.lending_limit < row.gpus


def _kept_free(keeping: Sequence[GuaranteeRow], pools: Sequence[PoolView]) -> Iterator[CapRow]:
    """What everybody else may use together, for each queue that keeps GPUs for itself and for several of them."""
    if not keeping:
        return
    owned = [pool for pool in pools if pool.market is Market.OWNED]
    there: float = sum(
        in_gpus(s.gpus * s.count, shared=pool.shared) for pool in owned if pool.open for s in pool.free
    )
    there += sum(busy.gpus_total for busy in _ours(owned))
    for some in _together(keeping):
        names = [row.queue for row in some]
        kept = sum(row.gpus - (row.lending_limit or 0) for row in some)
        yield CapRow(
            policy=some[0].policy,
            unit=CapUnit.GPUS,
            limit=float(max(0, there - kept)),
            scope=Scope(not_queues=tuple(names)),
            pools=OWNED,
            share=f"{kept} of {there} owned GPUs are kept for {', '.join(names)}",
        )


def _together(keeping: Sequence[GuaranteeRow]) -> Iterator[tuple[GuaranteeRow, ...]]:
    """Queues none of which is below another: what one keeps lies within what the one above it keeps."""
    count = len(keeping)
    sizes: Iterable[int] = range(1, count + 1) if count <= MOST_TOGETHER else (1, count)
    for size in sizes:
        for some in combinations(keeping, size):
            if not any(a is not b and admits_queue((a.queue,), b.queue) for a in some for b in some):
                yield some


def _ours(pools: Iterable[PoolView]) -> Iterator[BusyView]:
    return (busy for pool in pools for busy in pool.busy if busy.placement is not None)

"""Guarantees by dominant share: what a queue is due of GPUs, cores and memory, and how far it is from it.

A guarantee is of an amount of each kind. What a policy does not say of cores and memory is the queue's share of the GPUs, of all that its sites have: who is
guaranteed a quarter of the GPUs is guaranteed a quarter of the cores and of the memory, so few GPUs with most of the memory count as what they keep from
others. A queue has its guarantee as soon as it has all that it is due of one kind: the one of which it has, and wants, the largest part.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from federator.model.capacity import Market
from federator.model.jobs import in_gpus
from federator.model.rules import GuaranteeRow, admits_queue
from federator.model.snapshot import BusyView, JobView, PoolView

KINDS = 3
"""GPUs, cores, memory: their places in an amount."""
MILLI_PER_GPU, MIB_PER_GPU = 8_000.0, 65_536.0
"""What counts as a GPU in the price of a shortfall where there are none at all."""
SLACK = 1e-9
"""Sums of thousandths and of shares may be off by so much of what is due."""


class Amount(NamedTuple):
    """So much of each kind: GPUs, milli-cores, MiB."""

    gpus: float = 0.0
    cpus: float = 0.0
    memory: float = 0.0

    def plus(self, other: "Amount", sign: float = 1.0) -> "Amount":
        """The sum, or with `sign` -1 the difference; GPUs in whole thousandths, since rounding must not make a queue borrow."""
        return Amount(
            round(self.gpus + sign * other.gpus, 3),
            self.cpus + sign * other.cpus,
            self.memory + sign * other.memory,
        )

    def within(self, due: "Amount") -> bool:
        """Whether it is no more than that, of any kind."""
        return all(has <= most * (1.0 + SLACK) for has, most in zip(self, due, strict=True))

    def beyond(self, due: "Amount") -> tuple[bool, ...]:
        """Of which kinds it is more."""
        return tuple(has > most * (1.0 + SLACK) for has, most in zip(self, due, strict=True))


def of_work(work: JobView | BusyView) -> Amount:
    """What a job asks for over all its nodes, or what a placement has."""
    return Amount(
        float(work.gpus_total), float(work.nodes * work.cpus_milli), float(work.nodes * work.memory_mib)
    )


def widest(row: GuaranteeRow, job: JobView, used: Amount, due: Amount) -> Amount | None:
    """What the queue has with the job in the widest of its forms that the guarantee covers; None where it covers none."""
    sizes = [(job.models, of_work(job))]
    for form in job.forms:
        each, nodes = form.resources, form.nodes
        gpus = in_gpus(nodes * each.gpus.each, shared=bool(each.gpus.share_milli))
        memory = float(nodes * (each.memory_mib + each.shm_mib))
        sizes.append((each.gpus.models, Amount(float(gpus), float(nodes * each.cpus_milli), memory)))
    sums = [used.plus(size) for models, size in sizes if not row.model or row.model in models]
    return max((then for then in sums if then.within(due)), default=None)


def by_queue(pools: Iterable[PoolView]) -> dict[tuple[str, str], Amount]:
    """What our placements have of what is owned, by queue and GPU model."""
    use: dict[tuple[str, str], Amount] = {}
    for pool in pools:
        for busy in pool.busy if pool.market is Market.OWNED else ():
            if busy.placement is not None:
                key = busy.queue, pool.model
                use[key] = use.get(key, Amount()).plus(of_work(busy))
    return use


def in_use(row: GuaranteeRow, running: Mapping[tuple[str, str], Amount]) -> Amount:
    """What the guaranteed queue has of that."""
    used = Amount()
    for (queue, model), amount in running.items():
        if admits_queue((row.queue,), queue) and row.model in ("", model):
            used = used.plus(amount)
    return used


def in_all(row: GuaranteeRow, pools: Iterable[PoolView]) -> Amount:
    """What there is of that of which a guarantee is, free or not."""
    total = Amount()
    for pool in pools:
        if pool.market is Market.OWNED and row.model in ("", pool.model):
            gpus = in_gpus(pool.nodes * pool.gpus_per_node, shared=pool.shared)
            cpus, memory = pool.nodes * pool.cpus_milli_per_node, pool.nodes * pool.memory_mib_per_node
            total = total.plus(Amount(float(gpus), float(cpus), float(memory)))
    return total


class Due(NamedTuple):
    """What a guaranteed queue is due, and what one unit of each kind is in GPUs: its price."""

    amount: Amount
    in_gpus: Amount

    def leading(self, wanted: Amount) -> int:
        """The kind of which so much is the largest part of what is due: a shortfall is counted in that one."""
        parts = [
            part / due if 0.0 < due < float("inf") else 0.0
            for part, due in zip(wanted, self.amount, strict=True)
        ]
        return parts.index(max(parts)) if max(parts) > 0.0 else self._first()

    def shortfall(self, used: Amount, wanted: Iterable[JobView]) -> "Shortfall":
        """In what it is counted while so much is in use and these wait."""
        total = used
        for job in wanted:
            total = total.plus(of_work(job))
        kind = self.leading(total)
        each = self.in_gpus[kind]
        return Shortfall(kind, each, self.amount[kind] * each, used[kind] * each)

    def _first(self) -> int:
        return next((kind for kind, due in enumerate(self.amount) if 0.0 < due < float("inf")), 0)


class Shortfall(NamedTuple):
    """How a guarantee's shortfall is counted in one decision: in what kind, and what one unit of it is in GPUs; in GPUs, what is due of it and what is in use now."""

    kind: int
    each: float
    due: float
    used: float

    def of(self, work: JobView) -> float:
        """What a job adds, in GPUs."""
        return of_work(work)[self.kind] * self.each


def due_of(row: GuaranteeRow, pools: Sequence[PoolView]) -> Due:
    """What the queue is due of each kind: as the policy says, or its share; without bound of what no site has said to have."""
    there = in_all(row, pools)
    stated = Amount(float(row.gpus), float(row.cpus_milli), float(row.memory_mib))
    share = max(
        (said / total if total else 0.0 for said, total in zip(stated, there, strict=True)), default=0.0
    )
    by_share = Amount(0.0, *(share * total if total else float("inf") for total in there[1:]))
    amount = Amount(*(said or part for said, part in zip(stated, by_share, strict=True)))
    worth = amount.gpus or share * there.gpus
    worth = worth or max(row.cpus_milli / MILLI_PER_GPU, row.memory_mib / MIB_PER_GPU)
    each = [worth / due if 0.0 < due < float("inf") else 0.0 for due in amount]
    return Due(amount, Amount(*each))

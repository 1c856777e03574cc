"""What guaranteed queues are due of GPUs, cores and memory, and have: who is covered by a guarantee, and who has more than is his.

A policy that says nothing of cores or memory means the queue's share of the GPUs. Nothing is said of what no site says to have.
"""

import math
from collections.abc import Iterable, Sequence

from federator.model.rules import GuaranteeRow, admits_queue
from federator.model.snapshot import BusyView, JobView, PoolView

Parts = list[float]
"""GPUs, milli-cores, MiB."""
ROUNDING, LEAST = 1e-6, 1e-10
"""Sums of these may be off by so large a part of what is due; and what is more by so much is more."""


def asked(who: JobView | BusyView) -> Parts:
    """Of all its nodes there."""
    return [who.gpus_total, float(who.nodes * who.cpus_milli), float(who.nodes * who.memory_mib)]


def due(row: GuaranteeRow, owned: Iterable[PoolView]) -> Parts:
    """What the guarantee is of, where so much is owned."""
    have = [0.0, 0.0, 0.0]
    for pool in owned:
        if row.model not in ("", pool.model):
            continue
        each = pool.gpus_per_node / 1000 if pool.shared else pool.gpus_per_node
        for part, size in enumerate((each, pool.cpus_milli_per_node, pool.memory_mib_per_node)):
            have[part] += pool.nodes * size
    said = [float(row.gpus), float(row.cpus_milli), float(row.memory_mib)]
    share = max(part / total if total else 0.0 for part, total in zip(said, have, strict=True))
    rest = [share * total if total else math.inf for total in have]
    return [said[0], said[1] or rest[1], said[2] or rest[2]]


def plus(these: Parts, those: Parts) -> Parts:
    """The sum."""
    return [one + other for one, other in zip(these, those, strict=True)]


def used(row: GuaranteeRow, running: Iterable[tuple[str, BusyView]]) -> Parts:
    """What runs of the queue on what is owned, each with the model that it is on."""
    total = [0.0, 0.0, 0.0]
    for model, busy in running:
        if row.model in ("", model) and admits_queue((row.queue,), busy.queue):
            total = plus(total, asked(busy))
    return total


def covered(who: JobView, used: Sequence[float], most: Sequence[float]) -> bool:
    """Whether it asks for something, and the queue has no more than it is due with it."""
    more = asked(who)
    return any(more) and all(
        has + adds <= limit * (1.0 + ROUNDING) + ROUNDING
        for has, adds, limit in zip(used, more, most, strict=True)
    )


def beyond(who: BusyView, used: Sequence[float], most: Sequence[float]) -> bool:
    """Whether the queue has more than it is due of something that this work has."""
    return any(
        own and has > limit * (1.0 + LEAST) for own, has, limit in zip(asked(who), used, most, strict=True)
    )

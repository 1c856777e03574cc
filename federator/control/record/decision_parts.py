"""A decision in parts, and what changed between two of them: so that a record costs what is new in a turn, not what there is.

From turn to turn most of what a decision sees stays as it was: of a thousand waiting jobs a few have changed, and of a pool its free hosts and one
piece of its work. So a decision is taken apart into small encoded parts, in a fixed order, and written as copies from the decision before it and
the parts that are new. What changes in every turn for everything – the age of each report, how long a job is kept by work outside the window – is
kept together in the first part.

The parts are found by the types of the records alone. A new field is part of its record's part, or of the first; nothing here need know of it, and
a decision recorded before the field was there has its default.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import Damaged
from federator.model.plans import Action, Finding, Plan, StageReport, Waiting
from federator.model.rules import Rule
from federator.model.snapshot import BusyView, JobView, Lead, OfferView, Outside, PoolView, Problem, SpendView

Parts = list[bytes]
LEVEL = 6
"""What is new is little: it is worth packing well."""
WORDS_BYTES = 24_000
"""With the head, less than the 32 KiB that a packer looks back."""
SEEN: dict[str, Any] = {
    "jobs": JobView,
    "pools": PoolView,
    "offers": OfferView,
    "rules": Rule,
    "spend": SpendView,
}
DECIDED: dict[str, Any] = {"stages": StageReport, "actions": Action, "waiting": Waiting, "findings": Finding}


class _Head(msgspec.Struct, frozen=True):
    """The first part: the two records without their parts, how many of each kind follow, and what changes in every turn."""

    problem: Problem
    plan: Plan
    counts: dict[str, int]
    busy: tuple[int, ...]
    """Pieces of work of each pool."""
    ages_s: tuple[float, ...]
    """Of each pool's report."""
    behind_s: dict[int, float]
    """Of jobs, by their number, those whose `behind_s` is not 0."""


class Delta(msgspec.Struct, frozen=True):
    """A decision's parts, given those of another one."""

    runs: tuple[tuple[int, int], ...]
    """Where in the other one, and how many; -1: so many of the new ones."""
    new: tuple[bytes, ...]


_encode = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(_Head)
_delta = msgspec.msgpack.Decoder(Delta)
_price = msgspec.msgpack.Decoder(tuple[str, float])
_taken = msgspec.msgpack.Decoder(tuple[str, Outside])
_lead = msgspec.msgpack.Decoder(Lead)
_busy = msgspec.msgpack.Decoder(BusyView)
_readers = {name: msgspec.msgpack.Decoder(kind) for name, kind in (SEEN | DECIDED).items()}


def split(problem: Problem, plan: Plan) -> Parts:
    """The parts of a decision; `join` puts them together again."""
    seen = problem.snapshot
    head = _Head(
        problem=replace(
            problem, snapshot=replace(seen, **dict.fromkeys(SEEN, ())), warm_prices={}, outside={}, leads=()
        ),
        plan=replace(plan, **dict.fromkeys(DECIDED, ()), prices={}),
        counts={name: len(getattr(seen, name)) for name in SEEN}
        | {name: len(getattr(plan, name)) for name in DECIDED}
        | {
            "warm_prices": len(problem.warm_prices),
            "outside": len(problem.outside),
            "leads": len(problem.leads),
            "prices": len(plan.prices),
        },
        busy=tuple(len(pool.busy) for pool in seen.pools),
        ages_s=tuple(pool.age_s for pool in seen.pools),
        behind_s={number: job.behind_s for number, job in enumerate(seen.jobs) if job.behind_s},
    )
    parts = [_encode(head)]
    parts += [_encode(replace(job, behind_s=0.0) if job.behind_s else job) for job in seen.jobs]
    for pool in seen.pools:
        parts.append(_encode(replace(pool, busy=(), age_s=0.0)))
        parts += map(_encode, pool.busy)
    for name in ("offers", "rules", "spend"):
        parts += map(_encode, getattr(seen, name))
    parts += map(_encode, problem.warm_prices.items())
    parts += map(_encode, problem.outside.items())
    parts += map(_encode, problem.leads)
    for name in DECIDED:
        parts += map(_encode, getattr(plan, name))
    parts += map(_encode, plan.prices.items())
    return parts


def join(parts: Sequence[bytes]) -> tuple[Problem, Plan]:
    """What `split` took apart. Raises `Damaged`."""
    try:
        head = _head.decode(parts[0])
        expected = 1 + sum(head.counts.values()) + sum(head.busy)
        if len(parts) != expected or len(head.busy) != head.counts["pools"]:
            raise Damaged(f"a recorded decision cannot be read: {len(parts)} parts instead of {expected}")
        return _put_together(head, iter(parts[1:]))
    except (msgspec.MsgspecError, LookupError, ValueError) as error:
        raise Damaged(f"a recorded decision cannot be read: {error}") from None


def _put_together(head: _Head, rest: Iterator[bytes]) -> tuple[Problem, Plan]:
    """`rest`: as many parts as the head says."""

    def read(name: str) -> tuple[Any, ...]:
        return tuple(_readers[name].decode(next(rest)) for _ in range(head.counts[name]))

    jobs = list(read("jobs"))
    for number, behind_s in head.behind_s.items():
        jobs[number] = replace(jobs[number], behind_s=behind_s)
    pools = []
    for busy, age_s in zip(head.busy, head.ages_s, strict=True):
        pool = _readers["pools"].decode(next(rest))
        work = tuple(_busy.decode(next(rest)) for _ in range(busy))
        pools.append(replace(pool, busy=work, age_s=age_s))
    seen = {name: read(name) for name in ("offers", "rules", "spend")}
    warm = dict(_price.decode(next(rest)) for _ in range(head.counts["warm_prices"]))
    outside = dict(_taken.decode(next(rest)) for _ in range(head.counts.get("outside", 0)))
    leads = tuple(_lead.decode(next(rest)) for _ in range(head.counts.get("leads", 0)))
    decided = {name: read(name) for name in DECIDED}
    prices = dict(_price.decode(next(rest)) for _ in range(head.counts["prices"]))
    snapshot = replace(head.problem.snapshot, jobs=tuple(jobs), pools=tuple(pools), **seen)
    problem = replace(head.problem, snapshot=snapshot, warm_prices=warm, outside=outside, leads=leads)
    return problem, replace(head.plan, **decided, prices=prices)


def _words(before: Parts) -> bytes:
    """What a packer may expect to see again: the end of the decision before, which is its plan, and its head."""
    return b"".join(before)[-WORDS_BYTES:] + b"".join(before[:1])


def pack(before: Parts, parts: Parts) -> bytes:
    """The parts as they are stored, given those of the decision before; of a checkpoint there are none."""
    known = {part: number for number, part in enumerate(before)}
    runs: list[tuple[int, int]] = []
    new: list[bytes] = []
    for part in parts:
        start, count = runs[-1] if runs else (-1, 0)
        follows = start + count
        if runs and start >= 0 and follows < len(before) and before[follows] == part:
            runs[-1] = (start, count + 1)
        elif part in known:
            runs.append((known[part], 1))
        else:
            new.append(part)
            if runs and start < 0:
                runs[-1] = (-1, count + 1)
            else:
                runs.append((-1, 1))
    packer = zlib.compressobj(LEVEL, zdict=_words(before))
    return packer.compress(_encode(Delta(tuple(runs), tuple(new)))) + packer.flush()


def unpack(before: Parts, data: bytes) -> Parts:
    """The parts that `pack` has packed. Raises `Damaged`."""
    try:
        delta = _delta.decode(zlib.decompressobj(zdict=_words(before)).decompress(data))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise Damaged(f"a recorded decision cannot be read: {error}") from None
    if sum(count for start, count in delta.runs if start < 0) != len(delta.new):
        raise Damaged(
            f"a recorded decision cannot be read: {len(delta.new)} new parts are too few or too many"
        )
    new = iter(delta.new)
    parts: Parts = []
    for start, count in delta.runs:
        parts += [next(new) for _ in range(count)] if start < 0 else before[start : start + count]
    return parts

"""What moved the forecast of a job: recorded decisions one after the other, and between two of them what has changed for it.

A decision is a problem and a plan, and each is large, so that of a long time only some are read, evenly spread; what lies between two of them is told
together.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple

from federator.control.administration.visibility import ANOTHERS
from federator.control.record.decisions import DecisionLog
from federator.control.record.records import Records
from federator.control.turns.turn import Turn
from federator.model.jobs import Job
from federator.model.plans import Place, Plan, Rent
from federator.model.snapshot import BusyView, JobView, Problem
from federator.planning.wording import gpus
from federator.wire.http import ForecastMove

MOST_DECISIONS = 40
MOST_JOBS = 3
"""Jobs that are named of each kind of change; more are counted."""
LEAST_S = 60.0
LEAST_SHARE = 0.05
"""A start that moves by less than both, of the wait that is left, has not moved."""
WAITS_FOR = ("priority", "deadline_at", "queue", "value_usd", "max_cost_usd", "max_duration_s")
Named = Callable[[str], str]


class _Seen(NamedTuple):
    """What one decision foresaw for the job."""

    problem: Problem
    plan: Plan
    start_at: float | None
    finish_at: float | None


async def forecast_moves(
    records: Records,
    turn: Turn,
    decisions: DecisionLog,
    job: Job,
    since_at: float,
    may_see: Callable[[Job], bool],
) -> list[ForecastMove]:
    """The moves of its forecast since then, oldest first; the first is what was foreseen at the beginning. Of others' jobs that may not be seen, no names."""

    def named(name: str) -> str:
        found = records.jobs.get(name)
        return f"{found.label} of {found.owner}" if found is not None and may_see(found) else ANOTHERS

    moves: list[ForecastMove] = []
    former: _Seen | None = None
    async for seen in _decided(turn, decisions, job, since_at):
        if former is None or _has_moved(former, seen):
            because = () if former is None else tuple(_changes(former, seen, job.id, named))
            decision = seen.plan.decision if decisions.kept(seen.plan.decision) else ""
            moves.append(ForecastMove(seen.plan.taken_at, decision, seen.start_at, seen.finish_at, because))
            former = seen
    return moves


async def _decided(turn: Turn, decisions: DecisionLog, job: Job, since_at: float) -> AsyncIterator[_Seen]:
    """What decisions since then foresaw for it: of many recorded ones some, evenly spread, and the newest."""
    rows = decisions.before(None, max(since_at, job.submitted_at), math.inf, decisions.retention.decisions)
    step = max(1, -(-len(rows) // MOST_DECISIONS))
    async for problem, plan in decisions.each(row.id for row in rows[::-1][::step][::-1]):
        if (found := _seen(problem, plan, job.id)) is not None:
            yield found
    if turn.last is not None and (newest := _seen(*turn.last, job.id)) is not None:
        yield newest


def _seen(problem: Problem, plan: Plan, job: str) -> _Seen | None:
    """None where the decision did not look at the job."""
    for waiting in plan.waiting:
        if waiting.job == job:
            return _Seen(problem, plan, waiting.expected_start_at, waiting.expected_finish_at)
    for action in plan.actions:
        if isinstance(action, Place | Rent) and action.job == job:
            return _Seen(problem, plan, action.expected_start_at, action.expected_end_at)
    return None


def _has_moved(former: _Seen, seen: _Seen) -> bool:
    if former.start_at is None or seen.start_at is None:
        return former.start_at is not seen.start_at
    least_s = max(LEAST_S, LEAST_SHARE * (former.start_at - seen.plan.taken_at))
    return abs(seen.start_at - former.start_at) >= least_s


def _changes(former: _Seen, seen: _Seen, job: str, named: Named) -> Iterator[str]:
    """In words, the likeliest cause first."""
    before, now = former.problem.snapshot, seen.problem.snapshot
    old = {each.id: each for each in before.jobs}
    new = {each.id: each for each in now.jobs}
    yield from _own(old.get(job), new.get(job))
    if before.policy_version != now.policy_version:
        yield f"policies are of version {now.policy_version}"
    yield from _capacity(former.problem, seen.problem)
    held, holds = _running(former.problem), _running(seen.problem)
    at = seen.plan.taken_at
    later = [name for name in held.keys() & holds.keys() if holds[name] - held[name] >= LEAST_S]
    yield from _told(later, named, lambda who: f"{who} runs longer than expected")
    ended = [name for name in held.keys() - holds.keys() if held[name] - at >= LEAST_S and name != job]
    yield from _told(ended, named, lambda who: f"{who} ended sooner than expected")
    ahead = _starts_before(seen, job) - _starts_before(former, job)
    fresh = [name for name in ahead if name not in old]
    yield from _told(fresh, named, lambda who: f"{who} came, and is to start before it")
    yield from _told(
        [name for name in ahead if name in old], named, lambda who: f"{who} is now to start before it"
    )
    gone = [name for name in _starts_before(former, job) if name not in new and name not in holds]
    yield from _told(gone, named, lambda who: f"{who}, which was before it, waits no more")


def _own(old: JobView | None, new: JobView | None) -> Iterator[str]:
    if old is not None and new is not None:
        changed = [name for name in WAITS_FOR if getattr(old, name) != getattr(new, name)]
        if changed:
            yield f"its own {', '.join(name.removesuffix('_at').removesuffix('_usd').removesuffix('_s') for name in changed)} changed"


def _capacity(before: Problem, now: Problem) -> Iterator[str]:
    """GPUs of sites that came or went, were closed or opened."""
    old, new = _gpus(before), _gpus(now)
    for site in sorted(old.keys() | new.keys()):
        more = new.get(site, 0) - old.get(site, 0)
        if more:
            yield f"{site} has {gpus(abs(more))} {'more' if more > 0 else 'fewer'}"


def _gpus(problem: Problem) -> dict[str, int]:
    found: dict[str, int] = {}
    for pool in problem.snapshot.pools:
        if pool.open:
            there = sum(shape.gpus * shape.count for shape in pool.free)
            there += sum(busy.gpus * busy.nodes for busy in pool.busy)
            found[pool.site] = found.get(pool.site, 0) + (there // 1000 if pool.shared else there)
    return found


def _running(problem: Problem) -> dict[str, float]:
    """Until when each job of ours that runs is expected to."""

    def ours(busy: Sequence[BusyView]) -> Iterator[tuple[str, float]]:
        return ((each.job, each.ends_at) for each in busy if each.job is not None)

    return {job: ends_at for pool in problem.snapshot.pools for job, ends_at in ours(pool.busy)}


def _starts_before(seen: _Seen, job: str) -> set[str]:
    mine = seen.start_at
    if mine is None:
        return set()
    return {
        each.job
        for each in seen.plan.waiting
        if each.job != job and each.expected_start_at is not None and each.expected_start_at < mine
    }


def _told(jobs: Sequence[str], named: Named, words: Callable[[str], str]) -> Iterator[str]:
    """The first of these by name, the rest counted."""
    for name in sorted(jobs)[:MOST_JOBS]:
        yield words(named(name))
    if len(jobs) > MOST_JOBS:
        yield words(f"and {len(jobs) - MOST_JOBS} more, each")

"""Who must make room: guarantees that are owed, and rules that let some displace others. Nothing else preempts.

A job within its queue's guarantee takes its place back from borrowers: queues without a guarantee, or beyond theirs. The reclaim time counts from when the
job began to wait. Borrowers are stopped as soon as it would start too late by the forecast, and, whatever is forecast, when no more is left of that time than their grace: work that has
outrun its forecast is always about to end. The least is stopped that makes the whole gang fit on one place: lowest priority first, among those who had not to leave a
while ago already, those whose stop loses least – the work since the last checkpoint, all of it where there is none, and the start that has to be done again; over several
members only where no single one would do. Nothing is stopped where what stops already makes room, or where a limit keeps the job. What a stop frees is planned with in a later turn, when the site says so.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.plans import Preempt
from federator.model.queues import under
from federator.model.reasons import Displaces, MakesRoom, OwedGuarantee
from federator.model.rules import GuaranteeRow, PreemptRule, in_scope
from federator.model.snapshot import BusyView, JobView
from federator.planning.plans.room_made import Rooms, Victim, stop, waits
from federator.planning.rules.rulebook import matches
from federator.planning.rules.shares import Amount, of_work, widest
from federator.planning.scheduling.objective import Scored
from federator.planning.world.problem import World

MOST_SERVED = 200
"""Jobs for which others are stopped in one turn; whoever comes behind them is served in the next."""


class Reclaim(NamedTuple):
    """What is stopped for a job, and what entitles it to that; None where nothing comes of it now."""

    stops: tuple[Preempt, ...]
    reason: OwedGuarantee | Displaces | None


class Claim(NamedTuple):
    """What entitles a job to make others stop: by when it is to have room, in what forms it is entitled to start, who may be stopped, and the reason."""

    due_at: float
    promised: bool
    """Whether it is to have its room by then, so that whoever has a grace is told sooner; else others are left alone until then."""
    covers: Callable[[JobView], bool]
    may_stop: Victim
    reason: OwedGuarantee | Displaces

    def is_due(self, booked_at: float | None, grace_s: float, now: float) -> bool:
        """Whether it is time to stop work with so long a grace, where the job would start then otherwise. A forecast is no reason to go on waiting when time is up."""
        if booked_at is None or booked_at > self.due_at:
            return True
        return now >= self.due_at - (grace_s if self.promised else 0.0)


Used = dict[GuaranteeRow, Amount]
"""What is in use under each guarantee."""


def reclaim(world: World, scored: Scored) -> dict[str, Reclaim]:
    """For each job that may make others stop: what stops. A placement is stopped once, and its room is given once."""
    found: dict[str, Reclaim] = {}
    rooms, served = Rooms(world, scored), 0
    used: Used = {row: world.in_use(row).plus(_started(world, scored, row)) for row in world.guarantees}
    for job in world.jobs:
        if served >= MOST_SERVED:
            break
        if not waits(world, scored, job):
            continue
        for claim in _claims(world, job, used):
            answer = _room(rooms, job, claim, used)
            if answer is None:
                break
            if answer.reason is not None:
                served += bool(answer.stops)
                found[job.id] = answer
                break
    return found


def claims_at(world: World, scored: Scored) -> list[float]:
    """When time alone may let a job make others stop."""
    graces = {0.0, *(busy.grace_s for busy in world.running.values())}
    due: list[float] = []
    for job in world.jobs:
        if not waits(world, scored, job):
            continue
        if job.id in world.owed:
            rows = (row for row in world.guarantees if under(job.queue, row.queue))
            due += [job.waits_since + row.reclaim_s - grace_s for row in rows for grace_s in graces]
        due += [
            job.waits_since + rule.patience_s for rule in world.book.preemptions if matches(rule.who, job)
        ]
    return due


def _room(rooms: Rooms, job: JobView, claim: Claim, used: Used) -> Reclaim | None:
    """What the claim comes to now: stops, or words alone where what stops already makes room, or neither; None where the job has room, and waits for something else."""
    world = rooms.world
    choices = [choice for choice in world.home(job) if claim.covers(world.as_form(job, choice))]
    given = rooms.given(job, choices)
    if given is None:
        return None
    if given:
        return Reclaim((), replace(claim.reason, made=True))
    booking = rooms.scored.booking(job.id)
    booked_at = None if booking is None else booking.start_at
    longest_s = max((busy.grace_s for busy in world.running.values()), default=0.0)
    if not claim.is_due(booked_at, longest_s, world.now):
        return Reclaim((), None)
    gap = rooms.least(job, choices, claim.may_stop)
    if gap is None or not claim.is_due(booked_at, max(busy.grace_s for busy in gap.victims), world.now):
        return Reclaim((), None)
    rooms.make(job, gap)
    for busy in gap.victims:
        _give_up(used, busy, world.places[gap.place].model)
    why = MakesRoom(job=f"{job.name} ({job.id})", why=claim.reason)
    stops = tuple(stop(busy, job.id, why) for busy in gap.victims)
    return Reclaim(stops, replace(claim.reason, stops=len(stops)))


def _claims(world: World, job: JobView, used: Used) -> Iterator[Claim]:
    for row, has in used.items():
        due = world.dues[row].amount
        if job.id in world.owed and under(job.queue, row.queue) and widest(row, job, has, due):
            reason = OwedGuarantee(
                queue=row.queue,
                gpus=row.gpus,
                model=row.model,
                cpus_milli=row.cpus_milli,
                memory_mib=row.memory_mib,
                reclaim_s=row.reclaim_s,
            )
            yield Claim(
                job.waits_since + row.reclaim_s,
                True,
                partial(_within, has, due),
                partial(_borrows, world, used, row),
                reason,
            )
    for rule in world.book.preemptions:
        if matches(rule.who, job):
            yield Claim(
                job.waits_since + rule.patience_s,
                False,
                lambda _: True,
                partial(_yields, rule, job, world.now),
                Displaces(policy=rule.policy),
            )


def _within(has: Amount, due: Amount, view: JobView) -> bool:
    """Whether a queue that has so much has no more than it is due with the job in that form."""
    return has.plus(of_work(view)).within(due)


def _yields(rule: PreemptRule, job: JobView, now: float, busy: BusyView, _model: str) -> bool:
    """Whether a preemption rule lets the job displace a placement."""
    return (
        in_scope(rule.victims, queue=busy.queue, owner=busy.owner, labels=busy.labels)
        and now - busy.started_at >= rule.minimum_run_s
        and job.priority - busy.priority >= rule.minimum_priority_gap
        and (busy.displaced_at is None or now - busy.displaced_at >= rule.cool_down_s)
    )


def _borrows(world: World, used: Used, owed: GuaranteeRow, busy: BusyView, model: str) -> bool:
    """Whether a placement runs beyond every guarantee that it counts towards, by what it has itself, and not under the one that is owed."""
    if under(busy.queue, owed.queue) or owed.model not in ("", model):
        return False
    rows = [row for row in used if under(busy.queue, row.queue) and row.model in ("", model)]
    has = of_work(busy)
    return all(
        any(over and own for over, own in zip(used[row].beyond(world.dues[row].amount), has, strict=True))
        for row in rows
    )


def _give_up(used: Used, busy: BusyView, model: str) -> None:
    for row in used:
        if under(busy.queue, row.queue) and row.model in ("", model):
            used[row] = used[row].plus(of_work(busy), -1.0)


def _started(world: World, scored: Scored, row: GuaranteeRow) -> Amount:
    """What this decision gives a guaranteed queue."""
    total = Amount()
    for name, place in scored.starts.items():
        at, job = world.places[place], world.as_form(world.by_id[name], place)
        if not at.rented and under(job.queue, row.queue) and row.model in ("", at.model):
            total = total.plus(of_work(job))
    return total

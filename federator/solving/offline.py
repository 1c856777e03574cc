"""The solver as a tool of its own: a problem in, a plan file out.

What the plan is worth is found as the judge finds it (`judging`), from the problem and the plan's starts alone, so that a plan says of
itself what the judge will say.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.plans import Place, Plan, Preempt, Rent, StageReport, Waiting
from federator.model.snapshot import JobView, Problem
from federator.planning.explanations.ranges import ranges
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.wording.told import because_of, told_waiting, winner_words
from federator.planning.world.buckets import BUCKETS_H
from federator.planning.world.plan_starts import starts_of, turns_of
from federator.planning.world.problem import World
from federator.solving.decide import decide
from federator.solving.frames import STAGES
from federator.solving.plan_check import certificate_of, objective_of, same
from federator.wire.solver_plan import (
    FORMAT,
    Assignment,
    DataMoved,
    PlanFile,
    Range,
    Rental,
    Reserved,
    StageRun,
    Stop,
)


def run(
    problem: Problem,
    *,
    clock: Callable[[], float],
    seed: int = 0,
    stages: tuple[str, ...] = STAGES,
    proven: bool = False,
) -> PlanFile:
    """Decide, and write it down. `clock` (seconds) measures the stages and decides nothing; `proven` asks for a certificate."""
    laps = _Laps(clock)
    plan = decide(problem, seed=seed, stages=stages, watch=laps.ended)
    world = World(problem)
    order = _order(world, plan)
    evaluator = Evaluator(world).in_order(turns_of(world, order))
    starts = starts_of(evaluator.world, plan.actions)
    scored = evaluator.score(starts)
    expected = _expected(evaluator.world, scored)
    laps.begin()
    certificate = certificate_of(evaluator, starts) if proven else None
    laps.ended("certificate")
    if certificate is not None:
        certificate = replace(certificate, wall_s=laps.wall_s["certificate"])
    return PlanFile(
        format=FORMAT,
        decision=plan.decision,
        taken_at=plan.taken_at,
        seed=plan.seed,
        winner=plan.winner,
        winner_reason=winner_words(plan, plan.taken_at),
        objective=objective_of(scored),
        certificate=certificate,
        stages=tuple(_stage(stage, laps.wall_s) for stage in plan.stages),
        buckets_h=BUCKETS_H,
        assignments=_assignments(evaluator.world, plan, expected),
        stops=tuple(
            same(Stop, a, for_job=a.beneficiary, reason=because_of(a, plan.taken_at))
            for a in plan.actions
            if isinstance(a, Preempt)
        ),
        order=order,
        prices=plan.prices,
        wake_at=plan.wake_at,
    )


class _Laps:
    """How long each stage took, all its passes together."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self.wall_s: dict[str, float] = {}

    def begin(self) -> None:
        self._since = self._clock()

    def ended(self, stage: str) -> None:
        at = self._clock()
        self.wall_s[stage] = round(self.wall_s.get(stage, 0.0) + at - self._since, 6)
        self._since = at


def _stage(report: StageReport, wall_s: Mapping[str, float]) -> StageRun:
    return same(StageRun, report, wall_s=wall_s.get(report.stage, 0.0))


# -- where and when ---------------------------------------------------------------------------------------------------


class _Expected(NamedTuple):
    """Where a job is expected to run, from when to when."""

    place: int
    start: Range
    finish: Range


def _order(world: World, plan: Plan) -> tuple[str, ...]:
    """In which those that wait go on, as the plan tells of them; nothing where that is the published order."""
    order, waiting = tuple(each.job for each in plan.waiting), {each.job for each in plan.waiting}
    return () if order == tuple(job.id for job in world.jobs if job.id in waiting) else order


def _expected(world: World, scored: Scored) -> dict[str, _Expected]:
    """Of every job that ever starts."""
    found = {}
    for job in world.snapshot.jobs:
        middle = scored.expected(job.id, world.now)
        if middle is None:
            continue
        waits = job.id not in scored.starts
        start, finish = ranges(job, world.now, middle.start_at, middle.finish_at, waits=waits)
        found[job.id] = _Expected(
            middle.place,
            Range(low_at=start.low_at, middle_at=middle.start_at, high_at=start.high_at),
            Range(low_at=finish.low_at, middle_at=middle.finish_at, high_at=finish.high_at),
        )
    return found


def _assignments(world: World, plan: Plan, expected: Mapping[str, _Expected]) -> tuple[Assignment, ...]:
    """In the order of the problem's jobs."""
    actions = {action.job: action for action in plan.actions if not isinstance(action, Preempt)}
    waiting = {entry.job: entry for entry in plan.waiting}
    return tuple(
        _started(world, job, actions[job.id], expected)
        if job.id in actions
        else _waits(world, job, waiting[job.id], expected.get(job.id))
        for job in world.snapshot.jobs
    )


def _started(
    world: World, job: JobView, action: Place | Rent, expected: Mapping[str, _Expected]
) -> Assignment:
    when = expected[job.id]
    rents = isinstance(action, Rent)
    return Assignment(
        job=job.id,
        does="rent" if rents else "start",
        site=action.site,
        pool=action.offer if isinstance(action, Rent) else action.pool,
        market=world.places[when.place].market,
        members=() if isinstance(action, Rent) else action.members,
        nodes=job.as_form(action.form).nodes,
        form=action.form,
        start_bucket=0,
        start=when.start,
        finish=when.finish,
        reason=because_of(action, world.now),
        rental=same(Rental, action, action.evidence) if isinstance(action, Rent) else None,
        moves=same(DataMoved, action.moves) if action.moves is not None else None,
    )


def _waits(world: World, job: JobView, entry: Waiting, when: _Expected | None) -> Assignment:
    at = None if when is None else world.places[when.place]
    entry, kept = told_waiting(entry, world.now), entry.reserved
    return Assignment(
        job=job.id,
        does="wait",
        site=at.site if at else "",
        pool=at.pool if at else "",
        market=at.market if at else None,
        nodes=job.nodes if when is None else world.as_form(job, when.place).nodes,
        form=0 if when is None else world.form_of(when.place),
        start_bucket=None if when is None else _bucket(when.start.middle_at - world.now),
        start=when.start if when else None,
        finish=when.finish if when else None,
        home_finish_at=entry.home_finish_at,
        reason=entry.because,
        reason_kind=entry.kind,
        change=entry.change,
        reserved=same(Reserved, kept, why=kept.why.value) if kept is not None else None,
    )


def _bucket(after_s: float) -> int:
    """The bucket that a start so long from now lies in; the last one has no end."""
    return max(0, min(bisect_right(BUCKETS_H, after_s / 3600.0), len(BUCKETS_H) - 1) - 1)

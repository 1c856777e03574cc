"""Judges a plan file by its problem: what the independent checker holds against it, and what its starts are really worth.

What the file claims to be proven is proven again; without a claim that is not done, for it takes far longer than the rest. Nothing is asked of the plan but what it does now, and in which order it means those that wait to go on (else the published one); so a plan by any
program can be judged, and two programs be compared by one measure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import BurstEvidence, Market
from federator.model.datasets import Moves
from federator.model.outlook import Proof
from federator.model.plans import (
    Action,
    Finding,
    Place,
    Plan,
    Preempt,
    Rent,
    Reservation,
    ReservedFor,
    Waiting,
)
from federator.model.snapshot import JobView, PoolView, Problem
from federator.planning.checks import check
from federator.planning.places.data import data_book
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.world.plan_starts import starts_of, turns_of
from federator.planning.world.problem import World
from federator.solving.certify import certify, gap_of
from federator.wire.solver_plan import Assignment, Certificate, Objective, PlanFile, Rental

TOLERANCE_USD = 0.01
"""An objective that differs by less, or by less than a millionth, is the same."""
TOLERANCE_PROOF = 1e-3
"""A bound that is higher by less than this part of it is the same: on another build other prices may prove a little more."""
TERMS = ("miss", "rent", "run", "egress", "wait", "shortfall", "policy", "displaced")

S = TypeVar("S", bound=msgspec.Struct)


def same(kind: type[S], *records: object, **fields: Any) -> S:
    """A record of that kind with these fields, and else what is called the same in the first of the other records that has it, or its default."""
    for name in kind.__struct_fields__:
        source = next((each for each in records if hasattr(each, name)), None)
        if source is not None:
            fields.setdefault(name, getattr(source, name))
    return kind(**fields)


@dataclass(frozen=True)
class Verdict:
    """What the checker found, what the plan's starts are really worth, what is proven of them where the file claims that something is, and where the file says something else."""

    findings: tuple[Finding, ...]
    objective: Objective
    differences: tuple[str, ...]
    """Terms of the objective and fields of the certificate that the file has wrong."""
    certificate: Certificate | None = None


def judge(problem: Problem, file: PlanFile) -> Verdict:
    """Check a plan against its problem, and reckon its objective anew. Raises `Invalid` where the two are not about the same."""
    _same_matter(problem, file)
    plan = _plan(problem, file)
    world = World(problem)
    evaluator = Evaluator(world).in_order(turns_of(world, file.order))
    starts = starts_of(evaluator.world, plan.actions)
    found = objective_of(evaluator.score(starts))
    names = ("total_usd", *(f"{term}_usd" for term in TERMS))
    wrong = tuple(name for name in names if not _same(getattr(file.objective, name), getattr(found, name)))
    if file.certificate is None:
        return Verdict(check(problem, plan), found, wrong)
    proven = certificate_of(evaluator, starts)
    return Verdict(check(problem, plan), found, (*wrong, *_overstated(file.certificate, proven)), proven)


def certificate_of(evaluator: Evaluator, starts: Mapping[str, int]) -> Certificate | None:
    """What can be proven of these starts; None where the model was not solved within its limit."""
    found = certify(evaluator, starts)
    return None if found is None else same(Certificate, found[0])


def _overstated(said: Certificate, proven: Certificate | None) -> tuple[str, ...]:
    """What a certificate claims beyond what is proven: a higher bound, a cheaper completion, or a gap that does not follow from the two. Who claims less is right, too."""
    if proven is None:
        return ("certificate",)
    wrong = []
    for name in ("bound_usd", "model_usd"):
        least = getattr(proven, name)
        if getattr(said, name) > least + _slack(least):
            wrong.append(f"certificate.{name}")
    completed = proven.completed_usd
    if said.completed_usd is not None and (
        completed is None or said.completed_usd < completed - _slack(completed)
    ):
        wrong.append("certificate.completed_usd")
    follows = gap_of(said.model_usd, said.completed_usd)
    if said.gap is not None and (follows is None or abs(said.gap - follows) > 1e-6):
        wrong.append("certificate.gap")
    return tuple(wrong)


def _slack(usd: float) -> float:
    return max(TOLERANCE_USD, TOLERANCE_PROOF * abs(usd))


def prove(problem: Problem, plan: Plan) -> Proof | None:
    """How good the plan's decisions of now are; None where the model was not solved within its limit, or has no column for one of them."""
    world = World(problem)
    found = certify(Evaluator(world), starts_of(world, plan.actions))
    gap = None if found is None else found[0].gap
    return None if found is None or gap is None else Proof(found[0].bound_usd, gap)


def _same(said: float, found: float) -> bool:
    return abs(said - found) <= max(TOLERANCE_USD, 1e-6 * abs(found))


def _same_matter(problem: Problem, file: PlanFile) -> None:
    if file.taken_at != problem.snapshot.taken_at:
        raise Invalid(
            f"is not the problem's {problem.snapshot.taken_at!r}",
            field="$.taken_at",
            remedy="judge a plan by the problem that it was made for",
        )
    jobs = {job.id for job in problem.snapshot.jobs}
    for number, each in enumerate(file.assignments):
        if each.job not in jobs:
            raise Invalid(
                f"the problem has no job {each.job!r}",
                field=f"$.assignments[{number}].job",
                remedy="name a job of the problem's snapshot",
            )
        if each.does == "rent" and each.rental is None:
            raise Invalid(
                "is missing",
                field=f"$.assignments[{number}].rental",
                remedy="say what is rented, and under which policy",
            )


def objective_of(scored: Scored) -> Objective:
    """What a decision costs, as a plan file has it."""
    return Objective(total_usd=scored.total, **{f"{term}_usd": scored.terms.get(term, 0.0) for term in TERMS})


def _plan(problem: Problem, file: PlanFile) -> Plan:
    """The file as the checker takes it. What it need not say, such as sessions, is as the problem has it."""
    jobs = {job.id: job for job in problem.snapshot.jobs}
    pools = {pool.key: pool for pool in problem.snapshot.pools}
    actions: list[Action] = []
    waiting = []
    for each in file.assignments:
        if each.does == "start":
            actions.append(_place(problem, pools, jobs[each.job], each))
        elif each.does == "rent" and each.rental is not None:
            actions.append(_rent(problem, jobs[each.job], each, each.rental))
        else:
            waiting.append(_waiting(each))
    running = {busy.placement: busy for pool in problem.snapshot.pools for busy in pool.busy}
    for stop in file.stops:
        victim = running.get(stop.placement)
        revision = victim.revision if victim is not None else 0
        actions.append(
            Preempt(
                job=stop.job,
                revision=revision,
                placement=stop.placement,
                beneficiary=stop.for_job,
                because=stop.reason,
                form=stop.form,
            )
        )
    return Plan(
        decision=file.decision,
        taken_at=file.taken_at,
        seed=file.seed,
        winner=file.winner,
        winner_because=file.winner_reason,
        objective_usd=file.objective.total_usd,
        actions=tuple(actions),
        waiting=tuple(waiting),
    )


def _waiting(told: Assignment) -> Waiting:
    kept = told.reserved
    reserved = None if kept is None else same(Reservation, kept, why=ReservedFor(kept.why))
    return Waiting(job=told.job, kind=told.reason_kind or "capacity", because=told.reason, reserved=reserved)


def _place(problem: Problem, pools: Mapping[str, PoolView], job: JobView, told: Assignment) -> Place:
    views = [pools.get(f"{told.site}/{member}/{told.pool}") for member in told.members]
    first = views[0] if views else None
    return Place(
        job=job.id,
        revision=job.revision,
        site=told.site,
        pool=told.pool,
        members=told.members,
        sessions=tuple(view.session if view is not None else "" for view in views),
        market=told.market or (first.market if first is not None else Market.OWNED),
        price_usd_gpu_h=first.price_usd_gpu_h if first is not None else 0.0,
        expected_start_at=problem.snapshot.taken_at,
        expected_end_at=told.finish.middle_at if told.finish else problem.snapshot.taken_at,
        because=told.reason,
        lease=first.lease if first is not None else None,
        form=told.form,
        moves=_moves(problem, job, told, first.region if first is not None else ""),
    )


def _rent(problem: Problem, job: JobView, told: Assignment, rental: Rental) -> Rent:
    return Rent(
        job=job.id,
        revision=job.revision,
        provider=rental.provider,
        offer=rental.offer,
        machines=rental.machines,
        site=told.site,
        expected_start_at=told.start.middle_at if told.start else problem.snapshot.taken_at,
        expected_end_at=rental.burst_finish_at,
        committed_usd=rental.committed_usd,
        evidence=same(
            BurstEvidence, rental, job=job.id, deadline_at=job.deadline_at, decision=problem.decision
        ),
        because=told.reason,
        form=told.form,
        moves=_moves(problem, job, told, _region(problem, rental)),
    )


def _region(problem: Problem, rental: Rental) -> str:
    key = f"{rental.provider}/{rental.offer}"
    return next((view.offer.region for view in problem.snapshot.offers if view.key == key), "")


def _moves(problem: Problem, job: JobView, told: Assignment, region: str) -> Moves | None:
    """What the file says is moved; where it does not say, what the rules come to."""
    if told.moves is None:
        return data_book(problem.snapshot).transfer(job, told.site, region).moves if job.inputs else None
    return same(Moves, told.moves)

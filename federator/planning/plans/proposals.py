"""Rentals that a plan may not make, and would: where a policy only advises, or wants a person to approve what is over an amount.

Each is looked at by itself, after the decision: the cheapest that would begin now for a job which the decision leaves late or waiting.
"""

from collections.abc import Iterator

from federator.model.plans import Proposal, ProposalKind
from federator.model.reasons import Proposed
from federator.model.rules import BurstMode
from federator.model.snapshot import JobView
from federator.planning.kernels.start_cost import wait_usd
from federator.planning.rentals.burst import approved
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.feasibility import FILTERS, reject
from federator.planning.rules.permits import admits
from federator.planning.scheduling.objective import Evaluator, Scored

ASKED_LATER = frozenset({"no-burst-policy", "price-limit"})
"""Filters that a policy which only advises does not pass; it is asked itself."""
LASTING = tuple(test for test in FILTERS if test.name not in ASKED_LATER)


def proposals(evaluator: Evaluator, scored: Scored) -> tuple[Proposal, ...]:
    """One at most per job, and per sort of proposal."""
    book = evaluator.world.book
    if not book.advisers and all(permit.approval_above_usd is None for permit in book.permits):
        return ()
    found = []
    for job in evaluator.world.jobs:
        if job.id in scored.rents or not _in_need(evaluator, scored, job):
            continue
        cases = [each for each in _cases(evaluator, job) if _pays(evaluator, scored, job, each[1])]
        for kind in ProposalKind:
            best = min(
                (each for each in cases if each[0] is kind),
                key=lambda each: (each[1].cost_usd, each[1].finish_at, each[1].place),
                default=None,
            )
            if best is not None:
                found.append(_propose(evaluator, job, *best))
    return tuple(found)


def _in_need(evaluator: Evaluator, scored: Scored, job: JobView) -> bool:
    """Whether the decision leaves it waiting, or late."""
    booking, now = scored.booking(job.id), evaluator.world.now
    return booking is None or booking.start_at > now or scored.costs[job.id].late


def _cases(evaluator: Evaluator, job: JobView) -> Iterator[tuple[ProposalKind, BurstCandidate]]:
    world, bursting = evaluator.world, evaluator.bursting
    choices = ((choice, at) for place, at in enumerate(world.places) for choice in world.choices(job, place))
    for place, at in choices:
        if (
            at.offer is None
            or reject(job := world.as_form(job, place), at, world.context, LASTING) is not None
        ):
            continue
        advisers = [(ProposalKind.ADVICE, permit) for permit in world.book.advisers_for(job, at)]
        wanting = [
            (ProposalKind.APPROVAL, permit)
            for permit in world.book.permits_for(job, at)
            if permit.approval_above_usd is not None
        ]
        for kind, permit in (*advisers, *wanting):
            if not world.book.in_force(permit) or not admits(permit, at):
                continue
            case = bursting.under(permit, job, place)
            if isinstance(case, BurstCandidate) and (
                kind is ProposalKind.ADVICE or not approved(permit, job, case)
            ):
                yield kind, case


def _pays(evaluator: Evaluator, scored: Scored, job: JobView, case: BurstCandidate) -> bool:
    """Whether it would begin now, is worth it, and fits the caps."""
    world = evaluator.world
    job = world.as_form(job, case.place)
    if not case.is_now(world.now) or scored.caps.blocking(job, world.places[case.place]) is not None:
        return False
    if case.required:
        return True
    worth = world.book.value_usd(job) if case.mode is BurstMode.ECONOMIC else 0.0
    booking = scored.booking(job.id)
    if case.for_waiting and booking is not None:
        worth = max(worth, wait_usd(world.book.wait_usd_h(job), booking.start_at - case.start_at, 0.0))
    return case.cost_usd < worth or (case.for_waiting and booking is None)


def _propose(evaluator: Evaluator, job: JobView, kind: ProposalKind, case: BurstCandidate) -> Proposal:
    world, home = evaluator.world, evaluator.home.get(job.id)
    at = world.places[case.place]
    assert at.offer is not None, "only offers are rented"
    reason = Proposed(
        policy=case.policy,
        approval=kind is ProposalKind.APPROVAL,
        place=at.shown,
        cost_usd=case.cost_usd,
        committed_usd=case.committed_usd,
        finish_at=case.finish_at,
        home_finish_at=None if home is None else home.finish_at,
    )
    return Proposal(
        job=job.id,
        kind=kind,
        policy=case.policy,
        provider=at.provider or "",
        offer=at.offer.offer.name,
        cost_usd=round(case.cost_usd, 6),
        committed_usd=round(case.committed_usd, 6),
        finish_at=case.finish_at,
        reason=reason,
    )

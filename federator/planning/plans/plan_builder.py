"""The plan builder: from a decision to a plan. What starts now, what stops for it, and for every other job why it waits and what is expected of it.

Nothing is decided here (`actions`) and no sentence is made: reasons are values (`why`) of the same numbers as the decision, told when somebody looks.
"""

from collections.abc import Sequence

from federator.model.plans import Action, Place, Plan, Rent, StageReport, Waiting
from federator.model.reasons import GreedyAlone, Reason
from federator.model.snapshot import JobView
from federator.planning.places.candidates import machines
from federator.planning.plans.actions import Decided, decide_actions
from federator.planning.plans.plan_reasons import Reasons
from federator.planning.plans.reclaim import claims_at
from federator.planning.plans.resizes import next_changes_at
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.rules.openings import changes_at
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.world.problem import World


def write_plan(
    evaluator: Evaluator,
    scored: Scored,
    *,
    winner: str,
    because: Reason,
    stages: Sequence[StageReport] = (),
    seed: int = 0,
    prices: dict[str, float] | None = None,
) -> Plan:
    """The plan that says what was decided, and why, for every job of the problem."""
    decided = decide_actions(evaluator, scored)
    builder, world, scored = _Builder(evaluator, decided), evaluator.world, decided.scored
    starts = (builder.start(world.by_id[job], place) for job, place in scored.starts.items())
    waiting = (builder.waiting(job) for job in evaluator.line if job.id not in scored.starts)
    return Plan(
        decision=world.problem.decision,
        taken_at=world.now,
        seed=seed,
        winner=winner,
        winner_reason=because,
        objective_usd=scored.total,
        terms=scored.terms,
        stages=tuple(stages),
        actions=tuple[Action, ...]((*starts, *decided.stops)),
        waiting=tuple(waiting),
        prices=prices or {},
        wake_at=_wake_at(world, scored),
        proposals=decided.proposals,
    )


def write_starts(evaluator: Evaluator, scored: Scored, stage: str, seed: int) -> Plan:
    """The plan that says only what starts now. Of those that wait it says nothing, for nobody has looked at what becomes of them."""
    builder = _Builder(evaluator, Decided(scored, {}, (), ()))
    world = evaluator.world
    return Plan(
        decision=world.problem.decision,
        taken_at=world.now,
        seed=seed,
        winner="greedy",
        winner_reason=GreedyAlone(situation="starts-only"),
        objective_usd=0.0,
        stages=(StageReport(stage=stage, completed=True, work=scored.attempts),),
        actions=tuple(builder.start(world.by_id[job], place) for job, place in scored.starts.items()),
    )


class _Builder:
    """Makes the actions and the waiting jobs of one decision."""

    def __init__(self, evaluator: Evaluator, decided: Decided) -> None:
        self.evaluator, self.scored, self.world = evaluator, decided.scored, evaluator.world
        self.now, self.reasons = self.world.now, Reasons(evaluator, decided)

    def start(self, job: JobView, place: int) -> Place | Rent:
        """The action that starts the job there now."""
        booking = self.scored.bookings[job.id]
        if booking.rents:
            case = self.evaluator.bursting.case(job, place)
            assert isinstance(case, BurstCandidate), "nothing is rented without a case"
            return self._rent(job, case)
        whole, job, at = job, self.world.as_form(job, place), self.world.places[place]
        assert booking.members, "what starts now starts on capacity that is there"
        views = [at.views[member] for member in booking.members]
        pool = views[0]
        return Place(
            job=job.id,
            revision=job.revision,
            site=pool.site,
            pool=pool.pool,
            members=tuple(view.member for view in views),
            sessions=tuple(view.session for view in views),
            market=pool.market,
            price_usd_gpu_h=pool.billed_usd_gpu_h,
            expected_start_at=booking.start_at,
            expected_end_at=booking.finish_at,
            reason=self.reasons.fits(whole, place),
            lease=pool.lease,
            moves=at.transfer(job).moves,
            form=self.world.form_of(place),
        )

    def _rent(self, job: JobView, case: BurstCandidate) -> Rent:
        job, at = self.world.as_form(job, case.place), self.world.places[case.place]
        assert at.offer is not None, "only offers are rented"
        evidence = self.evaluator.bursting.evidence(job, case)
        return Rent(
            job=job.id,
            revision=job.revision,
            provider=at.offer.offer.provider,
            offer=at.offer.offer.name,
            site=at.site,
            expected_start_at=case.start_at,
            expected_end_at=case.finish_at,
            committed_usd=case.committed_usd - at.transfer(job).usd,
            evidence=evidence,
            reason=self.reasons.rents(job, case, evidence),
            moves=at.transfer(job).moves,
            machines=machines(job, at),
            form=self.world.form_of(case.place),
        )

    def waiting(self, job: JobView) -> Waiting:
        """Why a job does not start now, and what is expected of it."""
        found = self.reasons.waits(job)
        when, home = self.scored.expected(job.id, self.now), self.evaluator.home.get(job.id)
        return Waiting(
            job=job.id,
            kind=found.kind,
            why=found.reason,
            expected_start_at=when.start_at if when else None,
            expected_finish_at=when.finish_at if when else None,
            home_start_at=home.start_at if home else None,
            home_finish_at=home.finish_at if home else None,
            home_usd=home.usd if home else 0.0,
            reason=found.situation,
            reserved=self.scored.block(job.id).reserved,
        )


def _wake_at(world: World, scored: Scored) -> float | None:
    """The earliest moment at which time alone changes the answer."""
    times = [case.rent_at for case in scored.later.values()]
    waiting = [job for job in world.jobs if job.id not in scored.starts]
    times += [job.not_before_at for job in waiting if job.not_before_at is not None]
    times += [until_at for job in waiting for _, until_at in job.refused]
    times += [
        view.avoid_until_at for view in world.snapshot.offers if waiting and view.avoid_until_at is not None
    ]
    if any(permit.after_wait_s is not None for permit in world.book.permits):
        times += [_threshold_at(world, job) for job in waiting]
    if waiting:
        times += [at for rule in world.book.openings if (at := changes_at(rule, world.now)) is not None]
    times += claims_at(world, scored)
    times += next_changes_at(world.snapshot)
    return min((at for at in times if at > world.now), default=None)


def _threshold_at(world: World, job: JobView) -> float:
    """When the job will have waited long enough for a threshold policy; 0 when none applies."""
    permits = (p for place in world.offers(job) for p in world.book.permits_for(job, world.places[place]))
    at = [job.submitted_at + p.after_wait_s for p in permits if p.after_wait_s is not None]
    return min((moment_at for moment_at in at if moment_at > world.now), default=0.0)

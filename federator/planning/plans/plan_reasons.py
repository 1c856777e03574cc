"""Why each job of a plan starts, is rented for, or waits, as typed reasons. Nothing is decided here, and no sentence is made."""

from functools import cached_property
from typing import NamedTuple

from federator.model import reasons as r
from federator.model.capacity import BurstEvidence, Market
from federator.model.snapshot import JobView
from federator.planning.explanations.reasons import DecidedWorld
from federator.planning.places.candidates import Candidate, machines
from federator.planning.places.host_sets import need_of
from federator.planning.places.requests import asked, form_taken
from federator.planning.places.staleness import last_heard_s
from federator.planning.plans.actions import Decided
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection
from federator.planning.rules.feasibility import KINDS
from federator.planning.scheduling.blocks import Block
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.chances import late_share

RECLAIMING = "reclaiming"
"""The name of the reason of a job that others make room for."""
MANY_MEMBERS = 3
"""Of more members than this only the number is said."""


class Wait(NamedTuple):
    """Of a job that waits: the kind of `Waiting`, the name of the filter or situation, and the reason."""

    kind: str
    situation: str
    reason: r.Reason


class Reasons:
    """The reasons of one decision."""

    def __init__(self, evaluator: Evaluator, decided: Decided) -> None:
        """Nothing is made yet."""
        self.evaluator, self.decided = evaluator, decided
        self.world, self.scored, self.now = evaluator.world, decided.scored, evaluator.world.now
        self._narrowed_for = {stop.beneficiary for stop in decided.resized}

    @cached_property
    def standing(self) -> DecidedWorld:
        """The world after the decision."""
        taken = [(self.world.by_id[job], place) for job, place in self.scored.starts.items()]
        return DecidedWorld(self.world, self.evaluator.bursting, taken)

    # -- what starts ----------------------------------------------------------------------------------------------------

    def fits(self, whole: JobView, place: int) -> r.Fits:
        """Why a job starts on capacity that is there."""
        job, at = self.world.as_form(whole, place), self.world.places[place]
        booking = self.scored.bookings[whole.id]
        names = _members(at, booking.members)
        form, why = None, ""
        if whole.forms:
            form = form_taken(whole, self.world.form_of(place))
            why = _why_form(self.standing, whole, place)
        return r.Fits(
            asked=asked(job),
            place=at.shown,
            places=max(1, self._count((*self.world.home(job), *self.world.leases(job)))),
            finish_at=booking.finish_at,
            deadline_at=job.deadline_at,
            queue=job.queue if job.start_by_at is not None else "",
            start_by_at=job.start_by_at,
            rented=at.rented,
            members=names if len(names) <= MANY_MEMBERS else (),
            member_count=len(names),
            form=form,
            why_form=why,
            price_usd_gpu_h=at.billed_usd_gpu_h if job.gpus else 0.0,
            brought=at.transfer(job).brought,
            heard_s=last_heard_s(at.views),
        )

    def _count(self, choices: tuple[int, ...]) -> int:
        """How many places these are."""
        return len(set(map(self.world.place_of, choices)))

    def rents(self, job: JobView, case: BurstCandidate, evidence: BurstEvidence) -> r.Rents:
        """Why capacity is rented for a job, which is in the form that it takes."""
        at, whole = self.world.places[case.place], job.of or job
        not_place, not_why = self._not_spot(job, case)
        return r.Rents(
            place=at.shown,
            finish_at=case.finish_at,
            cost_usd=case.cost_usd,
            committed_usd=case.committed_usd,
            policy=case.policy,
            mode=case.mode.value,
            required=case.required,
            machines=machines(job, at),
            home_finish_at=evidence.home_finish_at,
            home_risk=evidence.home_risk,
            deadline_at=job.deadline_at,
            value_usd=self.world.book.value_usd(job) if job.deadline_at is not None else 0.0,
            in_time=_chance(job, at, case),
            fallback_finish_at=case.fallback_finish_at,
            interruptions_h=at.interruptions_h,
            rework=at.rework(job) if at.interruptions_h else 1.0,
            form=form_taken(whole, self.world.form_of(case.place)) if whole.forms else None,
            brought=at.transfer(job).brought,
            not_place=not_place,
            not_why=not_why,
        )

    def _not_spot(self, job: JobView, case: BurstCandidate) -> tuple[str, r.Reason | None]:
        """Why it is on-demand: the spot capacity that is refused."""
        places = self.world.places
        if (
            case.fallback_finish_at is not None
            or job.spot_policy != "auto"
            or places[case.place].market is not Market.ON_DEMAND
        ):
            return "", None
        for place in self.world.offers(job):
            if places[place].market is Market.SPOT:
                refused = self.evaluator.bursting.case(job, place)
                if isinstance(refused, BurstRejection):
                    return places[place].shown, refused.reason
        return "", None

    # -- what waits -----------------------------------------------------------------------------------------------------

    def waits(self, job: JobView) -> Wait:
        """Why a job does not start."""
        block = self.scored.block(job.id)
        if block.kind == "time" and block.reason is not None:
            return Wait(block.kind, block.situation, block.reason)
        claimed = self.decided.reclaims.get(job.id)
        if claimed is not None and claimed.reason is not None:
            return Wait("capacity", RECLAIMING, claimed.reason)
        if job.id in self._narrowed_for:
            return Wait("capacity", RECLAIMING, self._busy(job, narrowing=True))
        put_off = self.scored.later.get(job.id)
        if put_off is not None:
            return self._put_off(job, put_off, block)
        if not self.world.home(job):
            return self._nowhere(job)
        found = Wait(block.kind, block.situation, block.reason or self._busy(job))
        return self._late(job, found) if self.scored.costs[job.id].late else found

    def _put_off(self, job: JobView, case: BurstCandidate, block: Block) -> Wait:
        home, at = self.evaluator.home.get(job.id), self.world.places[case.place]
        reason = r.ToRent(
            place=at.shown,
            machines=machines(self.world.as_form(job, case.place), at),
            rent_at=case.rent_at,
            cost_usd=case.cost_usd,
            home_finish_at=home.finish_at if home else None,
            start_by_at=job.start_by_at,
            beside=block.reason if block.reserved and block.situation != "not-yet" else None,
        )
        return Wait("later", "not-yet", reason)

    def _busy(self, job: JobView, *, narrowing: bool = False, elsewhere: bool = False) -> r.NoRoom:
        booking, expected = self.scored.booking(job.id), None
        if booking is not None:
            at = self.world.places[booking.place]
            boots = at.ready_at is not None and at.ready_at > self.now
            expected = r.Expected(at.shown, booking.start_at, at.offer is not None, boots)
        places = self._count(self.world.home(job))
        return r.NoRoom(
            asked=asked(job),
            places=places,
            expected=expected,
            queue=job.queue if job.start_by_at is not None else "",
            start_by_at=job.start_by_at,
            narrowing=narrowing,
            elsewhere=elsewhere,
        )

    def _nowhere(self, job: JobView) -> Wait:
        """No owned place passes the filters: the reason of the place that came closest."""
        if self.scored.booking(job.id) is not None:
            return Wait("later", "busy", self._busy(job, elsewhere=True))
        near = self.standing.closest(job, range(len(self.world.places)))
        if near is None or near.reason is None:
            return Wait("filter", "", r.NoSites())
        reason = r.Nowhere(place=f"{near.site}/{near.pool}", why=near.reason)
        return Wait(KINDS.get(near.filter, "filter"), near.filter, reason)

    def _late(self, job: JobView, found: Wait) -> Wait:
        """It will miss its deadline: why nothing is rented for it."""
        near = self.standing.closest_offer(job)
        if near is None:
            return found._replace(reason=r.LateUnrented(waits=found.reason))
        kind = "budget" if near.filter == "budget" else found.kind
        situation = near.filter or found.situation if found.situation == "busy" else found.situation
        reason = r.LateUnrented(waits=found.reason, place=f"{near.site}/{near.pool}", why=near.reason)
        return Wait(kind, situation, reason)


def _chance(job: JobView, at: Candidate, case: BurstCandidate) -> float | None:
    """That the job is in time, where it is planned too late: plans have a margin, or the chance is worth it."""
    if job.deadline_at is None or case.finish_at <= job.deadline_at:
        return None
    return 1.0 - late_share(job, case.start_at, at.run_s(job))


def _members(at: Candidate, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Which members of a place of several."""
    if len(at.views) == 1:
        return ()
    return tuple(dict.fromkeys(at.views[rank].member for rank in ranks))


def _why_form(standing: DecidedWorld, whole: JobView, choice: int) -> str:
    """Why it is in no quicker form: `enough`, `no-more` (as `Fits` has it); empty where there is none."""
    world = standing.world
    mine = world.as_form(whole, choice)
    quicker = [
        view
        for other in world.choices(whole, choice)
        if (view := world.as_form(whole, other)).throughput > mine.throughput
        and world.rejection(whole, other) is None
    ]
    host_set = standing.host_set(choice).copy()
    for release in host_set.releases:
        if isinstance(release.payload, JobView) and release.payload.id == whole.id:
            host_set.untake(release.need, release.hosts)
    if any(host_set.fits(need_of(view), view.nodes) for view in quicker):
        return "enough"
    return "no-more" if quicker else ""

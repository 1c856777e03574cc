"""What would let a waiting job rent: past filters, need, gain, caps and what is sold out, one after the other, until nothing is in the way."""
# ruff: noqa: ARG001 - every step is asked with the same four arguments, whichever it needs

import dataclasses
import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.kernel.quantities import cents_up
from federator.model.changes import AskFor, MoreHosts, Remedy, WaitUntil
from federator.model.jobs import in_gpus
from federator.model.plans import SiteReason
from federator.model.rules import QueueTerms
from federator.model.snapshot import JobView
from federator.planning.explanations.advice import burden
from federator.planning.explanations.changes import apply
from federator.planning.explanations.context import ExplanationContext, caps_at
from federator.planning.explanations.reasons import DecidedWorld
from federator.planning.explanations.remedies import (
    NOTHING,
    all_of,
    in_its_form,
    smallest_way,
    wait_until,
    way_in,
)
from federator.planning.places.candidates import machines
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import BurstCandidate, BurstRejection
from federator.planning.rentals.gains import LEAST_SURER
from federator.planning.wording import MINUTE_S, later_deadline, met_by, moment, money
from federator.planning.world.prices import worth_usd
from federator.planning.world.problem import World

STEPS = 6
"""So many things in the way are lifted one after the other."""
MOST_PLACES = 4
"""Of so many places it is looked what lies behind their filters."""
FAR_S = 3650 * 86400.0
"""A deadline that anything meets."""


def past_all(found: ExplanationContext) -> Remedy:
    """Past all that keeps it from a place: filters, then need, gain, caps and what is sold out. Of places that it is kept from for the same reason, and whose filters ask little, the one that in all asks least."""
    world, job = found.world, found.job
    places = [p for p, at in enumerate(world.places) if at.offer is not None]
    places = places if world.home(job) else list(range(len(world.places)))
    reasons = {place: found.standing.reason(job, place) for place in places}
    name = found.waiting.reason
    near = [place for place in found.standing.in_order(job, places) if reasons[place].filter == name]
    return _least_of(found, near)


def anywhere_else(found: ExplanationContext) -> Remedy:
    """Where nothing is known for the places that it is kept from for the plan's reason: past all that keeps it from another, to where it runs at once."""
    world, job, name = found.world, found.job, found.waiting.reason
    others = [
        place
        for place in found.standing.in_order(job, range(len(world.places)))
        if found.standing.reason(job, place).filter != name
    ]
    return _least_of(found, others, to_the_end=True)


def _least_of(found: ExplanationContext, places: Sequence[int], *, to_the_end: bool = False) -> Remedy:
    """Of these places' ways, those whose filters ask little, the one that in all asks least."""
    if not places:
        return NOTHING
    world, job = found.world, found.job
    ways = [smallest_way(world, job, place) for place in places]
    closed = [(way, choice) for way, choice in ways if way.changes]
    if not closed:
        return _past_all_at(found, ways[0][1], to_the_end=to_the_end)
    nearest = sorted(closed, key=lambda each: burden(job, each[0].changes, world.now))[:MOST_PLACES]
    asked = [_past_all_at(found, choice, to_the_end=to_the_end) for _, choice in nearest]
    known = [remedy for remedy in asked if remedy.changes]
    return min(known, key=lambda remedy: burden(job, remedy.changes, world.now), default=NOTHING)


def _past_all_at(found: ExplanationContext, choice: int, *, to_the_end: bool = False) -> Remedy:
    """`to_the_end`: nothing but what leaves the place free to it."""
    job, standing = found.job, found.standing
    # Of the jobs only this one matters from here on: a long line need not be looked through at each step.
    problem = replace(found.problem, snapshot=replace(found.problem.snapshot, jobs=(job,)))
    at, form = standing.world.places[choice], standing.world.form_of(choice)
    steps: list[Remedy] = []
    for _ in range(STEPS):
        step = _step(found, standing, job, choice)
        if not step.changes:
            break
        if steps and all(isinstance(change, WaitUntil) for change in step.changes):
            break  # what is left comes by itself
        steps.append(step)
        if not to_the_end and not found.world.home(job) and not standing.world.places[choice].rented:
            break
        try:
            problem = apply(problem, step.changes)
        except Invalid:  # it would change nothing: no advice, but no fault of the reader either
            return NOTHING
        (job,), world = problem.snapshot.jobs, World(problem)
        standing = DecidedWorld(world, Bursting(world, standing.bursting.home), standing.taken)
        choice = _there(world, at.key, form)
        if choice < 0:
            break
    if not steps or (to_the_end and (choice < 0 or standing.reason_in(job, choice).filter)):
        return NOTHING
    return replace(all_of(steps), places=(f"{at.site}/{at.pool}",))


def _there(world: World, key: str, form: int) -> int:
    """The choice of that place and form, in a changed world; -1 where it is gone."""
    place = next((number for number, other in enumerate(world.places) if other.key == key), -1)
    return place + form * len(world.places) if place >= 0 else -1


def _step(found: ExplanationContext, standing: DecidedWorld, whole: JobView, place: int) -> Remedy:
    """What lifts the first thing in the way there, in that form; nothing where nothing is, or is known to."""
    world, at, job = standing.world, standing.world.places[place], standing.world.as_form(whole, place)
    rejection = world.rejection(whole, place)
    if rejection is not None:
        return in_its_form(whole, way_in(job, at, world.context, rejection), world.form_of(place))
    reason = standing.reason_in(whole, place)
    if reason.filter in ("budget", "queue-limit"):
        return caps_at(dataclasses.replace(found, job=whole, standing=standing), place)
    if reason.filter == "sold-out" and at.offer is not None:
        more = machines(job, at)
        for other, waiting in found.before:
            open_ = [choice for choice in world.choices(other, place) if choice in world.open_to(other)]
            if waiting.reason == "sold-out" and open_:
                more += machines(world.as_form(other, open_[0]), at)
        short = standing.stocks.short(world.place_of(place), machines(job, at))
        what = f"{more} more of {at.shown} to be had"
        if short is not None:
            stock, _, needs = short
            what = f"{more * needs // machines(job, at)} more {stock.unit} of {stock.name}"
        return Remedy(what, (MoreHosts(at.key, more, in_gpus(at.gpus, shared=at.shared) * more, at.model),))
    lift = RENTING.get(reason.filter)
    return lift(standing, job, place, reason) if lift is not None else NOTHING


def _need(standing: DecidedWorld, job: JobView, place: int, reason: SiteReason) -> Remedy:
    """A deadline that only renting meets, or the wait that a policy asks for."""
    world, at = standing.world, standing.world.places[place]
    if job.deadline_at is not None:
        return NOTHING
    after = [p.after_wait_s for p in world.book.permits_for(job, at) if p.after_wait_s is not None]
    due = [job.submitted_at + wait_s for wait_s in after if job.submitted_at + wait_s > world.now]
    if due:
        return wait_until(min(due), world.now)
    delay_s = at.offer.offer.delay_s if at.offer else 0.0
    by = math.ceil((world.now + 2 * (delay_s + at.run_s(job))) / MINUTE_S) * MINUTE_S
    home = standing.bursting.home.get(job.id)
    if home is not None and home.finish_at <= by:
        return NOTHING
    return Remedy(
        f"a deadline of {moment(by, world.now)} (finish_within)", (AskFor(job.id, "deadline_at", by),)
    )


def _in_time(standing: DecidedWorld, job: JobView, place: int, reason: SiteReason) -> Remedy:
    """So late a deadline that renting there meets it, done again where it may be taken back."""
    if job.deadline_at is None or job.start_by_at is not None:
        return NOTHING
    asked = replace(job, deadline_at=standing.world.now + FAR_S)
    nobody_home = Bursting(standing.world, {})
    for permit in standing.world.book.permits_for(job, standing.world.places[place]):
        case = nobody_home.under(permit, asked, place)
        if isinstance(case, BurstRejection):
            continue
        finish_at = case.fallback_finish_at or case.finish_at
        if (by := met_by(finish_at, job.deadline_at)) > job.deadline_at:
            return Remedy(later_deadline(finish_at, job.deadline_at), (AskFor(job.id, "deadline_at", by),))
    return NOTHING


def _worth(standing: DecidedWorld, job: JobView, place: int, reason: SiteReason) -> Remedy:
    """A deadline worth its rent: what is paid beyond staying, over how much likelier it is met."""
    answer = standing.bursting.case(job, place)
    case = answer if isinstance(answer, BurstCandidate) else answer.dear
    if case is None:
        return NOTHING
    surer = standing.bursting.gains.surer(job, case)
    if surer < LEAST_SURER:
        return NOTHING
    value = worth_usd(case.cost_usd, surer)
    if value > _most_usd(standing.world, job.queue):
        return NOTHING  # the queue would refuse it
    return Remedy(f"a value of {money(value)}", (AskFor(job.id, "value_usd", value),))


def _most_usd(world: World, queue: str) -> float:
    """The value that the job's queue admits."""
    rules = world.snapshot.rules
    most = (rule.max_value_usd for rule in rules if isinstance(rule, QueueTerms) and rule.queue == queue)
    return min((usd for usd in most if usd is not None), default=math.inf)


def _approval(standing: DecidedWorld, job: JobView, place: int, reason: SiteReason) -> Remedy:
    at = standing.world.places[place]
    for permit in standing.world.book.permits_for(job, at):
        case = standing.bursting.under(permit, job, place)
        if isinstance(case, BurstCandidate):
            most = cents_up(case.committed_usd)
            text = f"a person approves {money(most)} (federator burst approve {job.id})"
            return Remedy(text, (AskFor(job.id, "approved_usd", most),))
    return NOTHING


def _until_rented(standing: DecidedWorld, job: JobView, place: int, reason: SiteReason) -> Remedy:
    case = standing.bursting.case(job, place)
    return wait_until(case.rent_at, standing.world.now) if isinstance(case, BurstCandidate) else NOTHING


def _until_booted(standing: DecidedWorld, job: JobView, place: int, reason: SiteReason) -> Remedy:
    return wait_until(reason.start_at, standing.world.now)


RENTING: dict[str, Callable[[DecidedWorld, JobView, int, SiteReason], Remedy]] = {
    "no-need": _need,
    "too-late": _in_time,
    "no-gain": _worth,
    "approval": _approval,
    "not-yet": _until_rented,
    "booting": _until_booted,
}

"""Why a job waits and why not there: answered from the snapshot and the plan, in milliseconds, without planning again.

The filters are asked of this one job at every pool and offer; what is free is what the plan left free; the forecasts are those that
the plan recorded. So an explanation is always there, also when the solver is not.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from federator.model.plans import Explanation, Plan, Preempt, Rent, SiteReason, Waiting
from federator.model.snapshot import JobView, Problem
from federator.planning.explanations.advice import in_words, remedies
from federator.planning.explanations.congestion import congestion
from federator.planning.explanations.context import ExplanationContext
from federator.planning.explanations.curve import price_curve
from federator.planning.explanations.ranges import ranges
from federator.planning.explanations.reasons import DecidedWorld
from federator.planning.explanations.remedies import smallest_way
from federator.planning.explanations.smallest_change import helps
from federator.planning.rentals.burst import Bursting
from federator.planning.rentals.candidate import HomeForecast
from federator.planning.wording.told import because_of, told_waiting, winner_words
from federator.planning.world.plan_starts import key_of
from federator.planning.world.problem import World


def explain_waiting(problem: Problem, plan: Plan, job_id: str) -> Explanation:
    """Why the job waits (or where this plan starts it), and a reason for every pool and offer.

    A job that the problem does not hold gets an explanation that says so.
    """
    return Aftermath(problem, plan).explain(job_id)


def _explained(
    after: "Aftermath", job: JobView, said: Explanation, waiting: Waiting | None, standing: DecidedWorld
) -> Explanation:
    """What the plan says, with all that is known of the places, and what would help."""
    standing.world.meet(job)
    found = enumerate(standing.reasons(job))
    prices, helping = after.plan.prices, None
    sites = _with_ties([_with_more(standing, job, site, place, prices) for place, site in found])
    curve = price_curve(standing, job, said.home_finish_at)
    if waiting is not None:
        helping = helps(ExplanationContext(after.problem, job, waiting, standing, after.before(job.id)))
        sites = tuple(_not_chosen(site, waiting) for site in sites)
    advice = remedies(job, helping, sites, standing.world.now)
    explanation = replace(
        said,
        sites=sites,
        changes=in_words(advice, waiting.change if waiting is not None else "", sites),
        remedies=advice,
        deadline_at=job.deadline_at if job.start_by_at is None else None,
        policies=_policies(standing, job),
        curve=curve,
        deadline_usd=min((point.cost_usd for point in curve if point.in_time), default=None),
    )
    return _ranged(explanation, job, standing.world.now)


def _ranged(found: Explanation, job: JobView, now: float) -> Explanation:
    """With the moments between which it is expected to start and to end."""
    start_at, finish_at = found.expected_start_at, found.expected_finish_at
    if start_at is None or finish_at is None:
        return found
    start, finish = ranges(job, now, start_at, finish_at, waits=found.status == "waiting")
    return replace(
        found,
        start_low_at=start.low_at,
        start_high_at=start.high_at,
        finish_low_at=finish.low_at,
        finish_high_at=finish.high_at,
    )


def _with_more(
    standing: DecidedWorld, job: JobView, site: SiteReason, place: int, prices: Mapping[str, float]
) -> SiteReason:
    """A place that filters close in every form, with all that it takes to open it, where that is known; one that passes, with what it takes from others beside its own price."""
    world = standing.world
    if all(world.rejection(job, choice) for choice in world.choices(job, place)):
        way, _ = smallest_way(world, job, place)
        site = replace(site, change=way.text, remedy=way.changes)
    if site.extra_cost_usd is None:
        return site
    view, at = world.as_form(job, place), world.places[place]
    return replace(site, congestion=congestion(prices, view, at, standing.caps, world.shortfalls))


def _with_ties(sites: Sequence[SiteReason]) -> tuple[SiteReason, ...]:
    """Places that are as good as the best are said to be."""
    best = [site for site in sites if not site.filter and site.extra_cost_usd == 0.0]
    return tuple(replace(site, tie=len(best) > 1 and site in best) for site in sites)


def _said(plan: Plan, job_id: str) -> tuple[Explanation, Waiting | None]:
    """What the plan says about one job, and its record of it, if it waits. The forecast at home of a job that starts there is its finish."""
    said = Explanation(
        job=job_id,
        status="unknown",
        because="this plan says nothing about it",
        decision=plan.decision,
        winner=f"{plan.winner}: {winner_words(plan, plan.taken_at)}",
    )
    for action in plan.actions:
        if action.job != job_id or isinstance(action, Preempt):
            continue
        if isinstance(action, Rent):
            evidence = action.evidence
            said = replace(said, status="rented for", burst=evidence, home_finish_at=evidence.home_finish_at)
        else:
            home_at = action.expected_end_at if action.lease is None else None
            said = replace(said, status="placed", home_finish_at=home_at)
        return replace(
            said,
            because=because_of(action, plan.taken_at),
            reason=action.reason,
            expected_start_at=action.expected_start_at,
            expected_finish_at=action.expected_end_at,
        ), None
    for waiting in plan.waiting:
        if waiting.job == job_id:
            told = told_waiting(waiting, plan.taken_at)
            return replace(
                said,
                status="waiting",
                because=told.because,
                reason=told.why,
                expected_start_at=told.expected_start_at,
                expected_finish_at=told.expected_finish_at,
                home_finish_at=told.home_finish_at,
            ), told
    return said, None


class Aftermath:
    """The world after a plan, for explaining one waiting job after the other: what they have in common is made once."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        """Nothing is made yet."""
        self.problem, self.plan = problem, plan
        self.views = {view.id: view for view in problem.snapshot.jobs}

    def explain(self, job_id: str) -> Explanation:
        """As `explain_waiting`."""
        job = self.views.get(job_id)
        if job is None:
            text = "this decision did not look at the job: it was not waiting when its snapshot was taken"
            plan = self.plan
            return Explanation(
                job=job_id, status="unknown", because=text, decision=plan.decision, winner=plan.winner
            )
        said, waiting = _said(self.plan, job_id)
        if waiting is not None:
            return _explained(self, job, said, waiting, self._shared)
        home_at = said.home_finish_at
        home = {} if home_at is None else {job_id: HomeForecast(job_id, "", home_at, home_at)}
        return _explained(self, job, said, None, self._standing(home, job_id))

    def before(self, job_id: str) -> list[tuple[JobView, Waiting]]:
        """Who waits before the job: a plan names those that wait in the order in which they are served."""
        return self._line[: self._turns.get(job_id, 0)]

    @cached_property
    def _line(self) -> list[tuple[JobView, Waiting]]:
        return [(self.views[each.job], each) for each in self.plan.waiting if each.job in self.views]

    @cached_property
    def _turns(self) -> dict[str, int]:
        return {view.id: number for number, (view, _) in enumerate(self._line)}

    @cached_property
    def _shared(self) -> DecidedWorld:
        """After all that the plan starts."""
        home = {
            each.job: HomeForecast(each.job, "", each.home_start_at or at, at, each.home_usd)
            for each in self.plan.waiting
            if (at := each.home_finish_at) is not None
        }
        return self._standing(home, "")

    def _standing(self, home: Mapping[str, HomeForecast], without: str) -> DecidedWorld:
        """After all that the plan starts but one job, which finds free what it takes."""
        world = World(replace(self.problem, snapshot=replace(self.problem.snapshot, jobs=())))
        starts = []
        for action in self.plan.actions:
            if isinstance(action, Preempt) or action.job == without or action.job not in self.views:
                continue
            place = world.named.get(key_of(action))
            if place is not None:
                starts.append((self.views[action.job].as_form(action.form), place))
        return DecidedWorld(world, Bursting(world, home), starts)


def _not_chosen(site: SiteReason, waiting: Waiting) -> SiteReason:
    """A place that has room for a job that waits nevertheless: the plan's reason is the place's."""
    if site.filter:
        return site
    name = "held" if waiting.kind == "capacity" else "better-elsewhere"
    text = f"{site.text}, but {waiting.because}"
    return replace(site, filter=name, text=text, change=waiting.change, reason=waiting.why)


def _policies(standing: DecidedWorld, job: JobView) -> tuple[str, ...]:
    """Policies that say something of the job somewhere: that let it rent or advise to, close a place, price it, or stop it by a cap."""
    world, names = standing.world, {job.cost_policy}
    for place in world.places:
        if place.rented:
            names |= {
                p.policy for p in (*world.book.permits_for(job, place), *world.book.advisers_for(job, place))
            }
        denial, cap = world.book.denial(job, place), standing.caps.blocking(job, place)
        names |= {rule.policy for rule in (denial, cap) if rule is not None}
        names |= {rule.policy for rule in world.book.hours_of(job, place)}
        names |= {term.policy for term in world.book.surcharges(job, place)}
    return tuple(sorted(names - {""}))

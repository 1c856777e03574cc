"""Plans of the real planners, broken in one way each: the checker blames the action, whatever world it is in.

Each world is a random one with two jobs added that always start: a gang on a pool of its own, at one member or over two, and one on an offer
of its own. One kind of damage each: a check that silently does nothing fails its own test.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.capacity import Market, Stock
from federator.model.plans import Action, Place, Plan, Rent
from federator.model.rules import CapRow, CapUnit, Effect, Filter, GuaranteeRow, PoolSelector, Rule, Scope
from federator.model.snapshot import JobView, OfferView, PoolView, Problem
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from tests.support.examples import examples
from tests.support.findings import fatal_subjects
from tests.support.worlds import (
    HOUR,
    NOW,
    QUEUES,
    a_job,
    a_pool,
    an_offer,
    bursting,
    busy,
    changed,
    worlds_at_random,
)

STAYER, BURSTER = "job-stays", "job-bursts"
OWN = Scope(queues=("own",))
PRIVATE = Filter("private", Effect.DENY, Scope(queues=QUEUES), PoolSelector(sites=("own-site", "own-cloud")))
"""Keeps random jobs off the pool and the offer of the two."""


class Case(NamedTuple):
    """A problem, a valid plan for it, and its two parts that may be damaged."""

    problem: Problem
    plan: Plan
    place: Place
    rent: Rent


@st.composite
def cases(draw: st.DrawFn, *, spread: bool | None = None) -> Case:
    """A random world in which one job surely stays and one surely bursts. `spread`: whether the gang's hosts are of two members."""
    spread = draw(st.booleans()) if spread is None else spread
    problem = draw(worlds_at_random(most_jobs=3))
    stays = a_job(STAYER, queue="own/stay", nodes=2, gpus=3, models=("B1",), max_cost_usd=1000.0)
    bursts = a_job(
        BURSTER, queue="own/burst", models=("B2",), deadline_at=NOW + HOUR + 620.0, value_usd=500.0
    )
    snapshot = problem.snapshot
    members = ("own-member", "own-second") if spread else ("own-member",)
    own = (a_pool("own-site", model="B1", member=m, session=m, nodes=2 // len(members)) for m in members)
    offer = an_offer("own-offer", model="B2", site="own-cloud", available=1)
    problem = changed(
        problem,
        jobs=(*snapshot.jobs, stays, bursts),
        pools=(*snapshot.pools, *own),
        offers=(*snapshot.offers, offer),
        rules=(*(rule for rule in snapshot.rules if not _meddles(rule)), bursting("own", scope=OWN), PRIVATE),
        burst_paused=False,
    )
    plan = plan_greedily(problem)
    actions = {action.job: action for action in plan.actions}
    place, rent = actions[STAYER], actions[BURSTER]
    assert isinstance(place, Place)
    assert isinstance(rent, Rent)
    assert not fatal_subjects(check(problem, plan))
    return Case(problem, plan, place, rent)


def _meddles(rule: Rule) -> bool:
    """Whether a random rule could keep the two jobs from starting."""
    return not isinstance(rule, GuaranteeRow) and getattr(rule, "scope", OWN).queues in ((), ("own",))


Damaged = tuple[Problem, Plan]


def _action(case: Case, old: Action, **fields: Any) -> Damaged:
    new = replace(old, **fields)
    return case.problem, replace(case.plan, actions=tuple(new if a is old else a for a in case.plan.actions))


def _job(case: Case, name: str, **fields: Any) -> Damaged:
    jobs = tuple(replace(job, **fields) if job.id == name else job for job in case.problem.snapshot.jobs)
    return changed(case.problem, jobs=jobs), case.plan


def _pool(case: Case, **fields: Any) -> Damaged:
    """The last of the gang's pools is changed."""
    *pools, last = case.problem.snapshot.pools
    return changed(case.problem, pools=(*pools, replace(last, **fields))), case.plan


def _a_host_less(case: Case) -> Damaged:
    free = case.problem.snapshot.pools[-1].free[0]
    return _pool(case, free=(replace(free, count=free.count - 1),))


def _offer(case: Case, *, avoid_until_at: float | None = None, **fields: Any) -> Damaged:
    def change(view: OfferView) -> OfferView:
        return replace(view, offer=replace(view.offer, **fields), avoid_until_at=avoid_until_at)

    offers = tuple(change(o) if o.site == "own-cloud" else o for o in case.problem.snapshot.offers)
    return changed(case.problem, offers=offers), case.plan


def _rule(case: Case, rule: Rule) -> Damaged:
    return changed(case.problem, rules=(*case.problem.snapshot.rules, rule)), case.plan


def _without_permits(case: Case) -> Damaged:
    return changed(
        case.problem, rules=tuple(r for r in case.problem.snapshot.rules if r.policy != "own")
    ), case.plan


def _evidence(case: Case, **fields: Any) -> Damaged:
    return _action(case, case.rent, evidence=replace(case.rent.evidence, **fields))


def _twice(case: Case, action: Action) -> Damaged:
    return case.problem, replace(case.plan, actions=(*case.plan.actions, action))


def _crowded(case: Case) -> Damaged:
    """Another job is given the same GPUs, before this one."""
    other: JobView = a_job("job-other", queue="own", nodes=2, gpus=2, models=("B1",))
    problem = changed(case.problem, jobs=(*case.problem.snapshot.jobs, other))
    first = replace(case.place, job=other.id, revision=other.revision)
    return problem, replace(case.plan, actions=(first, *case.plan.actions))


def _running(case: Case) -> Damaged:
    elsewhere: PoolView = a_pool("else", busy=(busy("pl-own", STAYER),))
    return changed(case.problem, pools=(*case.problem.snapshot.pools, elsewhere)), case.plan


DAMAGE_TO_A_PLACE: dict[str, Callable[[Case], Damaged]] = {
    "the job is gone": lambda c: (
        changed(c.problem, jobs=tuple(j for j in c.problem.snapshot.jobs if j.id != STAYER)),
        c.plan,
    ),
    "the job has changed": lambda c: _job(c, STAYER, revision=999),
    "the job runs already": _running,
    "the job is placed twice": lambda c: _twice(c, c.place),
    "the job is in its backoff": lambda c: _job(c, STAYER, not_before_at=NOW + 1.0),
    "a rank is missing": lambda c: _action(c, c.place, members=c.place.members[1:]),
    "a rank too many": lambda c: _action(c, c.place, members=(*c.place.members, c.place.members[0])),
    "a rank elsewhere": lambda c: _action(c, c.place, members=(c.place.members[0], "another")),
    "no ranks": lambda c: _action(c, c.place, members=()),
    "another pool": lambda c: _action(c, c.place, pool="no-such-pool"),
    "another site": lambda c: _action(c, c.place, site="no-such-site"),
    "the session has ended": lambda c: _pool(c, session="a later one"),
    "the plan saw another session": lambda c: _action(
        c, c.place, sessions=(c.place.sessions[0], "an earlier one")
    ),
    "a session is missing": lambda c: _action(c, c.place, sessions=c.place.sessions[1:]),
    "no sessions": lambda c: _action(c, c.place, sessions=()),
    "the pool is closed": lambda c: _pool(c, open=False),
    "the pool boots": lambda c: _pool(c, ready_at=NOW + 1.0),
    "nothing is free": lambda c: _pool(c, free=()),
    "GPUs are double-used": _crowded,
    "a host less": _a_host_less,
    "no CPUs left": lambda c: _pool(c, free=(replace(a_pool().free[0], cpus_milli=999),)),
    "no memory left": lambda c: _pool(c, free=(replace(a_pool().free[0], memory_mib=1023),)),
    "another model": lambda c: _pool(c, model="B9"),
    "a price of its own": lambda c: _pool(c, market=Market.ON_DEMAND, price_usd_gpu_h=1.0),
    "less memory per GPU": lambda c: _job(c, STAYER, gpu_memory_mib=10**6),
    "another kind of site": lambda c: _job(c, STAYER, kinds=("edge",)),
    "a site not named": lambda c: _job(c, STAYER, sites=("home",)),
    "a site excluded": lambda c: _job(c, STAYER, not_sites=("own-site",)),
    "a label missing": lambda c: _job(c, STAYER, site_labels={"no": "such"}),
    "not fenced": lambda c: _job(c, STAYER, needs_fencing=True),
    "lent to others": lambda c: _pool(c, lends_to=("others",)),
    "trusts others": lambda c: _pool(c, trusts=("owner:others", "queue:others")),
    "denied": lambda c: _rule(c, Filter("no", Effect.DENY, scope=OWN)),
    "over a cap on GPUs": lambda c: _rule(c, CapRow("cap", CapUnit.GPUS, 5, Scope(queues=("own/stay",)))),
    "over a cap on jobs": lambda c: _rule(c, CapRow("cap", CapUnit.JOBS, 0, OWN)),
    "licences that nobody has": lambda c: _job(c, STAYER, licenses={"matlab": 1}),
    "over a borrowing limit": lambda c: _rule(c, GuaranteeRow("g", "own/stay", gpus=3, borrowing_limit=2)),
    "rented after all": lambda c: _pool(c, market=Market.SPOT, lease="lease-9"),
}
DAMAGE_TO_A_SPREAD_GANG: dict[str, Callable[[Case], Damaged]] = {
    "all on one member": lambda c: _action(
        c, c.place, members=c.place.members[:1] * 2, sessions=c.place.sessions[:1] * 2
    ),
    "the sessions of each other": lambda c: _action(c, c.place, sessions=c.place.sessions[::-1]),
    "members of two sites": lambda c: _pool(c, site="own-other"),
    "members of two pools": lambda c: _pool(c, pool="other"),
    "two makes": lambda c: _pool(c, gpus_per_node=8),
    "two prices": lambda c: _pool(c, price_usd_gpu_h=0.25),
    "two kinds of labels": lambda c: _pool(c, labels={"rack": "2"}),
    "one fences": lambda c: _pool(c, self_fencing=True),
    "one lends to some": lambda c: _pool(c, lends_to=("own",)),
    "one is closed": lambda c: _pool(c, open=False),
    "one is gone": lambda c: (
        changed(c.problem, pools=c.problem.snapshot.pools[:-1]),
        c.plan,
    ),
}
DAMAGE_TO_A_RENTAL: dict[str, Callable[[Case], Damaged]] = {
    "the job has changed": lambda c: _job(c, BURSTER, revision=999),
    "the job is rented for twice": lambda c: _twice(c, c.rent),
    "the offer is gone": lambda c: _action(c, c.rent, offer="no-such-offer"),
    "another provider": lambda c: _action(c, c.rent, provider="no-such-provider"),
    "another site": lambda c: _action(c, c.rent, site="own-site"),
    "sold out": lambda c: _offer(c, available=0),
    "its stock is used up": lambda c: _offer(c, stock=Stock("quota", 8, each=1, used=8)),
    "avoided": lambda c: _offer(c, avoid_until_at=NOW + 1.0),
    "too small": lambda c: _offer(c, gpus=0),
    "another model": lambda c: _offer(c, model="B9"),
    "spot for a job that refuses it": lambda c: _job(c, BURSTER, spot_policy="spot"),
    "no right to rent": lambda c: _job(c, BURSTER, may_rent=False),
    "spot without a way back": lambda c: _offer(c, market=Market.SPOT),
    "bursting is paused": lambda c: (changed(c.problem, burst_paused=True), c.plan),
    "no permit": _without_permits,
    "denied": lambda c: _rule(c, Filter("no", Effect.DENY, scope=OWN)),
    "nothing ends it": lambda c: _job(c, BURSTER, max_duration_s=None),
    "dearer than its own cap": lambda c: _job(c, BURSTER, max_cost_usd=1.0),
    "its own cap is spent": lambda c: _job(c, BURSTER, max_cost_usd=100.0, spent_usd=99.0),
    "dearer than it was": lambda c: _offer(c, price_usd_h=11.0),
    "commits too little": lambda c: _action(c, c.rent, committed_usd=c.rent.committed_usd - 0.01),
    "over a budget": lambda c: _rule(c, CapRow("cap", CapUnit.USD, c.rent.committed_usd - 0.01, OWN)),
    "over an hourly rate": lambda c: _rule(c, CapRow("cap", CapUnit.USD_PER_H, 9.99, OWN)),
    "over a cap on instances": lambda c: _rule(c, CapRow("cap", CapUnit.INSTANCES, 0, OWN)),
    "over a cap on GPUs": lambda c: _rule(c, CapRow("cap", CapUnit.GPUS, 0, Scope(queues=("own/burst",)))),
    "another's evidence": lambda c: _evidence(c, job="job-0"),
    "evidence of another deadline": lambda c: _evidence(c, deadline_at=NOW),
    "evidence of another policy": lambda c: _evidence(c, policy="no-such-policy"),
    "evidence of another mode": lambda c: _evidence(c, mode="always"),
    "in time at home": lambda c: _evidence(c, home_finish_at=NOW + HOUR),
    "too late even there": lambda c: _evidence(c, burst_finish_at=NOW + 3 * HOUR),
    "too good to be true": lambda c: _evidence(c, burst_finish_at=NOW + HOUR),
    "its deadline is gone": lambda c: _job(c, BURSTER, deadline_at=None),
}
often = settings(
    max_examples=examples(5),
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("damage", DAMAGE_TO_A_PLACE)
@often
@given(case=cases())
def test_a_damaged_place_is_blamed(damage: str, case: Case) -> None:
    assert STAYER in fatal_subjects(check(*DAMAGE_TO_A_PLACE[damage](case)))


@pytest.mark.parametrize("damage", DAMAGE_TO_A_SPREAD_GANG)
@often
@given(case=cases(spread=True))
def test_a_damaged_gang_over_members_is_blamed(damage: str, case: Case) -> None:
    assert len(set(case.place.members)) == 2
    assert STAYER in fatal_subjects(check(*DAMAGE_TO_A_SPREAD_GANG[damage](case)))


@pytest.mark.parametrize("damage", DAMAGE_TO_A_RENTAL)
@often
@given(case=cases())
def test_a_damaged_rental_is_blamed(damage: str, case: Case) -> None:
    assert BURSTER in fatal_subjects(check(*DAMAGE_TO_A_RENTAL[damage](case)))

"""Ten thousand worlds and plans at random, each judged twice: by the checker, and by a judge who tries everything (`tests.support.judge`).

The plans are nobody's: every waiting job is sent somewhere by the dice, so most of them break something and each thing is broken many times.
What the checker leaves of a plan breaks nothing, and what breaks nothing it leaves alone.
"""

from collections import Counter
from random import Random
from typing import Any

from msgspec.structs import replace

from federator.model.capacity import Market, Shape, Stock
from federator.model.plans import Action
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Effect,
    Filter,
    GuaranteeRow,
    Period,
    PoolSelector,
    Rule,
    Scope,
)
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, SpendView
from federator.planning.checks import check_actions
from tests.support.findings import fatal_subjects
from tests.support.judge import broken
from tests.support.worlds import (
    HOUR,
    NOW,
    PARTS,
    a_job,
    a_plan,
    a_pool,
    a_world,
    an_offer,
    bursting,
    busy,
    placed,
    proof,
    rented,
)

INSTANCES = 12_000
QUEUES = ("batch", "research", "research/vision")
MODELS = ("A100", "H100")
SORTS = {
    "twice", "changed", "runs already", "too early", "no such place", "ranks", "avoided", "makes", "closed", "session", "model", "shared gpus", "together",
    "gpu memory", "site", "labels", "market", "lending", "isolation", "denied", "not permitted", "no right to rent", "endless rental", "max_cost", "cap on gpus",
    "cap on jobs", "cap on licences", "licenses", "cap on instances", "cap on usd per h", "cap on usd", "borrowing", "instance too small", "no more instances", "stock used up", "capacity",
}  # fmt: skip
"""All that the judge knows."""


def test_what_is_left_of_any_plan_breaks_nothing_and_what_breaks_nothing_is_left() -> None:
    alone: Counter[str] = Counter()
    for seed in range(INSTANCES):
        dice = Random(seed)
        problem = _world(dice)
        plan = a_plan(*_actions(dice, problem))
        sorts = broken(problem, plan)
        if len(sorts) <= 1:
            alone.update(sorts or ["nothing"])
        blamed = fatal_subjects(check_actions(problem, plan))
        assert bool(sorts) == bool(blamed), (seed, sorts, blamed)
        kept = replace(plan, actions=tuple(action for action in plan.actions if action.job not in blamed))
        assert not broken(problem, kept), seed
    assert set(alone) == {*SORTS, "nothing"}
    assert min(alone.values()) >= 3, alone


def _maybe(dice: Random, value: Any, other: Any, chance: float = 0.06) -> Any:
    return value if dice.random() < chance else other


def _world(dice: Random) -> Problem:
    pools = [pool for number in range(dice.randint(1, 3)) for pool in _pools(dice, number)]
    offers = [_offer(dice, number) for number in range(dice.randint(0, 3))]
    jobs = [_job(dice, number) for number in range(dice.randint(1, 5))]
    works = [work for pool in pools for work in pool.busy if work.job]
    if works and dice.random() < 0.05:
        jobs.append(a_job(works[0].job or ""))
    rules = [rule for rule in _rules(dice) if dice.random() < 0.3]
    counted = any(isinstance(rule, CapRow) and rule.license for rule in rules)
    jobs = [replace(job, licenses=_maybe(dice, {"matlab": 1}, {}, 0.5 if counted else 0.05)) for job in jobs]
    if dice.random() < 0.8:
        rules.append(bursting(mode=BurstMode.ALWAYS, scope=Scope(queues=_maybe(dice, ("research",), ()))))
    spend = [SpendView("money", "day", dice.choice([0.0, 20.0]), dice.choice([0.0, 10.0]))]
    if dice.random() < 0.2:  # they have one quota
        stock = Stock("quota", dice.choice([3, 4, 8]), used=dice.choice([0, 0, 1]), unit="GPUs")
        offers = [
            replace(
                v,
                offer=replace(v.offer, stock=replace(stock, each=v.offer.gpus)),
            )
            for v in offers
        ]
    return a_world(jobs, pools, offers, rules, spend, burst_paused=dice.random() < 0.05)


def _pools(dice: Random, number: int) -> list[PoolView]:
    """The pool of one member or two, with what runs there taken off what is free."""
    shared = dice.random() < 0.15
    each, parts = (1000, PARTS) if shared else (4, (1, 2, 3, 4))
    fields: dict[str, Any] = {
        "pool": f"gpu-{number}", "model": dice.choice(MODELS), "gpus_per_node": each, "shared": shared, "cpus_milli_per_node": 8000,
        "memory_mib_per_node": 8192, "gpu_memory_mib": dice.choice([40_960, 81_920]), "labels": _maybe(dice, {"tier": "gold"}, {}, 0.3),
        "lends_to": _maybe(dice, (("research",), ("batch", "team:vision"))[number % 2], ()),
        "trusts": _maybe(dice, dice.choice([(), ("owner:ada",), (("queue:research",), ("team:vision",))[number % 2]]), None),
    }  # fmt: skip
    views: list[PoolView] = []
    for member in range(dice.choice([1, 1, 2])):
        hosts = [[each, 8000, 8192] for _ in range(dice.randint(1, 3))]
        works: list[BusyView] = []
        for host in hosts:
            if dice.random() < 0.4:
                gpus = dice.choice(parts)
                host[0], host[1] = host[0] - gpus, host[1] - 1000
                name = f"{number}-{member}-{len(works)}"
                fields_of = {"gpus": gpus, "cpus_milli": 1000, "shared": shared}
                works.append(busy(f"pl-{name}", f"busy-{name}", queue=dice.choice(QUEUES), **fields_of))
        views.append(
            a_pool(
                dice.choice(["home", "edge"]) if not views else views[0].site, member=f"member-{number}-{member}", nodes=len(hosts),
                session=f"session-{number}-{member}", free=tuple(Shape(*host) for host in hosts), busy=tuple(works),
                open=dice.random() > 0.07, **(fields | _maybe(dice, {"cpus_milli_per_node": 9000}, {})),
            )
        )  # fmt: skip
    return views


def _offer(dice: Random, number: int) -> OfferView:
    return an_offer(
        f"eu/{number}", market=dice.choice([Market.ON_DEMAND, Market.ON_DEMAND, Market.SPOT]), available=dice.choice([1, 1, 1, 2, 3]),
        model=dice.choice(MODELS), avoid_until_at=_maybe(dice, NOW + 60.0, None), cpus_milli=8000, memory_mib=8192,
        price_usd_h=dice.choice([5.0, 10.0]), slack_s=dice.choice([0.0, 300.0]),
    )  # fmt: skip


def _job(dice: Random, number: int) -> JobView:
    shared = dice.random() < 0.15
    return a_job(
        f"job-{number}", revision=number + 1, queue=dice.choice(QUEUES), owner=dice.choice(["ada", "bob"]), team=("", "vision", "speech")[number % 3],
        nodes=dice.choice([1, 1, 1, 2, 3]), gpus=dice.choice(PARTS if shared else (0, 1, 1, 2, 4)), shared=shared, cpus_milli=dice.choice([0, 1000, 3000]),
        memory_mib=dice.choice([0, 1024, 4096]), models=_maybe(dice, ("A100",), (), 0.2),
        gpu_memory_mib=_maybe(dice, 65_536, 0), max_duration_s=_maybe(dice, None, 2 * HOUR),
        max_cost_usd=_maybe(dice, 21.0, None, 0.2), spent_usd=_maybe(dice, 2.0, 0.0), spot_policy=_maybe(dice, dice.choice(["spot", "on-demand"]), "auto", 0.2),
        may_rent=_maybe(dice, False, True, 0.1), kinds=_maybe(dice, ("cloud",), ()), sites=_maybe(dice, ("home",), ()), not_sites=_maybe(dice, ("edge",), ()),
        together=dice.choice(["", "", "", "", "", "", "spread", "tier"]), site_labels=_maybe(dice, {"tier": "gold"}, {}), not_before_at=_maybe(dice, NOW + 60.0, None, 0.03),
    )  # fmt: skip


def _rules(dice: Random) -> list[Rule]:
    scope = Scope(queues=dice.choice([(), ("research",), ("batch",)]), owners=dice.choice([(), (), ("ada",)]))
    some = PoolSelector(sites=dice.choice([(), ("home",)]), models=dice.choice([(), ("A100",)]))
    return [
        CapRow("gpus", CapUnit.GPUS, dice.choice([2, 6]), scope, some),
        CapRow("jobs", CapUnit.JOBS, dice.choice([1, 2]), scope, some),
        CapRow("matlab", CapUnit.LICENSES, 1, pools=some, license="matlab"),
        CapRow("instances", CapUnit.INSTANCES, 1),
        CapRow("rate", CapUnit.USD_PER_H, dice.choice([8.0, 12.0])),
        CapRow("money", CapUnit.USD, dice.choice([40.0, 70.0]), period=Period.DAY),
        Filter("no", Effect.DENY, scope, some),
        GuaranteeRow(
            "promise", dice.choice(["research", "batch"]), gpus=2, borrowing_limit=dice.choice([0, 2])
        ),
    ]


def _actions(dice: Random, problem: Problem) -> list[Action]:
    """Most jobs are sent somewhere, mostly as it should be written down."""
    actions: list[Action] = []
    for job in problem.snapshot.jobs:
        if dice.random() < 0.2:
            continue
        if problem.snapshot.offers and dice.random() < 0.4:
            view = dice.choice(problem.snapshot.offers)
            worst = {"committed_usd": 1e6} if job.max_duration_s is None else {}
            action: Action = rented(job, view, evidence=proof(job, view, mode="always"), **worst)
            action = _maybe(dice, replace(action, site="nowhere"), action, 0.02)
        else:
            action = _placed(dice, problem, job)
        action = _maybe(dice, replace(action, revision=99), action, 0.02)
        actions += [action] * (2 if dice.random() < 0.02 else 1)
    dice.shuffle(actions)
    return actions


def _placed(dice: Random, problem: Problem, job: JobView) -> Action:
    pool = dice.choice(problem.snapshot.pools)
    alike = [each for each in problem.snapshot.pools if (each.site, each.pool) == (pool.site, pool.pool)]
    ranks = max(0, job.nodes + _maybe(dice, dice.choice([-1, 1]), 0, 0.04))
    hosts = [dice.choice(alike) for _ in range(ranks)]
    sessions = tuple(_maybe(dice, "earlier", host.session, 0.01) for host in hosts)
    return placed(
        job,
        pool,
        members=tuple(host.member for host in hosts),
        sessions=sessions,
        pool=_maybe(dice, "none", pool.pool, 0.01),
    )

"""Small worlds for planner and checker: plain builders for one thing at a time, and strategies that draw whole worlds at random.

Every builder takes what the test wants to vary and gives the rest a value under which everything is permitted, so that a test names only
what it is about. `NOW` is a Tuesday, 22:13:20 UTC.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import strategies as st

from federator.model.capacity import BurstEvidence, Market, Offer, Shape
from federator.model.plans import Action, Place, Plan, Preempt, Rent, Waiting
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Effect,
    Filter,
    GuaranteeRow,
    Period,
    PoolSelector,
    PreemptRule,
    PriceKind,
    PriceTerm,
    Rule,
    Scope,
    Window,
)
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, Snapshot, SpendView
from tests.support.data_worlds import DATA, DATASETS, INPUTS, LINK_RULES, rarely
from tests.support.form_worlds import forms_at_random
from tests.support.stocked import on_a_stock

NOW = 1_700_000_000.0
HOUR = 3600.0


SPOT_INTERRUPTIONS_H = 0.188
"""Of spot machines, unless a test says otherwise: an hour of work is planned to take 66 minutes."""


def a_job(name: str = "job-a", **fields: Any) -> JobView:
    """A job of one GPU that runs for an hour, is killed after two, and has waited for ten minutes."""
    given: dict[str, Any] = {
        "revision": 7, "name": name, "queue": "research/vision", "owner": "ada", "submitted_at": NOW - 600.0,
        "gpus": 1, "cpus_milli": 1000, "memory_mib": 1024, "run_s": HOUR, "run_low_s": HOUR, "run_high_s": HOUR,
        "max_duration_s": 2 * HOUR,
    }  # fmt: skip
    return JobView(id=name, **(given | fields))


def a_pool(site: str = "home", **fields: Any) -> PoolView:
    """Two idle on-premises hosts of four A100 each, at one member."""
    given: dict[str, Any] = {
        "kind": "onprem", "pool": "gpu", "member": f"{site}-1", "session": f"session-{site}", "region": "eu", "model": "A100",
        "gpu_memory_mib": 81920, "nodes": 2, "gpus_per_node": 4, "cpus_milli_per_node": 64_000, "memory_mib_per_node": 262_144,
    }  # fmt: skip
    given |= fields
    whole = Shape(
        given["gpus_per_node"], given["cpus_milli_per_node"], given["memory_mib_per_node"], given["nodes"]
    )
    given.setdefault("free", (whole,))
    return PoolView(site=site, **given)


def a_lease(lease: str = "lease-1", **fields: Any) -> PoolView:
    """The pool of a rented host of four A100 that has booted."""
    given: dict[str, Any] = {
        "kind": "cloud", "member": f"{lease}-0", "nodes": 1, "market": Market.ON_DEMAND, "provider": "acme", "lease": lease,
        "price_usd_gpu_h": 2.5,
    }  # fmt: skip
    given |= fields
    given.setdefault("interruptions_h", SPOT_INTERRUPTIONS_H if given["market"] is Market.SPOT else 0.0)
    return a_pool("acme-eu", **given)


def an_offer(
    name: str = "eu/4xA100",
    *,
    site: str = "acme-eu",
    avoid_until_at: float | None = None,
    slack_s: float = 0.0,
    interruptions_h: float | None = None,
    **fields: Any,
) -> OfferView:
    """A host of four A100 for 10 USD an hour, nine minutes to boot and one to end; three of them to be had."""
    given: dict[str, Any] = {
        "provider": "acme", "region": "eu", "instance_type": "4xA100", "market": Market.ON_DEMAND, "model": "A100",
        "gpu_memory_mib": 81920, "gpus": 4, "cpus_milli": 64_000, "memory_mib": 262_144, "price_usd_h": 10.0, "delay_s": 540.0,
        "teardown_s": 60.0, "minimum_billing_s": 60.0, "available": 3,
    }  # fmt: skip
    offer = Offer(name=name, **(given | fields))
    if interruptions_h is None:
        interruptions_h = SPOT_INTERRUPTIONS_H if offer.market is Market.SPOT else 0.0
    return OfferView(
        offer=offer,
        site=site,
        avoid_until_at=avoid_until_at,
        slack_s=slack_s,
        interruptions_h=interruptions_h,
    )


def bursting(policy: str = "burst", *, mode: BurstMode | None = BurstMode.ECONOMIC, **fields: Any) -> Filter:
    """A policy that permits to rent anything, when it pays."""
    return Filter(policy=policy, effect=Effect.ALLOW, mode=mode, **fields)


def busy(placement: str, job: str, /, **fields: Any) -> BusyView:
    """Work of ours that holds one GPU for another hour."""
    given: dict[str, Any] = {
        "nodes": 1, "gpus": 1, "ends_at": NOW + HOUR, "queue": "batch", "owner": "bob", "priority": 10, "started_at": NOW - HOUR,
        "revision": 3,
    }  # fmt: skip
    return BusyView(placement=placement, job=job, **(given | fields))


def a_world(
    jobs: Iterable[JobView] = (),
    pools: Iterable[PoolView] = (),
    offers: Iterable[OfferView] = (),
    rules: Iterable[Rule] = (),
    spend: Iterable[SpendView] = (),
    *,
    burst_paused: bool = False,
) -> Problem:
    """A problem over these."""
    snapshot = Snapshot(
        taken_at=NOW, incarnation="store-1", revision=100, jobs=tuple(jobs), pools=tuple(pools), offers=tuple(offers),
        rules=tuple(rules), spend=tuple(spend), burst_paused=burst_paused,
    )  # fmt: skip
    return Problem(snapshot=snapshot, decision="dec-1")


def placed(job: JobView, pool: PoolView, /, **fields: Any) -> Place:
    """The action that starts the job there, all as it should be."""
    given: dict[str, Any] = {
        "revision": job.revision, "site": pool.site, "pool": pool.pool, "members": (pool.member,) * job.nodes,
        "sessions": (pool.session,) * job.nodes, "market": pool.market, "price_usd_gpu_h": pool.price_usd_gpu_h, "expected_start_at": NOW,
        "expected_end_at": NOW + job.run_s, "because": "it fits", "lease": pool.lease,
    }  # fmt: skip
    return Place(job=job.id, **(given | fields))


def worst_usd(job: JobView, view: OfferView) -> float:
    """What renting the offer for the job costs if all is late and the job runs into its limit."""
    assert job.max_duration_s is not None
    offer = view.offer
    longest_s = offer.delay_s + view.slack_s + job.max_duration_s + job.grace_s + offer.teardown_s
    return offer.price_usd_h * max(offer.minimum_billing_s, longest_s) / HOUR


def proof(job: JobView, view: OfferView, /, **fields: Any) -> BurstEvidence:
    """Evidence that an economic policy accepts, for a job whose deadline the offer meets."""
    given: dict[str, Any] = {
        "policy": "burst", "mode": "economic", "home_finish_at": None, "burst_finish_at": NOW + view.offer.delay_s + job.run_s,
        "deadline_at": job.deadline_at, "cost_usd": 1.0, "value_usd": 100.0, "decision": "dec-1",
    }  # fmt: skip
    return BurstEvidence(job=job.id, **(given | fields))


def rented(job: JobView, view: OfferView, /, *, evidence: BurstEvidence | None = None, **fields: Any) -> Rent:
    """The action that rents the offer for the job, all as it should be."""
    given: dict[str, Any] = {
        "revision": job.revision, "provider": view.offer.provider, "offer": view.offer.name, "site": view.site,
        "expected_start_at": NOW + view.offer.delay_s, "expected_end_at": NOW + view.offer.delay_s + job.run_s,
        "because": "its deadline is worth it",
    }  # fmt: skip
    given |= fields
    if "committed_usd" not in given:
        given["committed_usd"] = worst_usd(job, view)
    return Rent(job=job.id, evidence=evidence or proof(job, view), **given)


def preempted(victim: BusyView, beneficiary: str, /, **fields: Any) -> Preempt:
    """The action that stops the victim for the beneficiary."""
    given: dict[str, Any] = {"revision": victim.revision, "because": "its place is owed"}
    return Preempt(
        job=victim.job or "", placement=victim.placement or "", beneficiary=beneficiary, **(given | fields)
    )


def a_plan(*actions: Action, waiting: Iterable[str] = ()) -> Plan:
    """A plan of these actions; `waiting` names jobs that wait for capacity."""
    return Plan(
        decision="dec-1", taken_at=NOW, seed=0, winner="by-hand", winner_because="written by a test", objective_usd=0.0,
        actions=actions, waiting=tuple(Waiting(job=name, kind="capacity", because="nothing is free") for name in waiting),
    )  # fmt: skip


def changed(problem: Problem, **fields: Any) -> Problem:
    """The same problem, with other fields in its snapshot."""
    return msgspec.structs.replace(problem, snapshot=msgspec.structs.replace(problem.snapshot, **fields))


# -- Worlds at random: few values of each kind, so that they meet ---------------------------------------------------------

QUEUES = ("batch", "research", "research/vision")
MODELS = ("A100", "H100")
SITES = ("home", "edge", "acme-eu")
PARTS = (100, 300, 500, 700, 1000)
"""Of shared GPUs, in thousandths."""
SLACKS_S = (-60.0, 120.0, 620.0, 700.0, 4 * HOUR)
"""Of deadlines: too late already, only at home, only just with an offer (renting is put off until it has to be), and ample."""


def _some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """Mostly none, which means any."""
    return st.one_of(
        st.just(()),
        st.just(()),
        st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True).map(tuple),
    )


SCOPES = st.builds(
    Scope,
    queues=_some(QUEUES),
    owners=rarely(st.just(("ada",)), ()),
    labels=rarely(st.just({"team": "x"}), {}),
)
SELECTORS = st.builds(
    PoolSelector,
    sites=_some(SITES),
    kinds=rarely(st.just(("cloud",)), ()),
    markets=rarely(st.sampled_from([(Market.OWNED,), (Market.SPOT, Market.ON_DEMAND)]), ()),
    models=rarely(st.just(("A100",)), ()),
)
WINDOWS = st.sampled_from(
    [None, None, Window(days=(1,)), Window(days=(2,)), Window(from_minute=1200, to_minute=60)]
)


@st.composite
def jobs_at_random(draw: st.DrawFn, number: int) -> JobView:
    """A job, small or a gang, plain or with wishes."""
    run_s, shared = draw(st.sampled_from([0.25, 0.5, 1.0, 2.0])) * HOUR, draw(rarely(st.just(True), False))
    return a_job(
        f"job-{number}",
        revision=number + 1,
        queue=draw(st.sampled_from(QUEUES)),
        owner=draw(st.sampled_from(["ada", "bob"])),
        labels=draw(rarely(st.just({"team": "x"}), {})),
        submitted_at=NOW - draw(st.sampled_from([0.0, 600.0, 7200.0])),
        priority=draw(st.sampled_from([10, 50, 90])),
        nodes=draw(st.sampled_from([1, 1, 1, 2, 3])),
        together=draw(st.sampled_from(["", "", "", "spread", "rack"])),
        gpus=draw(st.sampled_from(PARTS if shared else [0, 1, 1, 2, 4])),
        shared=shared,
        cpus_milli=draw(st.sampled_from([0, 1000, 3000])),
        memory_mib=draw(st.sampled_from([0, 1024])),
        models=draw(_some(MODELS)),
        run_s=run_s,
        run_low_s=run_s / 2,
        run_high_s=run_s * 2,
        speed=draw(st.sampled_from([{}, {"H100": 2.0}, {"A100": 1.0, "H100": 1.5}])),
        max_duration_s=draw(st.sampled_from([2 * HOUR, 4 * HOUR, None])),
        grace_s=draw(st.sampled_from([0.0, 30.0, 600.0])),
        deadline_at=draw(st.sampled_from([None, *(NOW + run_s + slack_s for slack_s in SLACKS_S)])),
        value_usd=draw(st.sampled_from([None, 1.0, 500.0])),
        must=draw(rarely(st.just(True), False)),
        max_cost_usd=draw(rarely(st.sampled_from([5.0, 60.0]), None)),
        spent_usd=draw(rarely(st.just(2.0), 0.0)),
        spot_policy=draw(st.sampled_from(["auto", "auto", "spot", "on-demand"])),
        kinds=draw(rarely(st.sampled_from([("onprem",), ("cloud",)]), ())),
        sites=draw(rarely(_some(SITES), ())),
        not_sites=draw(rarely(st.sampled_from([("home",), ("acme-eu",)]), ())),
        interactive=draw(rarely(st.just(True), False)),
        not_before_at=draw(rarely(st.sampled_from([NOW - 1.0, NOW + 60.0]), None)),
        avoid_nodes=draw(rarely(st.sampled_from([("member-0/n1",), ("member-0-0/n1", "member-1/n2")]), ())),
        needs_fencing=draw(rarely(st.just(True), False)),
        licenses=draw(rarely(st.sampled_from([{"matlab": 1}, {"matlab": 2}]), {})),
        refused=draw(rarely(st.sampled_from([(("home", NOW + 60.0),), (("acme-eu", NOW - 1.0),)]), ())),
        inputs=draw(rarely(st.lists(st.sampled_from(INPUTS), min_size=1, unique=True).map(tuple), ())),
        forms=draw(st.one_of(st.just(()), st.just(()), forms_at_random())),
        ordered=draw(st.booleans()), patience_s=draw(st.sampled_from([0.0, HOUR, 12 * HOUR])),
    )  # fmt: skip


@st.composite
def pools_at_random(draw: st.DrawFn, number: int) -> list[PoolView]:
    """Owned hosts of one member or several, or a lease, with work on them; what is free is exactly what that work leaves."""
    lease = draw(rarely(st.just(True), False))
    shared = not lease and draw(rarely(st.just(True), False))
    per_node = 1000 if shared else draw(st.sampled_from([0, 2, 4, 4]))
    fields: dict[str, Any] = {
        "pool": f"gpu-{number}", "member": f"member-{number}", "model": draw(st.sampled_from(MODELS)) if per_node else "",
        "gpus_per_node": per_node, "shared": shared, "cpus_milli_per_node": 8000, "memory_mib_per_node": 8192, "lends_to": draw(rarely(_some(QUEUES), ())),
        "self_fencing": draw(st.booleans()), "price_usd_gpu_h": draw(st.sampled_from([0.0, 0.5])),
        "age_s": draw(rarely(st.sampled_from([20.0, 240.0]), 0.0)),
        **_state_at_random(draw, str(number), 1 if lease else draw(st.integers(1, 3)), per_node),
    }  # fmt: skip
    if not lease:
        first = a_pool(draw(st.sampled_from(SITES[:2])), **fields)
        others = [draw(_siblings_at_random(first, n)) for n in range(draw(st.sampled_from([0, 0, 1, 2])))]
        return [first, *others]
    boots = draw(st.booleans()) and not fields["busy"]
    market = draw(st.sampled_from([Market.ON_DEMAND, Market.SPOT]))
    view = a_lease(
        f"lease-{number}", **fields, market=market, rented_queue=draw(st.sampled_from(["", "batch"])),
        ready_at=NOW + 300.0 if boots else None, paid_until_at=draw(st.sampled_from([None, NOW + HOUR])),
        tail_s=draw(st.sampled_from([0.0, 360.0])),
    )  # fmt: skip
    return [view]


@st.composite
def _siblings_at_random(draw: st.DrawFn, first: PoolView, number: int) -> PoolView:
    """The same pool at another member of the site; now and then of another make, and with the rest of a gang that runs at the first."""
    name = f"{first.member}-{number}"
    state = _state_at_random(draw, name, draw(st.integers(1, 2)), first.gpus_per_node)
    ours = [work for work in first.busy if work.placement is not None and work.gpus]
    spans = draw(st.booleans())
    if ours and spans:
        free, gang = list(state["free"]), ours[0]
        for index, shape in enumerate(free):
            if shape.gpus >= gang.gpus and shape.cpus_milli >= gang.cpus_milli:
                free[index] = Shape(
                    shape.gpus - gang.gpus, shape.cpus_milli - gang.cpus_milli, shape.memory_mib
                )
                part = msgspec.structs.replace(gang, leads=False)
                state |= {"free": tuple(free), "busy": (*state["busy"], part)}
                break
    other = draw(rarely(st.sampled_from([{"model": "B7"}, {"labels": {"rack": "2"}}]), {}))
    return msgspec.structs.replace(first, member=name, session=f"session-{name}", **state, **other)


def _state_at_random(draw: st.DrawFn, name: str, nodes: int, per_node: int) -> dict[str, Any]:
    """So many hosts, what runs on them, and whether they take work."""
    hosts = [[per_node, 8000, 8192] for _ in range(nodes)]
    works = []
    for work in range(draw(st.integers(0, 3))):
        host = hosts[draw(st.integers(0, nodes - 1))]
        gpus = draw(st.sampled_from(PARTS) if per_node == 1000 else st.integers(0, per_node))
        if host[0] < gpus or host[1] < 1000:
            continue
        host[0], host[1] = host[0] - gpus, host[1] - 1000
        works.append(_work_at_random(draw, f"{name}-{work}", gpus, shared=per_node == 1000))
    free, is_open = tuple(Shape(*host) for host in hosts), draw(rarely(st.just(False), True))
    return {"nodes": nodes, "free": free, "busy": tuple(works), "open": is_open}


def _work_at_random(draw: st.DrawFn, name: str, gpus: int, *, shared: bool = False) -> BusyView:
    ends_at = NOW + draw(st.sampled_from([-60.0, 600.0, HOUR, 6 * HOUR]))
    if draw(st.integers(0, 3)) == 0 and not shared:
        return BusyView(nodes=1, gpus=gpus, cpus_milli=1000, ends_at=ends_at)
    return busy(
        f"pl-{name}", f"busy-{name}", gpus=gpus, cpus_milli=1000, ends_at=ends_at, queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.sampled_from([0, 50])), started_at=NOW - draw(st.sampled_from([0.0, HOUR])), shared=shared,
        licenses=draw(rarely(st.just({"matlab": 1}), {})),
    )  # fmt: skip


@st.composite
def offers_at_random(draw: st.DrawFn, number: int) -> OfferView:
    """Something to rent, sold out or avoided now and then."""
    return an_offer(
        f"eu/offer-{number}",
        gpus=draw(st.sampled_from([1, 4, 8])),
        cpus_milli=8000,
        memory_mib=8192,
        model=draw(st.sampled_from(MODELS)),
        market=draw(st.sampled_from([Market.ON_DEMAND, Market.SPOT])),
        price_usd_h=draw(st.sampled_from([1.0, 8.0, 30.0])),
        delay_s=draw(st.sampled_from([60.0, 540.0])),
        minimum_billing_s=draw(st.sampled_from([60.0, HOUR])),
        slack_s=draw(st.sampled_from([0.0, 300.0])),
        available=draw(st.sampled_from([1, 2, 0])),
        avoid_until_at=draw(rarely(st.sampled_from([NOW - 1.0, NOW + 60.0]), None)),
    )


RULES: st.SearchStrategy[Rule] = st.one_of(
    st.builds(
        bursting, st.sampled_from(["burst", "burst-2"]), scope=SCOPES, pools=SELECTORS, window=WINDOWS,
        mode=st.sampled_from([BurstMode.ECONOMIC, BurstMode.ECONOMIC, *BurstMode, None]), for_waiting=st.booleans(),
        after_wait_s=st.sampled_from([None, 0.0, 900.0]), max_price_usd_h=st.sampled_from([None, 8.0]),
    ),
    st.builds(bursting),
    st.builds(Filter, st.just("deny"), st.just(Effect.DENY), scope=SCOPES, pools=SELECTORS, window=WINDOWS),
    st.builds(Filter, st.just("stays"), st.just(Effect.DENY), scope=SCOPES, pools=SELECTORS, data=DATA, beyond=st.booleans()),
    st.builds(bursting, st.just("leaves"), data=DATA),
    st.builds(CapRow, st.just("quota"), st.sampled_from([CapUnit.GPUS, CapUnit.JOBS]), st.sampled_from([0.0, 2.0, 5.0]), SCOPES, SELECTORS),
    st.builds(CapRow, st.just("matlab"), st.just(CapUnit.LICENSES), st.sampled_from([1.0, 3.0]), pools=SELECTORS, license=st.just("matlab")),
    st.builds(CapRow, st.just("rent"), st.sampled_from([CapUnit.USD_PER_H, CapUnit.INSTANCES]), st.sampled_from([1.0, 8.0]), SCOPES, SELECTORS),
    st.builds(CapRow, st.just("budget"), st.just(CapUnit.USD), st.sampled_from([5.0, 40.0]), SCOPES, SELECTORS, st.just(Period.DAY)),
    st.builds(
        GuaranteeRow, st.just("share"), st.sampled_from(QUEUES), st.integers(0, 6), model=st.sampled_from(["", "A100"]),
        borrowing_limit=st.sampled_from([None, None, 0, 3]),
    ),
    st.builds(PreemptRule, st.just("urgent"), SCOPES, SCOPES, minimum_run_s=st.sampled_from([0.0, 60.0]), minimum_priority_gap=st.sampled_from([1, 40])),
    st.builds(PriceTerm, st.just("price"), st.sampled_from(PriceKind), st.sampled_from([0.0, 0.1, 20.0]), SCOPES, SELECTORS, WINDOWS),
)  # fmt: skip


@st.composite
def worlds_at_random(draw: st.DrawFn, most_jobs: int = 6) -> Problem:
    """A whole small problem: up to so many jobs, pools at three places, two offers and five rules."""
    jobs = [draw(jobs_at_random(number)) for number in range(draw(st.integers(1, most_jobs)))]
    places = [draw(pools_at_random(number)) for number in range(draw(st.sampled_from([1, 2, 3, 0])))]
    pools = [pool for pools in places for pool in pools]
    offers = [draw(offers_at_random(number)) for number in range(draw(st.sampled_from([1, 2, 0])))]
    offers = draw(on_a_stock(offers))
    if any(job.shared for job in jobs):
        offers += [
            msgspec.structs.replace(view, offer=view.offer.as_shared())
            for view in offers
            if view.offer.gpus == 1
        ]
    permits = draw(st.sampled_from([(bursting(),), (bursting(for_waiting=True),), ()]))
    rules = [*permits, *draw(st.lists(RULES, max_size=4))]
    if any(job.inputs for job in jobs):
        rules += [*draw(st.lists(DATASETS, min_size=1, max_size=3)), draw(LINK_RULES)]
    spend = draw(st.sampled_from([(), (SpendView("budget", "day", 1.0, 3.0),)]))
    return a_world(jobs, pools, offers, rules, spend, burst_paused=draw(rarely(st.just(True), False)))

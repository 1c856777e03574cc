"""Each limit on starting a job, broken alone: the checker names the job and the promise, and nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Market, Shape
from federator.model.plans import Place, Plan, Severity
from federator.model.rules import CapRow, CapUnit, Effect, Filter, GuaranteeRow, PoolSelector, Scope, Window
from federator.model.snapshot import BusyView, JobView, PoolView, Problem
from federator.planning.checks import check, check_actions
from tests.support.findings import fatal_subjects
from tests.support.worlds import NOW, a_job, a_lease, a_plan, a_pool, a_world, bursting, busy, placed


def blamed(problem: Problem, plan: Plan) -> set[tuple[str, int]]:
    """Who is at fault, and for which promise."""
    return {(f.subject, f.promise) for f in check(problem, plan) if f.severity is Severity.FATAL}


def test_a_plan_that_keeps_every_limit_passes_without_a_word() -> None:
    job, pool = a_job(nodes=2, gpus=4), a_pool()
    assert check(a_world([job], [pool]), a_plan(placed(job, pool))) == ()


# -- Promise 2: never two at once --------------------------------------------------------------------------------------


def test_a_job_that_is_not_in_the_snapshot_is_not_started() -> None:
    job, pool = a_job(), a_pool()
    assert blamed(a_world([], [pool]), a_plan(placed(job, pool))) == {("job-a", 2)}


def test_a_job_that_changed_since_the_plan_is_not_started() -> None:
    job, pool = a_job(), a_pool()
    assert blamed(a_world([replace(job, revision=8)], [pool]), a_plan(placed(job, pool))) == {("job-a", 2)}


def test_two_actions_for_one_job_are_blamed_on_it() -> None:
    job, pool = a_job(), a_pool()
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool), placed(job, pool))) == {("job-a", 2)}


def test_a_job_with_a_placement_that_still_runs_is_not_started_again() -> None:
    job = a_job()
    pool = a_pool(free=(Shape(3, 64_000, 262_144), Shape(4, 64_000, 262_144)), busy=(busy("pl-1", "job-a"),))
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == {("job-a", 2)}


def test_a_job_in_its_backoff_is_not_started() -> None:
    job, pool = a_job(not_before_at=NOW + 1.0), a_pool()
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == {("job-a", 0)}


# -- Promise 3: gangs are whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [("home-1",), ("home-1",) * 3])
def test_a_gang_with_a_rank_too_few_or_too_many_is_found(members: tuple[str, ...]) -> None:
    job, pool = a_job(nodes=2), a_pool()
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool, members=members))) == {("job-a", 3)}


def test_a_gang_without_members_is_found() -> None:
    job, pool = a_job(nodes=2), a_pool()
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool, members=()))) == {("job-a", 3)}


def over(job: JobView, *pools: PoolView, **fields: Any) -> Place:
    """The action that puts one rank on each of these."""
    members, sessions = tuple(p.member for p in pools), tuple(p.session for p in pools)
    return placed(job, pools[0], members=members, sessions=sessions, **fields)


def test_a_gang_may_lie_over_members_of_one_site() -> None:
    job, pool, other = a_job(nodes=2), a_pool(), a_pool(member="home-2", session="another")
    assert blamed(a_world([job], [pool, other]), a_plan(over(job, pool, other))) == set()


@pytest.mark.parametrize(
    ("other", "promise"),
    [
        ({"site": "edge"}, 4),  # the plan names one site: there is no such member there
        ({"pool": "other"}, 4),
        ({"model": "H100"}, 3),
        ({"gpu_memory_mib": 40960}, 3),
        ({"gpus_per_node": 8}, 3),
        ({"cpus_milli_per_node": 32_000}, 3),
        ({"memory_mib_per_node": 1 << 20}, 3),
        ({"labels": {"rack": "2"}}, 3),
        ({"lends_to": ("research",)}, 3),
        ({"self_fencing": True}, 3),
        ({"price_usd_gpu_h": 0.5}, 3),
        ({"open": False}, 4),
        ({"free": ()}, 4),
    ],
)
def test_a_gang_over_members_that_are_not_one_place_is_found(other: dict[str, Any], promise: int) -> None:
    job, pool = a_job(nodes=2), a_pool()
    second = a_pool(**{"member": "home-2", **other})
    found = blamed(a_world([job], [pool, second]), a_plan(over(job, pool, second)))
    assert found == {("job-a", promise)}


def test_a_gang_over_two_leases_is_found() -> None:
    job, one, two = a_job(nodes=2), a_lease("lease-1"), a_lease("lease-2")
    world = a_world([job], [one, two], rules=[bursting(for_waiting=True)])
    assert ("job-a", 3) in blamed(world, a_plan(over(job, one, two)))


@pytest.mark.parametrize("sessions", [("session-home", "an earlier one"), ("session-home",), ()])
def test_each_rank_has_the_session_that_its_member_has(sessions: tuple[str, ...]) -> None:
    job, pool, other = a_job(nodes=2), a_pool(), a_pool(member="home-2", session="another")
    torn = placed(job, pool, members=("home-1", "home-2"), sessions=sessions)
    assert blamed(a_world([job], [pool, other]), a_plan(torn)) == {("job-a", 4)}


def test_room_is_each_members_own() -> None:
    """Eight GPUs are free at either member, four to a host: three ranks of four fit both, but not one of them."""
    job, pool, other = a_job(nodes=3, gpus=4), a_pool(), a_pool(member="home-2")
    world = a_world([job], [pool, other])
    assert blamed(world, a_plan(over(job, pool, pool, other))) == set()
    assert blamed(world, a_plan(over(job, pool, pool, pool))) == {("job-a", 4)}


def test_a_gang_that_is_refused_at_its_second_member_leaves_nothing_taken_at_the_first() -> None:
    gang, single, pool = a_job("gang", nodes=2, gpus=4), a_job("single", gpus=4), a_pool(nodes=1)
    other = a_pool(member="home-2", nodes=1, free=())
    plan = a_plan(over(gang, pool, other), placed(single, pool))
    assert blamed(a_world([gang, single], [pool, other]), plan) == {("gang", 4)}


def test_a_running_gang_counts_once_as_a_job_and_with_all_its_gpus() -> None:
    parts = [busy("pl-1", "running", gpus=2, nodes=2), busy("pl-1", "running", gpus=2, leads=False)]
    pools = [a_pool(member=f"home-{n}", busy=(part,)) for n, part in enumerate(parts)]
    job = a_job(gpus=1, queue="batch")
    for unit, limit, expected in (
        (CapUnit.JOBS, 2, set()),
        (CapUnit.JOBS, 1, {("job-a", 5)}),
        (CapUnit.GPUS, 7, set()),
        (CapUnit.GPUS, 6, {("job-a", 5)}),
    ):
        world = a_world([job], pools, rules=[CapRow("cap", unit, limit, Scope(queues=("batch",)))])
        assert blamed(world, a_plan(placed(job, pools[0]))) == expected


# -- Promise 4: capacity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"pool": "other"}, {"site": "elsewhere"}, {"members": ("home-9",)}])
def test_a_pool_that_does_not_exist_is_found(wrong: dict[str, Any]) -> None:
    job, pool = a_job(), a_pool()
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool, **wrong))) == {("job-a", 4)}


@pytest.mark.parametrize(
    "now",
    [
        {"open": False, "closed_because": "draining"},
        {"session": "a later one"},
        {"ready_at": NOW + 60.0},
        {"free": ()},
        {"free": (Shape(1, 64_000, 262_144, 4),)},  # four GPUs in all, but never two on one host
        {"free": (Shape(4, 1999, 262_144, 1),)},
        {"free": (Shape(4, 64_000, 2047, 1),)},
    ],
)
def test_a_pool_that_cannot_take_the_job_now_is_found(now: dict[str, Any]) -> None:
    job, pool = a_job(gpus=2, cpus_milli=2000, memory_mib=2048), a_pool()
    assert blamed(a_world([job], [a_pool(**now)]), a_plan(placed(job, pool))) == {("job-a", 4)}


def test_the_job_that_asks_for_more_than_is_left_is_blamed_and_no_other() -> None:
    pool = a_pool(nodes=1)
    jobs = [a_job(f"job-{name}", gpus=count) for name, count in (("a", 3), ("b", 2), ("c", 1))]
    plan = a_plan(*(placed(job, pool) for job in jobs))
    assert blamed(a_world(jobs, [pool]), plan) == {("job-b", 4)}


def test_what_is_left_after_dropping_the_blamed_actions_is_valid_as_it_stands() -> None:
    pool = a_pool(nodes=1)
    jobs = [a_job(f"job-{number}", gpus=1 + number % 3) for number in range(6)]
    plan = a_plan(*(placed(job, pool) for job in jobs))
    world = a_world(jobs, [pool])
    dropped = fatal_subjects(check(world, plan))
    assert dropped
    rest = replace(plan, actions=tuple(action for action in plan.actions if action.job not in dropped))
    assert rest.actions
    assert check_actions(world, rest) == ()


def test_a_fault_found_before_packing_leaves_the_hosts_to_later_actions() -> None:
    pool = a_pool(nodes=1)
    first, second = a_job("job-a", gpus=4), a_job("job-b", gpus=4)
    plan = a_plan(placed(first, pool, revision=1), placed(second, pool))
    assert blamed(a_world([first, second], [pool]), plan) == {("job-a", 2)}


# -- Permission --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wants",
    [
        {"models": ("H100",)},
        {"gpu_memory_mib": 90_000},
        {"kinds": ("edge",)},
        {"sites": ("elsewhere",)},
        {"not_sites": ("home",)},
        {"site_labels": {"region": "us"}},
    ],
)
def test_a_place_that_the_job_does_not_want_is_found(wants: dict[str, Any]) -> None:
    job, pool = a_job(**wants), a_pool(labels={"region": "eu"})
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == {("job-a", 0)}


def test_a_place_that_the_job_wants_in_every_way_passes() -> None:
    wants: dict[str, Any] = {
        "models": ("H100", "A100"),
        "gpu_memory_mib": 81920,
        "kinds": ("onprem",),
        "sites": ("home",),
    }
    job, pool = (
        a_job(**wants, site_labels={"region": "eu"}, not_sites=("x",)),
        a_pool(labels={"region": "eu"}),
    )
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == set()


def test_a_site_lends_to_a_queue_and_those_below_it_only() -> None:
    job = a_job(queue="research/vision")
    for lends_to, expected in (
        ("research", set()),
        ("research/vis", {("job-a", 0)}),
        ("team:vision", {("job-a", 0)}),
    ):
        pool = a_pool(lends_to=(lends_to,))
        assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == expected


def test_a_site_without_isolation_takes_only_the_work_of_those_whom_it_trusts() -> None:
    job = a_job(queue="research/vision", owner="ada", team="vision")
    for trusts, taken in (
        (None, True),
        (("*",), True),
        (("owner:ada",), True),
        (("queue:research",), True),
        (("research",), True),
        (("team:vision",), True),
        ((), False),
        (("owner:ad", "owner:adam", "owner:vision", "queue:research/vis", "queue:vision"), False),
        (("team:vis", "team:visions", "team:ada", "team:", "vision"), False),
    ):
        pool = a_pool(trusts=trusts)
        found = blamed(a_world([job], [pool]), a_plan(placed(job, pool)))
        assert found == (set() if taken else {("job-a", 0)}), trusts


def test_work_that_is_to_stop_when_cut_off_starts_only_where_that_is_enforced() -> None:
    job = a_job(needs_fencing=True)
    for enforced, expected in ((True, set()), (False, {("job-a", 0)})):
        pool = a_pool(self_fencing=enforced)
        assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == expected


@pytest.mark.parametrize(
    ("rule", "denied"),
    [
        (Filter("p", Effect.DENY), True),
        (Filter("p", Effect.DENY, scope=Scope(queues=("research",))), True),
        (Filter("p", Effect.DENY, scope=Scope(queues=("batch",))), False),
        (Filter("p", Effect.DENY, scope=Scope(owners=("ada",), labels={"team": "x"})), False),
        (Filter("p", Effect.DENY, pools=PoolSelector(regions=("eu",))), True),
        (Filter("p", Effect.DENY, pools=PoolSelector(markets=(Market.SPOT,))), False),
        (Filter("p", Effect.DENY, window=Window(days=(1,), from_minute=1333, to_minute=1334)), True),
        (Filter("p", Effect.DENY, window=Window(days=(1,), from_minute=1334, to_minute=1335)), False),
        (Filter("p", Effect.DENY, window=Window(days=(0, 2))), False),
        (Filter("p", Effect.DENY, window=Window(days=(1,), from_minute=1200, to_minute=60)), True),
        (Filter("p", Effect.DENY, window=Window(days=(0,), from_minute=1439, to_minute=1335)), True),
        (Filter("p", Effect.DENY, window=Window(days=(0,), from_minute=1439, to_minute=1333)), False),
        (Filter("p", Effect.DENY, window=Window(days=(1,), from_minute=1439, to_minute=1335)), False),
        (Filter("p", Effect.DENY, window=Window(days=(0,), from_minute=1200, to_minute=60)), False),
    ],
)
def test_a_denial_holds_for_its_scope_its_pools_and_its_hours(rule: Filter, denied: bool) -> None:
    job, pool = a_job(), a_pool()
    assert blamed(a_world([job], [pool], rules=[rule]), a_plan(placed(job, pool))) == (
        {("job-a", 0)} if denied else set()
    )


def test_a_lease_is_closed_to_jobs_that_no_policy_lets_burst() -> None:
    job, pool = a_job(), a_lease()
    plan = a_plan(placed(job, pool))
    assert blamed(a_world([job], [pool]), plan) == {("job-a", 0)}
    assert blamed(a_world([job], [pool], rules=[bursting(scope=Scope(queues=("batch",)))]), plan) == {
        ("job-a", 0)
    }
    assert blamed(a_world([job], [pool], rules=[bursting()]), plan) == set()


def test_a_lease_stays_open_to_the_job_it_was_rented_for() -> None:
    job, pool = a_job(), a_lease(rented_for="job-a")
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == set()


def test_spot_policy_chooses_between_the_rented_markets() -> None:
    for policy, market, expected in (
        ("spot", Market.ON_DEMAND, {("job-a", 0)}),
        ("on-demand", Market.SPOT, {("job-a", 0)}),
        ("spot", Market.SPOT, set()),
        ("auto", Market.SPOT, set()),
    ):
        job, pool = a_job(spot_policy=policy), a_lease(market=market)
        assert blamed(a_world([job], [pool], rules=[bursting()]), a_plan(placed(job, pool))) == expected


# -- Promise 5: quotas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "limit"), [(CapUnit.GPUS, 6), (CapUnit.JOBS, 2)])
def test_a_cap_counts_what_runs_and_earlier_actions_of_the_queue_and_those_below(
    unit: CapUnit, limit: int
) -> None:
    cap = CapRow("quota", unit, limit, scope=Scope(queues=("research",)))
    runs = busy("pl-0", "job-0", gpus=2, queue="research")
    pool = a_pool(free=(Shape(2, 64_000, 262_144), Shape(4, 64_000, 262_144)), busy=(runs,))
    jobs = [a_job("job-a", gpus=4), a_job("job-b", queue="research/nlp"), a_job("job-c", queue="batch")]
    plan = a_plan(*(placed(job, pool) for job in jobs))
    assert blamed(a_world(jobs, [pool], rules=[cap]), plan) == {("job-b", 5)}
    assert blamed(a_world(jobs, [pool], rules=[replace(cap, limit=limit + 1)]), plan) == set()


def test_a_cap_does_not_count_the_sites_own_work() -> None:
    cap, job = CapRow("quota", CapUnit.JOBS, 1), a_job()
    pool = a_pool(busy=(BusyView(nodes=1, gpus=1, ends_at=NOW + 60.0),))
    assert blamed(a_world([job], [pool], rules=[cap]), a_plan(placed(job, pool))) == set()


def test_a_cap_counts_only_the_pools_it_selects() -> None:
    cap = CapRow("quota", CapUnit.GPUS, 1, pools=PoolSelector(sites=("home",)))
    home, away = a_pool(), a_pool("away")
    jobs = [a_job("job-a"), a_job("job-b"), a_job("job-c")]
    plan = a_plan(placed(jobs[0], home), placed(jobs[1], away), placed(jobs[2], home))
    assert blamed(a_world(jobs, [home, away], rules=[cap]), plan) == {("job-c", 5)}


def test_what_runs_counts_only_for_caps_that_are_about_it_and_its_pool() -> None:
    home, away = a_pool(), a_pool("away", busy=(busy("pl-0", "job-0"),))
    job = a_job()
    here = PoolSelector(sites=("home",))
    for cap in (
        CapRow("quota", CapUnit.JOBS, 1, pools=here),
        CapRow("quota", CapUnit.JOBS, 1, Scope(queues=("research",))),
    ):
        assert blamed(a_world([job], [home, away], rules=[cap]), a_plan(placed(job, home))) == set()


def test_what_is_due_by_now_stops_nothing() -> None:
    job, pool = a_job(not_before_at=NOW), a_pool(ready_at=NOW)
    assert blamed(a_world([job], [pool]), a_plan(placed(job, pool))) == set()


def test_a_queue_over_its_cap_may_still_start_work_that_adds_nothing_to_it() -> None:
    cap = CapRow("quota", CapUnit.GPUS, 0)
    job = a_job(gpus=0)
    pool = a_pool(busy=(busy("pl-0", "job-0"),))
    assert blamed(a_world([job], [pool], rules=[cap]), a_plan(placed(job, pool))) == set()


def test_borrowing_ends_at_its_limit() -> None:
    row = GuaranteeRow("share", "research", gpus=1, borrowing_limit=2)
    pool = a_pool()
    jobs = [
        a_job("job-a", gpus=2),
        a_job("job-b", gpus=1),
        a_job("job-c", gpus=1),
        a_job("job-d", queue="batch"),
    ]
    plan = a_plan(*(placed(job, pool) for job in jobs))
    assert blamed(a_world(jobs, [pool], rules=[row]), plan) == {("job-c", 5)}


# -- Promise 6 on leases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"market": Market.OWNED}, {"lease": None}, {"lease": "lease-2"}])
def test_the_use_of_a_lease_is_booked_to_that_lease(wrong: dict[str, Any]) -> None:
    job, pool = a_job(), a_lease()
    assert blamed(a_world([job], [pool], rules=[bursting()]), a_plan(placed(job, pool, **wrong))) == {
        ("job-a", 6)
    }


def test_a_job_that_nothing_would_end_does_not_use_a_lease() -> None:
    job, pool = a_job(max_duration_s=None), a_lease()
    assert blamed(a_world([job], [pool], rules=[bursting()]), a_plan(placed(job, pool))) == {("job-a", 6)}


def test_what_a_job_may_have_to_pay_of_a_lease_stays_within_its_own_cap() -> None:
    """Alone there it pays for all of the machine: its limit of two hours, its grace, and the lease's tail, half an hour together."""
    pool = a_lease(tail_s=1200.0)  # 10 USD an hour
    for cap_usd, spent_usd, expected in (
        (25.0, 0.0, set()),
        (25.0, 0.1, {("job-a", 6)}),
        (24.9, 0.0, {("job-a", 6)}),
    ):
        job = a_job(max_cost_usd=cap_usd, spent_usd=spent_usd, grace_s=600.0)
        assert blamed(a_world([job], [pool], rules=[bursting()]), a_plan(placed(job, pool))) == expected


def test_more_work_on_a_lease_adds_the_rent_beyond_what_is_committed() -> None:
    cap = CapRow("burst", CapUnit.USD, 5.0)
    job = a_job()  # ends in two hours at the latest; the host costs 10 USD an hour
    for paid_h, expected in ((2.0, set()), (1.5, set()), (1.4, {("job-a", 6)})):
        pool = a_lease(paid_until_at=NOW + paid_h * 3600.0)
        assert blamed(a_world([job], [pool], rules=[bursting(), cap]), a_plan(placed(job, pool))) == expected

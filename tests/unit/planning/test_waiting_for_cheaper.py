"""A job whose patience allows it does not start where it fits if waiting for another owned place costs less, all told; it says which, and until when."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.changes import AskFor, Remedy, WaitUntil
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.plans import Place, Plan
from federator.model.rules import BurstMode
from federator.model.snapshot import JobView, Problem
from federator.planning.checks import check
from federator.planning.explanations.changes import apply
from federator.planning.explanations.explain import explain_waiting
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.objective import Evaluator
from federator.planning.wording.told import told_waiting
from federator.planning.world.problem import World
from tests.support import worlds
from tests.support.plain_price import score_plainly
from tests.support.worlds import HOUR, NOW, a_lease, a_pool, a_world, bursting, busy

SOON = {"ends_at": NOW + 600.0, "gpus": 4, "cpus_milli": 64_000, "memory_mib": 262_144}


a_job = partial(worlds.a_job, patience_s=12 * HOUR)


def two_places(*jobs: JobView, dear: float = 5.0) -> Problem:
    """One host at home, taken for ten more minutes, for a dollar per GPU-hour; two hosts that are free and cost more."""
    home = a_pool("home", nodes=1, free=(), busy=(busy("place-1", "job-old", **SOON),), price_usd_gpu_h=1.0)
    return a_world(jobs, [home, a_pool("away", nodes=2, price_usd_gpu_h=dear)])


def starts(plan: Plan) -> list[str]:
    return [action.job for action in plan.actions]


def test_it_waits_for_the_cheaper_place_and_says_so() -> None:
    world = two_places(a_job(gpus=4))
    plan = plan_greedily(world)
    assert starts(plan) == []
    (waiting,) = plan.waiting
    assert (waiting.kind, waiting.expected_start_at) == ("later", NOW + 600.0)
    assert "home" in told_waiting(waiting, NOW).because
    assert check(world, plan) == ()


@pytest.mark.parametrize(("patience_s", "goes"), [(0.0, ["job-a"]), (599.0, ["job-a"]), (600.0, [])])
def test_whom_nobody_allows_to_wait_starts_on_what_is_free(patience_s: float, goes: list[str]) -> None:
    world = two_places()
    jobs = (a_job(gpus=4, patience_s=patience_s, submitted_at=NOW),)
    asked = replace(world, snapshot=replace(world.snapshot, jobs=jobs))
    assert starts(plan_greedily(asked)) == goes


def test_a_little_is_not_worth_waiting_for() -> None:
    assert starts(plan_greedily(two_places(a_job(gpus=4), dear=1.02))) == ["job-a"]


def test_whom_waiting_costs_more_starts_at_once() -> None:
    assert starts(plan_greedily(two_places(a_job(gpus=4, interactive=True, priority=250)))) == ["job-a"]


def test_as_many_wait_as_the_place_can_serve_in_time() -> None:
    tasks = [a_job(f"job-{n}", gpus=4, deadline_at=NOW + 2.5 * HOUR, value_usd=500.0) for n in range(4)]
    assert len(starts(plan_greedily(two_places(*tasks)))) == 2, "home has time for two of them"


def test_what_starts_of_a_long_line_does_not_depend_on_how_long_it_is() -> None:
    tasks = [a_job(f"job-{n:03}", gpus=4) for n in range(200)]
    few, some, all_of_them = (starts(plan_greedily(two_places(*tasks[:count]))) for count in (10, 40, 200))
    assert few == []
    assert some == all_of_them == ["job-000", "job-001"], "nothing idles beside a long line"


def test_work_of_others_takes_what_a_job_declines() -> None:
    local = a_job("job-b", gpus=4, sites=("away",))
    assert starts(plan_greedily(two_places(a_job(gpus=4), local))) == ["job-b"]


@pytest.mark.parametrize("waited_s", [0.0, 11 * HOUR, 12 * HOUR - 599.0, 240 * HOUR])
def test_it_waits_until_its_patience_ends_and_no_longer(waited_s: float) -> None:
    world = two_places(a_job(gpus=4, submitted_at=NOW - waited_s))
    assert starts(plan_greedily(world)) == ([] if waited_s + 600.0 <= 12 * HOUR else ["job-a"])


@pytest.mark.parametrize(("others_run_s", "goes"), [(5 * HOUR, []), (10 * HOUR, ["job-c"])])
def test_the_line_for_the_place_counts_towards_its_patience(others_run_s: float, goes: list[str]) -> None:
    """Home is free in ten minutes, but two hours have passed, and others are to run there first."""
    first = a_job("job-b", gpus=4, run_s=others_run_s, submitted_at=NOW - 3 * HOUR)
    second = a_job("job-c", gpus=4, submitted_at=NOW - 2 * HOUR)
    assert starts(plan_greedily(two_places(first, second))) == goes


@pytest.mark.parametrize(("waited_s", "go"), [(600.0, 0), (2 * HOUR, 1)])
def test_so_do_those_that_are_alike(waited_s: float, go: int) -> None:
    tasks = [a_job(f"job-{n}", gpus=4, run_s=5 * HOUR, submitted_at=NOW - waited_s) for n in range(3)]
    assert len(starts(plan_greedily(two_places(*tasks)))) == go


def test_the_first_that_was_submitted_counts_for_all_that_are_alike() -> None:
    """A plan's order may have one that came later before one that has waited for half a day."""
    world = two_places(a_job("job-b", gpus=4), a_job("job-c", gpus=4, submitted_at=NOW - 12 * HOUR))
    evaluator = Evaluator(World(world)).in_order({"job-b": 0, "job-c": 1})
    for scored in (evaluator.score({}), score_plainly(evaluator, {})):
        assert scored.starts.keys() == {"job-b", "job-c"}


def test_a_rented_machine_that_is_free_too_lets_nobody_wait_beside_owned_gpus_for_longer() -> None:
    """The machine is paid for and the best there is, but home is better still, and the dear host idles."""
    world = two_places(a_job(gpus=4, submitted_at=NOW - 13 * HOUR))
    home, away = world.snapshot.pools
    lease, always = a_lease(price_usd_gpu_h=2.0), bursting(mode=BurstMode.ALWAYS)
    assert starts(plan_greedily(a_world([*world.snapshot.jobs], [home, away, lease], rules=[always]))) == [
        "job-a"
    ]
    without = a_world([*world.snapshot.jobs], [home, lease], rules=[always])
    (waiting,) = plan_greedily(without).waiting
    assert waiting.reason == "cheaper-elsewhere", "what is rented is paid for anyway"


def test_what_is_said_is_what_was_weighed() -> None:
    (waiting,) = plan_greedily(two_places(a_job(gpus=4))).waiting
    assert waiting.reserved is not None
    kept = waiting.reserved
    assert (kept.why, kept.place, kept.until_at) == ("cheaper", "home/home-1/gpu", NOW + 600.0)
    assert 15.0 < kept.saves_usd < 16.0, "16 by the price, less the wait"
    assert "by 22:23" in told_waiting(waiting, NOW).because
    assert f"{kept.saves_usd:.2f} USD less" in told_waiting(waiting, NOW).because


def test_a_stream_of_others_that_take_the_place_does_not_hold_it_for_ever() -> None:
    new = [a_job(f"new-{n}", gpus=4, priority=90, sites=("home",)) for n in range(3)]
    assert "job-a" in starts(plan_greedily(two_places(a_job(gpus=4, submitted_at=NOW - 12 * HOUR), *new)))


@pytest.mark.parametrize("late", [{"ends_at": NOW - 600.0}, {"overdue": True}])
def test_nobody_waits_for_the_end_of_work_that_is_overdue(late: dict[str, Any]) -> None:
    old = busy("place-1", "job-old", **{**SOON, "started_at": NOW - HOUR, **late})
    home = a_pool("home", nodes=1, free=(), busy=(old,), price_usd_gpu_h=1.0)
    away = a_pool("away", nodes=2, price_usd_gpu_h=5.0)
    assert starts(plan_greedily(a_world([a_job(gpus=4)], [home, away]))) == ["job-a"]


def test_an_end_that_is_sure_is_waited_for_beside_work_that_is_overdue() -> None:
    late = busy("place-1", "job-old", **{**SOON, "ends_at": NOW - 600.0})
    sure = busy("place-2", "job-new", **SOON)
    home = a_pool("home", nodes=2, free=(), busy=(late, sure), price_usd_gpu_h=1.0)
    plan = plan_greedily(a_world([a_job(gpus=4)], [home, a_pool("away", nodes=2, price_usd_gpu_h=5.0)]))
    (waiting,) = plan.waiting
    assert starts(plan) == []
    assert waiting.expected_start_at is not None
    assert NOW < waiting.expected_start_at <= NOW + 600.0
    assert waiting.reason == "cheaper-elsewhere"


def advice_to(world: Problem, job: str) -> Remedy:
    """What it is told first."""
    return explain_waiting(world, plan_greedily(world), job).remedies[0]


def test_who_waits_is_told_how_to_start_now() -> None:
    world = two_places(a_job(gpus=4))
    advice = advice_to(world, "job-a")
    assert advice.changes == (AskFor("job-a", "sites", ("away",)),)
    assert advice.text.startswith("placement.sites: [away]")
    assert starts(plan_greedily(apply(world, advice.changes))) == ["job-a"]


def test_of_one_site_the_model_says_where() -> None:
    old = busy("place-1", "job-old", **SOON)
    soon = a_pool("home", pool="slow", nodes=1, model="T4", free=(), busy=(old,), price_usd_gpu_h=1.0)
    world = a_world([a_job(gpus=4)], [soon, a_pool("home", nodes=2, price_usd_gpu_h=5.0)])
    advice = advice_to(world, "job-a")
    assert advice.changes == (AskFor("job-a", "models", ("A100",)),)
    assert starts(plan_greedily(apply(world, advice.changes))) == ["job-a"]


def test_where_nothing_tells_the_places_apart_it_is_told_how_long_it_waits() -> None:
    old = busy("place-1", "job-old", **SOON)
    soon = a_pool("home", pool="cheap", nodes=1, free=(), busy=(old,), price_usd_gpu_h=1.0)
    world = a_world([a_job(gpus=4)], [soon, a_pool("home", nodes=2, price_usd_gpu_h=5.0)])
    assert advice_to(world, "job-a").changes == (WaitUntil(NOW + 600.0),)


def test_who_was_overtaken_by_work_that_took_the_place_is_told_the_same() -> None:
    """In its turn it was free."""
    local = a_job("job-b", gpus=4, nodes=2, sites=("away",))
    world = two_places(a_job(gpus=4, priority=60), local)
    assert starts(plan_greedily(world)) == ["job-b"]
    advice = advice_to(world, "job-a")
    assert starts(plan_greedily(apply(world, advice.changes))) == ["job-a"]


def choosy(*forms: Form, **fields: Any) -> JobView:
    """A job of four GPUs that may run otherwise, too."""
    return a_job(gpus=4, cpus_milli=1000, memory_mib=1024, forms=forms, **fields)


def otherwise(gpus: int, throughput: float, **fields: Any) -> Form:
    """One of its other forms."""
    return Form(
        1, Resources(gpus=Accelerators(count=gpus), cpus_milli=1000, memory_mib=1024), throughput, **fields
    )


def test_a_job_of_several_forms_waits_for_a_cheaper_place_too() -> None:
    assert starts(plan_greedily(two_places(choosy(otherwise(2, 0.55))))) == []
    assert starts(plan_greedily(two_places(choosy(otherwise(2, 0.55)), dear=1.02))) == ["job-a"]


def test_it_does_not_wait_where_it_is_for_room_to_be_wide() -> None:
    """It starts as it can and is widened when there is room."""
    held = busy("place-1", "job-old", **(SOON | {"gpus": 3, "cpus_milli": 0, "memory_mib": 0}))
    pool = a_pool(nodes=1, free=(Shape(1, 64_000, 262_144),), busy=(held,), price_usd_gpu_h=5.0)
    (place,) = plan_greedily(a_world([choosy(otherwise(1, 0.3))], [pool])).actions
    assert isinstance(place, Place)
    assert place.form == 1


def test_who_has_a_list_in_order_waits_for_an_earlier_entry_and_never_for_a_later_one() -> None:
    home, away = two_places().snapshot.pools
    cheap = replace(home, model="H100")
    for first, waits in (("A100", False), ("H100", True)):
        # What is free, and dear, is of the other model than what is cheap, and free soon.
        second = "H100" if first == "A100" else "A100"
        later = Form(
            1,
            Resources(gpus=Accelerators(count=4, models=(second,)), cpus_milli=1000, memory_mib=1024),
            1.0,
            option=1,
        )
        for ordered in (True, False):
            job = choosy(later, models=(first,), ordered=ordered)
            plan = plan_greedily(a_world([job], [cheap, away]))
            assert (starts(plan) == []) is (waits or not ordered)

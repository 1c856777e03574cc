"""What a job is said to wait for beside free GPUs that it fits is looked up and reckoned again; what does not hold is remarked."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.plans import Plan, Reservation, ReservedFor, Severity, Waiting
from federator.model.rules import Effect, Filter, PoolSelector, PriceKind, PriceTerm
from federator.model.snapshot import JobView, Problem
from federator.planning.checks import check
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_plan,
    a_pool,
    a_world,
    an_offer,
    bursting,
    busy,
    placed,
)

CHEAP, DEAR, OFFER = "home/home-1/gpu", "away/away-1/gpu", "acme/eu/4xA100"
SOON = busy("place-1", "job-old", gpus=4, ends_at=NOW + 600.0)
CHEAPER = Reservation(why=ReservedFor.CHEAPER, place=CHEAP, until_at=NOW + 600.0, saves_usd=15.0)
IN_TIME = Reservation(why=ReservedFor.DEADLINE, place=CHEAP, until_at=NOW + 600.0)
RENTAL = Reservation(why=ReservedFor.RENTAL, place=OFFER, until_at=NOW + 600.0)
HELD = Reservation(why=ReservedFor.GANG, place=DEAR, until_at=NOW + 600.0, for_job="job-b")


def two_places(*jobs: JobView, rules: tuple[Any, ...] = (), model: str = "A100", **cheap: Any) -> Problem:
    """Jobs that may wait for half a day. One host that is taken for ten more minutes, for a dollar per GPU-hour; one that is free, for five; and an offer."""
    jobs = tuple(replace(job, patience_s=12 * HOUR) for job in jobs)
    home = a_pool("home", **({"nodes": 1, "free": (), "busy": (SOON,), "price_usd_gpu_h": 1.0} | cheap))
    away = a_pool("away", nodes=1, price_usd_gpu_h=5.0, model=model)
    return a_world(jobs, [home, away], [an_offer()], (bursting(), *rules))


def said(world: Problem, kept: Reservation | None, plan: Plan | None = None) -> str:
    """What the checker says of `job-a`, which waits so."""
    waits = Waiting(job="job-a", kind="later", because="it waits for home/gpu", reserved=kept)
    plan = plan or a_plan(waiting=[job.id for job in world.snapshot.jobs if job.id != "job-a"])
    findings = check(world, replace(plan, waiting=(*plan.waiting, waits)))
    assert all(finding.severity is Severity.REMARK and finding.promise == 13 for finding in findings)
    return next((finding.text for finding in findings if finding.subject == "job-a"), "")


def test_what_holds_is_not_remarked() -> None:
    assert said(two_places(a_job(gpus=4)), CHEAPER) == ""


def test_a_job_without_patience_waits_for_no_cheaper_place() -> None:
    world = two_places(a_job(gpus=4))
    (job,) = world.snapshot.jobs
    hasty = replace(world, snapshot=replace(world.snapshot, jobs=(replace(job, patience_s=0.0),)))
    assert "after its patience ends" in said(hasty, CHEAPER)


def test_words_alone_are_no_reservation() -> None:
    assert said(two_places(a_job(gpus=4)), None).startswith("waits, though away/away-1/gpu has free GPUs")


@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        ({"place": "nowhere/a/gpu"}, "which the problem does not have"),
        ({"place": DEAR}, "which is free for it"),
        ({"until_at": NOW - 60.0}, "until 60 s ago"),
        ({"until_at": NOW + 60.0}, "where too few GPUs are free by then"),
        ({"until_at": NOW + 12 * HOUR}, "600 s after its patience ends"),
        ({"saves_usd": 17.0}, "which can save at most 16"),
        ({"saves_usd": 0.0}, "to save 0.00 USD"),
        ({"place": OFFER}, "which is rented, because it is cheaper"),
        ({"why": ReservedFor.DEADLINE}, "and has none"),
        ({"why": ReservedFor.RENTAL, "place": OFFER}, "and has none"),
        ({"why": ReservedFor.GANG, "for_job": "job-z"}, "to job-z, which does not wait"),
    ],
)
def test_what_does_not_hold_is(kept: dict[str, Any], fault: str) -> None:
    assert fault in said(two_places(a_job(gpus=4)), replace(CHEAPER, **kept))


@pytest.mark.parametrize(
    "world",
    [
        two_places(a_job(gpus=4, not_sites=("home",))),
        two_places(a_job(gpus=4, models=("A100",)), model="A100", gpus_per_node=2),
        two_places(a_job(gpus=4), rules=(Filter("p", Effect.DENY, pools=PoolSelector(sites=("home",))),)),
    ],
)
def test_a_place_that_it_may_not_use_or_that_never_holds_it_is_not_waited_for(world: Problem) -> None:
    assert "which it may not use or which can never hold it" in said(world, CHEAPER)


def test_prices_of_policies_count_and_so_does_the_deadline() -> None:
    dearer = PriceTerm("p", PriceKind.POOL, 2.0, pools=PoolSelector(sites=("home",)))
    more = replace(CHEAPER, saves_usd=16.0)
    assert said(two_places(a_job(gpus=4)), more) == ""
    assert "which can save at most 8" in said(two_places(a_job(gpus=4), rules=(dearer,)), more)
    pressed = a_job(gpus=4, deadline_at=NOW + 2 * HOUR, value_usd=100.0)
    assert said(two_places(pressed), replace(CHEAPER, saves_usd=110.0)) == ""
    assert "which can save at most 116" in said(two_places(pressed), replace(CHEAPER, saves_usd=120.0))


def test_a_deadline_must_be_missed_here_and_met_there() -> None:
    slow = a_job(gpus=4, deadline_at=NOW + 1.5 * HOUR, speed={"H100": 0.5})
    assert said(two_places(slow, model="H100"), IN_TIME) == ""
    assert "which it meets at away/away-1/gpu" in said(two_places(slow), IN_TIME)
    late = replace(IN_TIME, until_at=NOW + HOUR)
    assert "which it does not meet there" in said(two_places(slow, model="H100"), late)


def test_so_must_it_with_what_is_to_be_rented() -> None:
    slow = a_job(gpus=4, deadline_at=NOW + 1.5 * HOUR, speed={"H100": 0.5})
    assert said(two_places(slow, model="H100"), RENTAL) == ""
    assert "cannot meet its deadline" in said(
        two_places(slow, model="H100"), replace(RENTAL, until_at=NOW + 2 * HOUR)
    )
    assert "cannot meet its deadline" in said(two_places(slow, model="H100"), replace(RENTAL, place=CHEAP))
    assert "which it may not use" in said(two_places(replace(slow, kinds=("onprem",)), model="H100"), RENTAL)


GANG = a_job("job-b", nodes=2, gpus=4)


def held(*jobs: JobView, **fields: Any) -> Problem:
    """Two hosts, of which one is free in ten minutes; a gang waits for both."""
    given = {"nodes": 2, "free": (Shape(4, 64_000, 262_144),), "busy": (SOON,)}
    return a_world([a_job(gpus=4), *jobs], [a_pool("away", **(given | fields))])


def test_what_is_held_for_a_gang_is_not_idle() -> None:
    assert said(held(GANG), HELD) == ""


def test_what_starts_there_now_ends_too_late() -> None:
    long = a_job("job-c", gpus=4, run_s=2 * HOUR)
    world = held(replace(GANG, nodes=3), long, nodes=3, free=(Shape(4, 64_000, 262_144, 2),))
    plan = a_plan(placed(long, world.snapshot.pools[0]), waiting=["job-b"])
    for until_at, too_few in ((NOW + 600.0, True), (NOW + 2 * HOUR, False)):
        assert ("too few" in said(world, replace(HELD, until_at=until_at), plan)) is too_few


@pytest.mark.parametrize(
    ("world", "kept", "fault"),
    [
        (held(GANG), replace(HELD, until_at=NOW + 60.0), "too few GPUs are free by then"),
        (held(GANG), replace(HELD, until_at=NOW + 2 * HOUR), "before whose start it would be done"),
        (held(GANG), replace(HELD, for_job="job-a"), "to job-a, which does not wait"),
        (held(replace(GANG, nodes=3)), HELD, "to job-b, which may not use it or never fits"),
        (held(replace(GANG, not_sites=("away",))), HELD, "to job-b, which may not use it or never fits"),
        (held(replace(GANG, nodes=1)), HELD, "to job-b, which fits there now"),
    ],
)
def test_a_hold_that_is_none_is_remarked(world: Problem, kept: Reservation, fault: str) -> None:
    assert fault in said(world, kept)


def test_a_hold_of_one_place_is_no_reason_to_leave_another_alone() -> None:
    world = held(GANG)
    other = replace(world.snapshot, pools=(*world.snapshot.pools, a_pool("home", nodes=1)))
    assert "but home/home-1/gpu has free GPUs too" in said(replace(world, snapshot=other), HELD)


def test_each_form_of_a_job_is_asked() -> None:
    """Narrower it could start where the whole does not fit."""
    half = Form(1, Resources(gpus=Accelerators(count=2), cpus_milli=1000, memory_mib=1024), 0.5)
    world = two_places(a_job(gpus=8, forms=(half,)))
    assert "waits, though away" in said(world, None)
    assert "which can save" not in said(world, replace(CHEAPER, saves_usd=500.0))

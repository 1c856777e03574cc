"""Jobs that may run in several forms: what a form is priced as, what plans say of it, and what the checker holds against them."""

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.plans import Place, Rent
from federator.model.rules import CapRow, CapUnit, PoolSelector, PriceKind, PriceTerm
from federator.model.snapshot import JobView
from federator.planning.checks import check
from federator.planning.explanations.explain import explain_waiting
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.objective import Evaluator
from federator.planning.wording.told import because_of
from federator.planning.world.prices import cost, longer_s
from federator.planning.world.problem import World
from federator.solving.decide import decide
from tests.support.findings import fatal_subjects
from tests.support.plain_price import score_plainly
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_lease,
    a_plan,
    a_pool,
    a_world,
    an_offer,
    bursting,
    busy,
    placed,
)


def on(nodes: int, gpus: int = 1, throughput: float = 1.0, option: int = 0, model: str = "") -> Form:
    models = (model,) if model else ()
    size = Resources(gpus=Accelerators(count=gpus, models=models), cpus_milli=1000, memory_mib=1024)
    return Form(nodes, size, throughput, option)


def elastic(**fields: object) -> JobView:
    return a_job("wide", forms=(on(2, throughput=1.9), on(4, throughput=3.5)), **fields)


def test_a_form_runs_quicker_and_is_worth_the_same() -> None:
    world = World(a_world([elastic(deadline_at=NOW + HOUR)], [a_pool(price_usd_gpu_h=1.0)]))
    whole = world.jobs[0]
    wide = world.as_form(whole, world.choices(whole, 0)[2])
    assert (wide.nodes, wide.run_s, wide.of) == (4, HOUR / 3.5, whole)
    assert world.as_form(wide, 0) is whole
    book, at = world.book, world.places[0]
    assert book.value_usd(wide) == book.value_usd(whole)
    assert book.wait_usd_h(wide) == book.wait_usd_h(whole)
    assert longer_s(wide, at) == 0.0
    assert longer_s(whole, at) == pytest.approx(HOUR - HOUR / 3.5)
    narrow_usd, wide_usd = cost(book, whole, at, NOW), cost(book, wide, at, NOW)
    assert wide_usd.run == narrow_usd.run
    assert wide_usd.wait < narrow_usd.wait


def test_a_choice_is_a_place_with_a_form() -> None:
    world = World(a_world([elastic()], [a_pool("home"), a_pool("edge")]))
    assert [world.places[choice].site for choice in world.choices(world.jobs[0], 1)] == ["home"] * 3
    assert [world.form_of(choice) for choice in world.choices(world.jobs[0], 1)] == [0, 1, 2]
    assert {world.place_of(choice) for choice in world.open_to(world.jobs[0])} == {0, 1}


@pytest.mark.parametrize(
    ("form", "ranks", "says"),
    [(3, 1, "form 3, the job has 3"), (-1, 1, "form -1"), (2, 1, "4 ranks"), (0, 4, "1 ranks")],
)
def test_the_checker_finds_a_form_that_is_not_the_jobs_or_has_other_ranks(
    form: int, ranks: int, says: str
) -> None:
    job, pool = elastic(), a_pool()
    action = placed(job, pool, form=form, members=(pool.member,) * ranks, sessions=(pool.session,) * ranks)
    findings = check(a_world([job], [pool]), a_plan(action))
    assert fatal_subjects(findings) == {"wide"}
    assert any(says in finding.text for finding in findings)


def test_the_checker_counts_what_the_form_takes() -> None:
    job, pool = elastic(), a_pool(nodes=1, gpus_per_node=4)
    other = a_job("other")
    wide = placed(job, pool, form=2, members=(pool.member,) * 4, sessions=(pool.session,) * 4)
    assert not fatal_subjects(check(a_world([job, other], [pool]), a_plan(wide, waiting=["other"])))
    assert fatal_subjects(check(a_world([job, other], [pool]), a_plan(wide, placed(other, pool)))) == {
        "other"
    }
    cap = CapRow("limit", CapUnit.GPUS, 3.0, pools=PoolSelector())
    assert fatal_subjects(check(a_world([job], [pool], rules=[cap]), a_plan(wide))) == {"wide"}


def test_a_job_that_waits_beside_room_for_its_narrowest_form_is_remarked_upon() -> None:
    job = a_job("wide", gpus=4, forms=(on(1),))
    pool = a_pool(nodes=1, gpus_per_node=4, free=())
    full = check(a_world([job], [pool]), a_plan(waiting=["wide"]))
    assert [finding.promise for finding in full] == []
    idle = check(a_world([job], [a_pool(nodes=1, gpus_per_node=2)]), a_plan(waiting=["wide"]))
    assert [finding.promise for finding in idle] == [13]


def test_the_reason_for_a_place_is_that_of_the_form_which_came_furthest() -> None:
    job = a_job("wide", gpus=16, models=("A100",), forms=(on(1, 1, option=1, model="H100"),))
    problem = a_world([job], [a_pool(), a_pool("edge", model="H100", free=())])
    explained = explain_waiting(problem, plan_greedily(problem), "wide")
    assert {site.site: site.filter for site in explained.sites}["edge"] == "busy"


def test_a_rental_is_made_for_the_form_that_meets_the_deadline_and_committed_for_it() -> None:
    job = a_job("wide", gpus=1, forms=(on(1, 4, throughput=3.5),), deadline_at=NOW + HOUR, value_usd=500.0)
    problem = a_world([job], [], [an_offer()], [bursting()])
    plan = decide(problem)
    (rent,) = plan.actions
    assert rent.form == 1
    assert "with 4 of 1..4 GPUs per node" in because_of(rent, NOW)
    assert not fatal_subjects(check(problem, plan))


def test_an_earlier_entry_is_taken_where_it_can_start_although_it_costs_more() -> None:
    forms = (on(1, 1, option=1, model="H100"),)
    pools = [a_pool(price_usd_gpu_h=5.0), a_pool("edge", model="H100")]
    for ordered, form in ((True, 0), (False, 1)):
        job = a_job("choosy", models=("A100",), forms=forms, ordered=ordered)
        for plan in (plan_greedily(a_world([job], pools)), decide(a_world([job], pools))):
            (place,) = plan.actions
            assert isinstance(place, Place)
            assert place.form == form


def test_of_a_list_in_order_a_later_entry_starts_where_no_earlier_one_could() -> None:
    job = a_job("choosy", models=("A100",), forms=(on(1, 1, option=1, model="H100"),), ordered=True)
    full = a_pool(free=(Shape(0, 0, 0, 2),), busy=(busy("pl-1", "job-1", gpus=4, nodes=2),))
    world = a_world([job], [full, a_pool("edge", model="H100", price_usd_gpu_h=5.0)])
    for plan in (plan_greedily(world), decide(world)):
        assert [(each.job, each.form) for each in plan.actions if isinstance(each, Place)] == [("choosy", 1)]


def test_what_is_rented_for_a_list_in_order_is_chosen_by_its_price() -> None:
    dear = an_offer("eu/dear")
    dear = replace(dear, offer=replace(dear.offer, model="H100", price_usd_h=30.0))
    job = a_job("choosy", models=("H100",), forms=(on(1, 1, option=1, model="A100"),), ordered=True)
    job = replace(job, deadline_at=NOW + HOUR + 1000.0, value_usd=500.0)
    world = a_world([job], offers=[an_offer(), dear], rules=[bursting()])
    for plan in (plan_greedily(world), decide(world)):
        assert [each.offer for each in plan.actions if isinstance(each, Rent)] == [an_offer().offer.name]


def test_nobody_is_wide_while_somebody_waits_who_fits_into_the_difference() -> None:
    others = [a_job(f"small-{number}") for number in range(3)]
    problem = a_world([elastic(submitted_at=NOW - HOUR), *others], [a_pool(nodes=1, gpus_per_node=4)])
    evaluator = Evaluator(World(problem))
    scored = evaluator.score({})
    assert set(scored.starts) == {"wide", "small-0", "small-1", "small-2"}
    assert evaluator.world.form_of(scored.starts["wide"]) == 0


@pytest.mark.parametrize(("value_usd", "form"), [(1.0, 0), (40.0, 1)])
def test_nobody_is_widened_onto_a_rented_machine_that_costs_more_than_the_deadline_is_worth(
    value_usd: float, form: int
) -> None:
    """Twenty minutes of it are 3.33 USD. Waiting is dear, but the policy rents for deadlines alone."""
    job = a_job("wide", forms=(on(4, 1, throughput=3.0),), deadline_at=NOW + HOUR / 2, value_usd=value_usd)
    rules = (bursting(), PriceTerm("dear", PriceKind.WAIT, 100.0))
    home = a_pool(nodes=1, gpus_per_node=1, free=(Shape(1, 64_000, 262_144),))
    evaluator = Evaluator(World(a_world([job], [home, a_lease()], rules=rules)))
    for scored in (evaluator.score({}), score_plainly(evaluator, {})):
        assert evaluator.world.form_of(scored.starts["wide"]) == form
        assert evaluator.world.places[scored.starts["wide"]].rented == bool(form)


def test_more_gpus_that_are_slower_are_no_wider() -> None:
    job = a_job("wide", gpus=8, cpus_milli=1000, memory_mib=1024, forms=(on(1, 2, throughput=1.5),))
    other = a_job("other", gpus=4, cpus_milli=1000, memory_mib=1024, submitted_at=NOW)
    world = a_world([job, other], [a_pool(nodes=1, gpus_per_node=8)])
    plan = plan_greedily(world)
    assert {(each.job, each.form) for each in plan.actions if isinstance(each, Place)} == {
        ("wide", 1),
        ("other", 0),
    }

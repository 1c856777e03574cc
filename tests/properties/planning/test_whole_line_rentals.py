"""What a plan of the whole line leads to: whatever it says, the decision is valid, repeats itself and takes no more than there is."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.capacity import Stock
from federator.model.plans import Rent, Severity
from federator.model.snapshot import JobView, Lead, Problem
from federator.planning.checks import check
from federator.planning.linear.whole_line_rentals import lead_starts
from federator.planning.places.candidates import machines
from federator.planning.plans.differences import completed
from federator.planning.rentals.candidate import BurstCandidate
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world import window
from federator.planning.world.buckets import hours_row
from federator.planning.world.outlook import OutlookArrays
from federator.planning.world.problem import World
from federator.solving.decide import decide
from federator.solving.outlook import look_ahead
from federator.wire.solver_files import from_problem, to_problem
from tests.properties.planning.test_outlook import POOLS, chosen, crowds
from tests.properties.planning.test_window import a_line, tight
from tests.support.examples import examples
from tests.support.worlds import (
    HOUR,
    NOW,
    a_job,
    a_pool,
    a_world,
    an_offer,
    bursting,
    changed,
    worlds_at_random,
)


@st.composite
def led_worlds(draw: st.DrawFn) -> Problem:
    """Any world, and any leads and prices: some of jobs and places that are not there, of forms that do not exist, of far too many."""
    problem = draw(worlds_at_random())
    jobs = [job.id for job in problem.snapshot.jobs] + ["gone"]
    places = [at.key for at in World(problem).places] + ["gone/away/x"]
    rows = [row for key in places for row in (f"available/{key}", f"spare/{key}", f"fit/{key}/1")]
    rows += [hours_row(key, bucket) for key in places for bucket in (0, 3)]
    prices = draw(st.dictionaries(st.sampled_from(rows), st.floats(-1e9, 1e9), max_size=8))
    leads = draw(
        st.lists(
            st.builds(
                Lead,
                job=st.sampled_from(jobs),
                place=st.sampled_from(places),
                jobs=st.floats(0.0, 5.0) | st.just(1e12),
                form=st.integers(0, 2),
            ),
            max_size=8,
        )
    )
    return replace(problem, leads=tuple(leads), warm_prices=prices)


@settings(max_examples=examples(25), deadline=None)
@given(problem=led_worlds())
def test_whatever_is_led_to_the_decision_is_valid_and_repeats_itself_from_its_record(
    problem: Problem,
) -> None:
    plan = decide(problem)
    assert not [each for each in check(problem, plan) if each.severity is Severity.FATAL]
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(problem), type=Problem)
    assert decide(again) == plan
    ended = completed(plan)
    assert decide(again, stages=tuple(each.stage for each in ended.stages)) == ended, "as it is replayed"
    assert to_problem(from_problem(problem)) == problem


@settings(max_examples=examples(25), deadline=None)
@given(problem=led_worlds())
def test_no_more_is_rented_than_there_is_and_only_for_a_case(problem: Problem) -> None:
    evaluator = Evaluator(World(problem))
    world = evaluator.world
    stocks = world.stocks.copy()
    for job, choice in lead_starts(evaluator).items():
        case = evaluator.bursting.case(world.by_id[job], choice)
        assert isinstance(case, BurstCandidate)
        assert case.is_now(world.now)
        view, place = world.as_form(world.by_id[job], choice), world.place_of(choice)
        assert world.places[place].offer is not None
        stocks.take(place, machines(view, world.places[place]))
    assert all(left >= 0 for left in stocks.left)


def late_work() -> Problem:
    """Two classes that home cannot serve in time."""
    pool = a_pool(nodes=1, free=())
    jobs = [
        a_job(
            f"{name}-{n}",
            run_s=run_s,
            gpus=4,
            deadline_at=NOW + run_s + 640.0,
            value_usd=100.0,
            max_duration_s=2 * HOUR,
        )
        for name, run_s in (("known", HOUR), ("new", 1.1 * HOUR))
        for n in range(2)
    ]
    return a_world(jobs, [pool], offers=[an_offer(available=3)], rules=(bursting(),))


def test_parts_of_jobs_are_whole_ones_the_largest_first() -> None:
    problem = late_work()
    offer = next(at.key for at in World(problem).places if at.offer is not None)
    leads = (Lead("known-0", offer, 1.1), Lead("new-0", offer, 1.3))
    assert rentals(replace(problem, leads=leads)) == {"known": 1, "new": 2}
    assert rentals(replace(problem, leads=leads[:1])) == {"known": 1}


def rentals(problem: Problem) -> Counter[str]:
    """By class."""
    starts = lead_starts(Evaluator(World(problem)))
    places = World(problem).places
    return Counter(job[:-2] for job, place in starts.items() if places[place].offer is not None)


def test_what_the_plan_rents_is_decided_and_what_it_does_not_know_waits_for_the_next_one() -> None:
    problem = late_work()
    offer = next(at.key for at in World(problem).places if at.offer is not None)
    leads = (Lead("known-0", offer, 2.0), Lead("new-0", offer, 1.0))
    assert rentals(replace(problem, leads=leads[:1])) == {"known": 2}
    led = replace(problem, leads=leads, warm_prices={f"available/{offer}": 1.0})
    assert rentals(led) == {"known": 2, "new": 1}
    plan = decide(led)
    assert [stage.stage for stage in plan.stages] == ["greedy", "lead"]
    assert decide(led, stages=("greedy", "lead")) == plan, "as it is replayed"
    assert [stage.stage for stage in decide(led, stages=("greedy", "lp")).stages] == ["greedy", "lp"]
    assert sum(isinstance(action, Rent) for action in plan.actions) == 3
    assert plan.prices == led.warm_prices


def test_no_more_of_a_stock_that_offers_share_is_taken_than_there_is() -> None:
    quota = Stock("quota", 12, each=4, unit="GPUs")
    offers = [
        an_offer(name, available=3, stock=quota, price_usd_h=usd) for name, usd in (("a", 10), ("b", 11))
    ]
    problem = changed(late_work(), offers=tuple(offers))
    leads = (Lead("known-0", "acme/a", 2.0), Lead("new-0", "acme/b", 2.0))
    assert rentals(replace(problem, leads=leads)) == {"known": 2, "new": 1}


def test_what_is_led_to_is_dropped_where_greedy_is_cheaper() -> None:
    """A machine for each of two, where both fit on one: the next stage is asked."""
    problem = late_work()
    jobs = tuple(replace(job, gpus=2, value_usd=9.0) for job in problem.snapshot.jobs[:2])
    problem = changed(problem, jobs=jobs)
    offer = next(at.key for at in World(problem).places if at.offer is not None)
    problem = replace(problem, leads=(Lead("known-0", offer, 2.0),))
    assert rentals(problem) == {"known": 2}
    plan = decide(problem)
    assert plan.winner != "lead"
    assert [stage.stage for stage in plan.stages][:3] == ["greedy", "lead", "lp"]
    assert sum(isinstance(action, Rent) for action in plan.actions) == 1


@settings(max_examples=examples(15), deadline=None)
@given(jobs=crowds())
def test_a_window_names_what_the_plan_does_now_by_the_first_of_each_class_in_it(jobs: list[JobView]) -> None:
    words = a_line(jobs).klass
    heads = [jobs[int(np.argmax(words == word))] for word in np.unique(words)]
    found = look_ahead(
        a_world(heads, POOLS, [an_offer(available=20)], (bursting(),)), np.bincount(words).tolist()
    )
    assert found is not None
    known = OutlookArrays(found, np.unique(words).tolist())
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, jobs=16, evaluations=100)
        patch.setattr(window, "is_small", lambda _line, _evaluations: False)
        inside = chosen(jobs, known)
    klass = a_line(jobs).klass
    assert inside.told.prices == found.prices
    order = [n for n in np.argsort(inside.ahead).tolist() if n in set(inside.chosen.tolist())]
    for entry, lead in inside.told.leads:
        assert entry == next(n for n in order if klass[n] == klass[entry])
        assert lead.jobs <= sum(klass == klass[entry]) + 1e-6
    planned = sum(jobs for jobs, place in zip(found.jobs, found.place, strict=True) if place >= 0)
    assert sum(lead.jobs for _, lead in inside.told.leads) <= planned + 1e-6

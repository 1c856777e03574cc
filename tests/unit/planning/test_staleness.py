"""Old telemetry: the longer a site has not been heard, the more a start there costs, and the reasons say so; what is fresh costs what it did."""

from federator.model.plans import Place
from federator.planning.explanations.explain import explain_waiting
from federator.planning.places.candidates import of_pool
from federator.planning.places.staleness import FRESH_S, refusal_share
from federator.planning.plans.greedy import plan_greedily
from federator.planning.rules.rulebook import RuleBook
from federator.planning.wording.told import because_of, told_site
from federator.planning.world.prices import cost
from tests.support.worlds import NOW, a_job, a_pool, a_world

BOOK = RuleBook((), NOW)


def test_what_is_fresh_is_not_doubted_and_silence_raises_doubt_to_certainty() -> None:
    assert refusal_share(FRESH_S) == 0.0
    shares = [refusal_share(age_s) for age_s in (16.0, 60.0, 240.0, 3600.0)]
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < 0.01
    assert 0.99 < shares[-1] < 1.0


def test_doubt_is_part_of_what_a_start_there_costs() -> None:
    usd = [cost(BOOK, a_job(), of_pool(a_pool(age_s=age_s)), NOW).total for age_s in (0.0, 15.0, 60.0, 600.0)]
    assert usd[0] == usd[1] < usd[2] < usd[3]


def test_of_two_equal_sites_the_one_that_was_heard_lately_is_chosen() -> None:
    for silent, heard in (("a", "b"), ("b", "a")):
        problem = a_world([a_job("one")], [a_pool(silent, age_s=240.0), a_pool(heard)])
        (action,) = plan_greedily(problem).actions
        assert isinstance(action, Place)
        assert action.site == heard
        (other,) = [
            s for s in explain_waiting(problem, plan_greedily(problem), "one").sites if s.site == silent
        ]
        assert told_site(other, NOW).text == "it fits there now; last heard 4m ago"
        assert other.extra_cost_usd == 0.0022


def test_a_doubted_site_is_used_where_there_is_no_other_and_says_why_it_may_refuse() -> None:
    (action,) = plan_greedily(a_world([a_job("one")], [a_pool(age_s=240.0)])).actions
    assert "last heard 4m ago" in because_of(action, NOW)

"""Advice about a place keeps its word: whoever does what it says finds the place open, whatever the world, without exception."""

import inspect
from collections import Counter
from typing import get_args

from hypothesis import HealthCheck, Phase, given, settings

from federator.model.rejections import Rejected
from federator.model.snapshot import JobView, Problem
from federator.planning.explanations import remedies
from federator.planning.explanations.changes import apply
from federator.planning.explanations.explain import explain_waiting
from federator.planning.plans.greedy import plan_greedily
from federator.planning.rules.feasibility import FILTERS
from federator.planning.world.problem import World
from tests.support.worlds import worlds_at_random

FILTER_NAMES = {test.name for test in FILTERS}
the_same_worlds = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)  # fmt: skip


def test_every_reason_of_a_filter_is_looked_at() -> None:
    """But one: whom a site trusts is its own decision."""
    known = inspect.getsource(remedies)
    assert [kind.__name__ for kind in get_args(Rejected) if f"why.{kind.__name__}()" not in known] == [
        "Untrusted"
    ]


def test_what_is_offered_for_a_place_applied_alone_opens_it() -> None:
    tried: Counter[str] = Counter()

    @the_same_worlds
    @given(worlds_at_random(most_jobs=4))
    def try_one(problem: Problem) -> None:
        plan = plan_greedily(problem)
        for job in problem.snapshot.jobs:
            for site in explain_waiting(problem, plan, job.id).sites:
                if site.filter in FILTER_NAMES and site.remedy:
                    assert site.change, site
                    tried[site.filter] += 1
                    assert _opens(apply(problem, site.remedy), job, site.site, site.pool), site

    try_one()
    assert sum(tried.values()) > 400
    assert len(tried) > 12, tried


def _opens(problem: Problem, job: JobView, site: str, pool: str) -> bool:
    world = World(problem)
    return any(
        (world.places[place].site, world.places[place].pool) == (site, pool)
        for place in world.open_to(world.by_id[job.id])
    )

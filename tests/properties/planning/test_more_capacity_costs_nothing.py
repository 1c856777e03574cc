"""One more host in an owned pool, and the solver's plan is no dearer, by the evaluator's reckoning.

No theorem, since stages are heuristics: asserted for 97 of 100 fixed worlds at random, which are others when this file changes. Who starts may change, too: somebody who
started may wait with the host, as a list starts another. `-rP` prints both.
That as many jobs of one GPU start as there are GPUs is held in `test_tiny_worlds`.
"""

from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.plans import Plan, Preempt
from federator.model.snapshot import Problem
from federator.solving.decide import decide
from tests.properties.planning.test_tiny_worlds import WORTH_USD
from tests.support.examples import examples
from tests.support.worlds import changed, worlds_at_random

the_same_worlds = settings(
    max_examples=examples(100), deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)  # fmt: skip


def _placed(plan: Plan) -> set[str]:
    return {action.job for action in plan.actions if not isinstance(action, Preempt)}


def test_a_host_more_makes_the_plan_no_dearer() -> None:
    tried: list[bool] = []
    unplaced: list[bool] = []

    @the_same_worlds
    @given(worlds_at_random())
    def add_a_host(problem: Problem) -> None:
        pools = problem.snapshot.pools
        pool = next((view for view in pools if view.lease is None and view.open), None)
        if pool is None:
            return
        host = Shape(pool.gpus_per_node, pool.cpus_milli_per_node, pool.memory_mib_per_node)
        larger = replace(pool, nodes=pool.nodes + 1, free=(*pool.free, host))
        more = changed(problem, pools=tuple(larger if view is pool else view for view in pools))
        before, after = decide(problem), decide(more)
        tried.append(after.objective_usd <= before.objective_usd + WORTH_USD)
        unplaced.append(bool(_placed(before) - _placed(after)))

    add_a_host()
    assert len(tried) > examples(100) / 2
    print(f"{len(tried)} worlds: dearer in {tried.count(False)}, un-placed in {sum(unplaced)}")  # noqa: T201 - the figures of the docs
    assert tried.count(True) >= 0.97 * len(tried)
    assert sum(unplaced) <= 0.03 * len(tried)

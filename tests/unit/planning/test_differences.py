"""Two plans compared: the same bytes, or which job, action, term and stage differ."""

from msgspec.structs import replace

from federator.model.plans import Place, Plan, StageReport
from federator.planning.plans.differences import MOST, differences
from federator.solving.decide import decide
from tests.support.worlds import a_job, a_pool, a_world

PROBLEM = a_world([a_job(f"job-{n}", gpus=4) for n in range(4)], [a_pool()])
PLAN = decide(PROBLEM, stages=("greedy",))


def _found(again: Plan, recorded: Plan = PLAN) -> list[str]:
    return differences(PROBLEM, recorded, again)


def test_the_same_plan_is_the_same_and_a_stage_that_was_given_up_is_no_difference() -> None:
    given_up = StageReport(stage="lp", completed=False, note="the limit on iterations was reached")
    assert _found(PLAN, replace(PLAN, stages=(*PLAN.stages, given_up))) == []
    assert _found(replace(PLAN, terms=dict(reversed(PLAN.terms.items())))) == []


def test_an_action_is_named_by_job_and_field() -> None:
    first = PLAN.actions[0]
    assert isinstance(first, Place)
    moved = replace(first, site="far")
    [line] = _found(replace(PLAN, actions=(moved, *PLAN.actions[1:])))
    assert line == f'{first.job} ({first.job}): starts at home/gpu: site: recorded "home", now "far"'


def test_an_action_that_is_not_taken_any_more_shows_the_job_waiting() -> None:
    first = PLAN.actions[0]
    waits = replace(PLAN.waiting[0], job=first.job, because="held back")
    found = _found(replace(PLAN, actions=PLAN.actions[1:], waiting=(*PLAN.waiting, waits)))
    assert f"{first.job} ({first.job}): recorded: starts at home/gpu; now: nothing" in found
    assert f"{first.job} ({first.job}): recorded: does not wait; now: waits: held back" in found


def test_terms_stages_and_prices_are_told_one_by_one() -> None:
    lp = StageReport(stage="lp", completed=True)
    found = _found(
        replace(PLAN, objective_usd=1e6, terms=PLAN.terms | {"rent": 7.5}, stages=(*PLAN.stages, lp), prices={"row": 2.0})
    )  # fmt: skip
    assert found == [
        f"objective_usd: recorded {PLAN.objective_usd!r}, now 1000000.0",
        "term rent: recorded 0.0, now 7.5",
        "stage lp: completed only now",
        "price of row: recorded nothing, now 2.0",
    ]


def test_order_counts_and_long_lists_are_cut() -> None:
    found = _found(replace(PLAN, actions=PLAN.actions[::-1]))
    assert found == ["actions: the same in another order"]
    found = _found(replace(PLAN, prices={f"row {n}": 1.0 for n in range(MOST + 5)}))
    assert found[-1] == "and 5 more"


def test_a_stage_of_an_older_version_is_named_as_such() -> None:
    old = StageReport(stage="cpsat", completed=True, objective_usd=1.0)
    [line] = _found(PLAN, replace(PLAN, stages=(*PLAN.stages, old)))
    assert line == "stage cpsat: this version has no such stage, so the decision may differ"

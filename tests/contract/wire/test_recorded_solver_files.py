"""Files of the solver's format 1, as the first version wrote them: every later one goes on reading them, and means the same by them."""

import json
from pathlib import Path

from federator.model.plans import Severity
from federator.solving.plan_check import judge
from federator.wire.solver_files import from_problem, read_plan, read_problem, write

HERE = Path(__file__).parent
PROBLEM = (HERE / "solver-problem-1.json").read_bytes()
PLAN = (HERE / "solver-plan-1.json").read_bytes()


def test_the_problem_reads_and_is_written_with_all_that_it_said() -> None:
    again = json.loads(write(from_problem(read_problem(PROBLEM))))
    assert _within(json.loads(PROBLEM), again)


def test_the_plan_reads_and_is_written_with_all_that_it_said() -> None:
    assert _within(json.loads(PLAN), json.loads(write(read_plan(PLAN))))


def test_the_plan_is_still_a_valid_one_for_the_problem() -> None:
    verdict = judge(read_problem(PROBLEM), read_plan(PLAN))
    assert not [finding for finding in verdict.findings if finding.severity is Severity.FATAL]


def _within(said: object, found: object) -> bool:
    """Whether all that was said is found; there may be more, since new fields have defaults."""
    if isinstance(said, dict) and isinstance(found, dict):
        return all(key in found and _within(value, found[key]) for key, value in said.items())
    if isinstance(said, list) and isinstance(found, list):
        return len(said) == len(found) and all(map(_within, said, found))
    return said == found

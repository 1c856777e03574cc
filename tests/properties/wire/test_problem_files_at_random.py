"""Whatever stands in a problem file, it is refused with its field, or decided: by a plan that is valid and costs what it says."""

import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from federator.kernel.errors import FederatorError
from federator.model.plans import Severity
from federator.model.snapshot import Problem
from federator.solving.offline import run
from federator.solving.plan_check import judge
from federator.wire.solver_files import from_problem, read_plan, read_problem, write
from tests.support.examples import examples
from tests.support.worlds import worlds_at_random

the_same_files = settings(
    max_examples=examples(100), deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)  # fmt: skip
NUMBERS = (0, -1, 1, 1e-9, 0.5, 1.5, 1e9, 1e12, 1e15, 1e18, 2**53, 2**63, 1e300, -1e300)
TEXTS = ("", "x", "home", "a/b/c", "\0", "é" * 300, "job-0")
Spot = tuple[Any, Any]
"""A list or mapping, and where in it."""


def test_a_problem_file_is_refused_with_its_field_or_decided() -> None:
    seen: Counter[str] = Counter()

    @the_same_files
    @given(worlds_at_random(), st.integers(0, 2**30))
    def holds(problem: Problem, seed: int) -> None:
        file = msgspec.json.decode(write(from_problem(problem)))
        _damage(file, Random(seed))
        try:
            read = read_problem(msgspec.json.encode(file))
        except FederatorError as error:
            seen["refused" if (error.field or "").startswith("$.") else f"without its field: {error}"] += 1
            return
        plan = read_plan(write(run(read, clock=time.perf_counter, proven=seed % 4 == 0)))
        verdict = judge(read, plan)
        assert not [found for found in verdict.findings if found.severity is Severity.FATAL]
        assert not verdict.differences
        seen["decided"] += 1

    holds()
    assert not [said for said in seen if said.startswith("without")], seen
    assert seen["refused"] > examples(100) / 4, seen
    assert seen["decided"] > examples(100) / 4, seen


def _damage(file: dict[str, Any], dice: Random) -> None:
    """One value or a few become others, each name of a field as likely as any other."""
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        spots: dict[str, list[Spot]] = {}
        for name, spot in _spots(file, "$"):
            spots.setdefault(name, []).append(spot)
        holder, key = dice.choice(spots[dice.choice(sorted(spots))])
        holder[key] = _other(holder[key], dice)


def _spots(value: Any, name: str) -> Iterator[tuple[str, Spot]]:
    """All values below this one: of a list's they have the name of the list."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, below in entries:
        called = key if isinstance(key, str) else name
        yield called, (value, key)
        yield from _spots(below, called)


def _other(value: Any, dice: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return dice.choice([*NUMBERS, -value, value * 10 ** dice.randint(1, 9), value + 1e9])
    if isinstance(value, str):
        return dice.choice([*TEXTS, value + "!"])
    if isinstance(value, list):
        return dice.choice([[], value * 2, value[:1] * 200, value[::-1]])
    if isinstance(value, dict):
        return dice.choice([{}, {**value, "no-such-field": 1}, dict(list(value.items())[:-1])])
    return dice.choice([*NUMBERS, "x", [], {}])

"""Promise 8: the same problem, seed and stages give the same plan, byte for byte, in this process and in any other."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from federator.model.snapshot import Problem
from federator.planning.plans.greedy import plan_greedily
from federator.solving.decide import decide
from tests.support.examples import examples
from tests.support.worlds import worlds_at_random

ANOTHER_PROCESS = """
import hashlib, sys, msgspec
from federator.model.snapshot import Problem
from federator.solving.decide import decide
problems = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Problem])
for problem in problems:
    print(hashlib.sha256(msgspec.json.encode(decide(problem, seed=3))).hexdigest())
"""


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds_at_random(most_jobs=10))
def test_again_and_after_a_trip_through_the_wire(problem: Problem) -> None:
    copy = msgspec.json.decode(msgspec.json.encode(problem), type=Problem)
    for first, second in (
        (plan_greedily(problem), plan_greedily(copy)),
        (decide(problem, seed=3), decide(copy, seed=3)),
    ):
        assert msgspec.json.encode(first) == msgspec.json.encode(second)


@settings(
    max_examples=2, deadline=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
)  # fmt: skip
@given(st.lists(worlds_at_random(most_jobs=10), min_size=12, max_size=12))
def test_the_order_of_sets_in_another_process_changes_nothing(problems: list[Problem]) -> None:
    encoded = msgspec.json.encode(problems)
    assert _digests(encoded, "1") == _digests(encoded, "2")


def _digests(problems: bytes, hash_seed: str) -> list[str]:
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS],
        input=problems,
        capture_output=True,
        check=True,
        timeout=50,
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    digests = done.stdout.decode().split()
    assert digests
    return digests

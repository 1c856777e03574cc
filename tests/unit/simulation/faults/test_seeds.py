"""Seeds of the fault simulation that must break nothing: those that once found something, and some that are drawn fresh and stay (`make sim` plays any number)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.faults.running import play
from tests.support.examples import examples

FRESH = range(9000, 9000 + examples(2))
KEPT = Path(__file__).with_name("seeds.txt")


def kept() -> list[int]:
    """One a line, with what it found behind it."""
    lines = [line.partition("#")[0].strip() for line in KEPT.read_text().splitlines()]
    return [int(line) for line in lines if line]


@pytest.mark.parametrize("seed", [*kept(), *FRESH])
def test_a_seed_breaks_no_promise(seed: int) -> None:
    outcome = play(seed)
    assert not outcome.findings, "\n".join([*(f.what for f in outcome.findings), *outcome.last])
    assert outcome.jobs > 0


def journal(seed: int, hash_seed: int) -> str:
    """All that happens in a seed, as a process of its own tells it."""
    program = f"from tests.lab.faults.running import play; play({seed}, print)"
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return finished.stdout


def test_the_same_seed_writes_the_same_bytes_in_any_process() -> None:
    first = journal(7, hash_seed=1)
    assert first.count("\n") > 200
    assert journal(7, hash_seed=2) == first
    assert journal(8, hash_seed=1) != first

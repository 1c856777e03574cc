"""A short storm of seeded kills over real processes; `make kills` runs the long one."""

from pathlib import Path

import pytest

from tests.kills.judge import Attempt, overlaps
from tests.kills.storm import KINDS, Storm

EACH = 1


@pytest.mark.system
@pytest.mark.timeout(1200)
async def test_a_short_storm_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    verdict = await Storm(tmp_path / "world", seed=7).run(dict.fromkeys(KINDS, EACH))
    assert verdict.faults == []
    assert verdict.jobs > len(KINDS)
    assert sum(verdict.kills.values()) >= len(KINDS), "hardly anything was killed"
    assert verdict.attempts > verdict.jobs, "no kill cost an attempt: the storm was none"


def test_the_judge_sees_two_attempts_at_once() -> None:
    one = Attempt("job-1", "pl-1", 0, 10.0, 20.0, ended=True)
    later = Attempt("job-1", "pl-2", 0, 20.1, 30.0, ended=True)
    during = Attempt("job-1", "pl-2", 0, 19.0, 30.0, ended=True)
    gang = Attempt("job-1", "pl-1", 1, 11.0, 20.0, ended=True)
    assert overlaps([one, later, gang]) == []
    assert len(overlaps([one, during])) == 1

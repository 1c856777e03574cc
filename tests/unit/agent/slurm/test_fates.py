"""What became of a rank: Slurm's word on its job, and the code that its command has left or not."""

import pytest

from federator.model.placements import Cause
from federator_agent.slurm.fates import FORGOTTEN, fate
from federator_agent.slurm.folder import Exit


@pytest.mark.parametrize(
    ("state", "code", "killed", "expected"),
    [
        ("COMPLETED", 0, False, (0, None)),
        ("FAILED", 3, False, (3, None)),
        ("FAILED", None, False, (None, Cause.NODE_LOST)),
        ("FAILED", None, True, (137, None)),
        ("CANCELLED", 143, False, (None, Cause.EVICTED)),
        ("CANCELLED", 0, False, (None, Cause.EVICTED)),
        ("CANCELLED", 143, True, (143, None)),
        ("CANCELLED", None, True, (137, None)),
        ("PREEMPTED", 143, False, (None, Cause.EVICTED)),
        ("PREEMPTED", 0, True, (None, Cause.EVICTED)),
        ("REQUEUED", None, False, (None, Cause.EVICTED)),
        ("REQUEUED", 0, False, (None, Cause.EVICTED)),
        ("REQUEUED", 3, True, (None, Cause.EVICTED)),
        ("TIMEOUT", None, False, (143, Cause.MAX_DURATION)),
        ("TIMEOUT", 0, False, (143, Cause.MAX_DURATION)),
        ("DEADLINE", 5, False, (5, Cause.MAX_DURATION)),
        ("NODE_FAIL", 143, False, (None, Cause.NODE_LOST)),
        ("NODE_FAIL", None, False, (None, Cause.NODE_LOST)),
        ("NODE_FAIL", 0, False, (None, Cause.NODE_LOST)),
        ("BOOT_FAIL", None, False, (None, Cause.NODE_LOST)),
        ("OUT_OF_MEMORY", 137, False, (137, Cause.OUT_OF_MEMORY)),
        ("OUT_OF_MEMORY", None, False, (137, Cause.OUT_OF_MEMORY)),
        ("OUT_OF_MEMORY", 0, False, (0, None)),
        (FORGOTTEN, 6, False, (6, None)),
        (FORGOTTEN, None, True, (137, None)),
        (FORGOTTEN, None, False, (None, Cause.NODE_LOST)),
    ],
)
def test_fates(state: str, code: int | None, killed: bool, expected: tuple[int | None, Cause | None]) -> None:
    how = fate(None if code is None else Exit(code, 1.0), state, killed=killed)
    assert (how.code, how.cause) == expected
    assert bool(how.detail) == (how.cause is not None)


@pytest.mark.parametrize(
    ("state", "code", "killed", "expected"),
    [
        ("COMPLETED", 0, False, (None, Cause.EVICTED)),
        ("FAILED", 4, False, (None, Cause.EVICTED)),
        ("FAILED", 0, False, (None, Cause.EVICTED)),
        (FORGOTTEN, 0, False, (None, Cause.EVICTED)),
        ("TIMEOUT", 0, False, (143, Cause.MAX_DURATION)),
        ("NODE_FAIL", 0, False, (None, Cause.NODE_LOST)),
        ("CANCELLED", 0, True, (0, None)),
    ],
)
def test_what_others_told_to_end_has_not_succeeded(
    state: str, code: int, killed: bool, expected: tuple[int | None, Cause | None]
) -> None:
    how = fate(Exit(code, 1.0), state, killed=killed, told=True)
    assert (how.code, how.cause) == expected

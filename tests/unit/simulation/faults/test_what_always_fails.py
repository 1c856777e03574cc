"""An action that can never be written, planted into seeds in which everything else fails now and then: the rest of the line goes on."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.record import batches
from federator.control.record.records import Changes
from federator.control.turns.committer import Committer
from federator.kernel.errors import TooLarge
from tests.lab.faults.drawing import draw
from tests.lab.faults.running import Outcome, play_plan


def fail_one(patch: pytest.MonkeyPatch) -> set[str]:
    """The first job that is to start anywhere can never be written down as started; its id is told once there is one."""
    bad: set[str] = set()
    for name in ("place_job", "_rent"):
        write = getattr(Committer, name)

        def fails(self: Any, changes: Changes, plan: Any, action: Any, *rest: Any, write: Any = write) -> str:
            if not bad:
                bad.add(action.job)
            if action.job in bad:
                raise TooLarge("planted")
            found: str = write(self, changes, plan, action, *rest)
            return found

        patch.setattr(Committer, name, fails)
    return bad


def play(seed: int, patch: pytest.MonkeyPatch) -> tuple[Outcome, list[str]]:
    """The outcome, and what was broken of other jobs than the one at fault."""
    bad = fail_one(patch)
    outcome = play_plan(replace(draw(seed), solver=False))
    (name,) = bad
    about = (name, "in the end series")  # a series whose run never starts does not end
    return outcome, [f.what for f in outcome.findings if not any(each in f.what for each in about)]


@pytest.mark.parametrize("seed", [0, 3, 9001])
def test_the_rest_of_the_line_goes_on(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, broken = play(seed, monkeypatch)
    assert outcome.jobs > 1
    assert not broken


def test_the_seed_would_see_it_if_one_action_stopped_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one_for_all(records: Any, pieces: Any, write: Any, **options: Any) -> list[Any]:
        refused = await whole(records, pieces, write, **options)
        for each in refused:
            raise each.error
        return refused

    whole = batches.write_each
    monkeypatch.setattr("federator.control.turns.committer.write_each", one_for_all)
    _, broken = play(0, monkeypatch)
    assert broken

"""A place outside of the state directory is one agent's: another is refused before it has touched anything there."""

from pathlib import Path

import pytest

from federator.kernel.clock import SystemClock
from federator.kernel.errors import Invalid
from federator_agent import ownership
from federator_agent.home import place
from federator_agent.runtime import Surroundings, Tasks
from federator_agent.slurm.runtime import SlurmRuntime
from federator_agent.slurm.settings import SlurmSettings
from federator_agent.spool import Spool

FIELD = "$.slurm.shared_dir"


def _state(path: Path) -> Path:
    return Spool(path).directory


def test_the_first_keeps_it_through_all_its_lives(tmp_path: Path) -> None:
    state, shared = _state(tmp_path / "state"), tmp_path / "shared"
    shared.mkdir()
    assert not ownership.foreign(shared, state)
    for _ in range(2):
        ownership.claim(shared, state, "here", FIELD)
        assert not ownership.foreign(shared, state)
    assert [path.name for path in shared.iterdir()] == [ownership.FILE]


def test_another_is_refused_and_told_whose_it_is(tmp_path: Path) -> None:
    first, second = _state(tmp_path / "first"), _state(tmp_path / "second")
    ownership.claim(tmp_path, first, "here", FIELD)
    with pytest.raises(Invalid) as refused:
        ownership.claim(tmp_path, second, "here", FIELD)
    said = refused.value.describe()
    assert FIELD in said
    assert f"belongs to the agent of site here on {place(first)}" in said
    assert f"remove {tmp_path / ownership.FILE}" in said
    assert ownership.foreign(tmp_path, second)
    ownership.claim(tmp_path, first, "here", FIELD)


def test_a_state_directory_that_was_lost_does_not_own_what_it_did(tmp_path: Path) -> None:
    """What the old one knew of may still run there."""
    ownership.claim(tmp_path, _state(tmp_path / "state"), "here", FIELD)
    (tmp_path / "state" / ownership.FILE).unlink()
    with pytest.raises(Invalid):
        ownership.claim(tmp_path, _state(tmp_path / "state"), "here", FIELD)
    (tmp_path / ownership.FILE).unlink()
    ownership.claim(tmp_path, _state(tmp_path / "state"), "here", FIELD)


def test_a_mark_that_nobody_can_read_is_nobodys_leave(tmp_path: Path) -> None:
    (tmp_path / ownership.FILE).write_text("something else")
    with pytest.raises(Invalid):
        ownership.claim(tmp_path, _state(tmp_path / "state"), "here", FIELD)


def test_two_agents_with_one_shared_dir_do_not_remove_each_others_work(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    SlurmRuntime(SlurmSettings(shared_dir=shared), _around(tmp_path / "first"))
    setup, placement = shared / "setups" / "running", shared / "placements" / "p1"
    setup.mkdir()
    placement.mkdir()
    with pytest.raises(Invalid, match="belongs to the agent of site here"):
        SlurmRuntime(SlurmSettings(shared_dir=shared), _around(tmp_path / "second"))
    assert setup.is_dir()
    assert placement.is_dir()


def _around(state: Path) -> Surroundings:
    return Surroundings(
        site="here",
        environment={},
        clock=SystemClock(),
        spool=Spool(state),
        bulk=None,  # type: ignore[arg-type]
        carrier=None,  # type: ignore[arg-type]
        tasks=Tasks(),
        tell=lambda _: None,
    )

"""A state directory knows where it belongs."""

import shutil
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator_agent import home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "machine-id"
    file.write_text("aaaa\n")
    monkeypatch.setattr(home, "MACHINE_ID", file)
    return file


@pytest.fixture
def state(tmp_path: Path, machine: Path) -> Path:
    """One that has been used."""
    assert machine.exists()
    directory = tmp_path / "state"
    directory.mkdir()
    home.settle(directory)
    return directory


def test_it_is_at_home_where_it_was_first_used(state: Path) -> None:
    home.settle(state)


def test_a_copy_beside_it_is_refused_with_both_ways_out(state: Path) -> None:
    copy = Path(shutil.copytree(state, state.with_name("copy")))
    for _ in range(2):  # being refused does not make it at home
        with pytest.raises(Invalid, match=rf"copy is a copy of {state} on this machine") as refused:
            home.settle(copy)
        assert "join token" in refused.value.describe()
        assert "--moved" in refused.value.describe()
    home.settle(state)


def test_a_copy_on_another_machine_is_refused_at_the_same_path_too(state: Path, machine: Path) -> None:
    machine.write_text("bbbb\n")
    with pytest.raises(Invalid, match="on another machine"):
        home.settle(state)


def test_whoever_says_that_it_was_moved_makes_it_at_home_there(state: Path, machine: Path) -> None:
    machine.write_text("bbbb\n")
    home.settle(state, moved=True)
    home.settle(state)


def test_a_machine_without_an_id_proves_nothing(state: Path, machine: Path) -> None:
    machine.unlink()
    home.settle(state)
    machine.write_text("aaaa\n")
    home.settle(state)


def test_a_link_to_it_is_not_another_place(state: Path) -> None:
    link = state.with_name("link")
    link.symlink_to(state)
    home.settle(link)

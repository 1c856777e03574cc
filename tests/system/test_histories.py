"""Short histories of what clients are told while things fail; `make histories` plays the long run."""

from pathlib import Path

import pytest

from tests.histories.play import play

SEEDS = range(3, 5)
"""In these the leader changes."""


@pytest.mark.system
async def test_what_clients_are_told_while_things_fail_is_linearizable(tmp_path: Path) -> None:
    said: list[str] = []
    figures = await play(tmp_path / "world", SEEDS, said.append)
    assert figures.wrong == [], "\n".join(said)
    assert figures.histories == len(SEEDS)
    assert figures.faults.total() >= len(SEEDS), "hardly anything was broken"
    assert figures.jobs >= len(SEEDS), "hardly anything was asked for"
    assert figures.operations["read"] > 0

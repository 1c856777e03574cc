"""The disk: what a crash may do to it, and what must be read back."""

import os
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator_agent import spool as spool_module
from federator_agent.core.lent_capacity import Site
from federator_agent.core.state import (
    DesiredChange,
    FactsChange,
    Phase,
    PlacementRecord,
    RecordChange,
    RecordGone,
    State,
    restore,
    whole,
)
from federator_agent.spool import Spool
from tests.unit.agent.worlds import entry, spec

ENTRY = entry("p", spec())
CHANGES = (
    FactsChange("inc", ("old",), 3, 1000),
    DesiredChange(7, (ENTRY,), (), whole=True),
    RecordChange(PlacementRecord(entry=ENTRY)),
)


def opened(directory: Path) -> Spool:
    spool = Spool(directory)
    spool.load()
    return spool


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append(CHANGES[:2])
    spool.append(CHANGES[2:])
    assert tuple(Spool(tmp_path).read()) == CHANGES
    spool.close()


@pytest.mark.parametrize("torn", [1, 20, 100])
def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path, torn: int) -> None:
    spool = opened(tmp_path)
    spool.append(CHANGES)
    spool.close()
    journal = tmp_path / "journal"
    journal.write_bytes(journal.read_bytes()[:-torn])
    spool = Spool(tmp_path)
    assert tuple(spool.load()) == CHANGES[:2]
    spool.append((RecordGone("p"),))
    spool.close()
    assert tuple(Spool(tmp_path).read()) == (*CHANGES[:2], RecordGone("p"))


def test_damage_elsewhere_is_not_passed_over(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append(CHANGES)
    spool.close()
    journal = tmp_path / "journal"
    journal.write_bytes(b"x" + journal.read_bytes())
    with pytest.raises(Invalid, match="line 1"):
        Spool(tmp_path).load()


def test_rewriting_keeps_what_matters_and_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "COMPACT_LINES", 50)
    spool = opened(tmp_path)
    for _ in range(17):
        spool.append(CHANGES)
    was_long = spool.long
    empty = State(site=Site(name="here", pools=()))
    state = restore(empty, spool.read())
    spool.rewrite(whole(state))
    assert (was_long, spool.long) == (True, False)
    assert restore(empty, Spool(tmp_path).read()) == state
    spool.append((RecordGone("p"),))
    assert restore(empty, Spool(tmp_path).read()).records == {}
    spool.close()


def test_one_agent_at_a_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert not spool.in_use()
    spool.lock()
    assert Spool(tmp_path).in_use()
    with pytest.raises(Invalid, match="another agent"):
        Spool(tmp_path).lock()
    spool.close()
    assert not Spool(tmp_path).in_use()


def test_records_of_all_phases_survive(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    records = tuple(RecordChange(PlacementRecord(entry=ENTRY, phase=phase)) for phase in Phase)
    spool.append(records)
    assert tuple(Spool(tmp_path).read()) == records
    spool.close()


def test_checkpoints_go_only_when_old_and_not_needed(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for job in ("old", "old-but-here", "touched"):
        (spool.checkpoints / job).mkdir(parents=True)
        (spool.checkpoints / job / "state").touch()
        for path in (spool.checkpoints / job / "state", spool.checkpoints / job):
            os.utime(path, (0, 0))
    (spool.checkpoints / "touched" / "state").touch()
    spool.drop_checkpoints({"old-but-here"})
    assert sorted(path.name for path in spool.checkpoints.iterdir()) == ["old-but-here", "touched"]


def test_checkpoints_that_are_being_removed_meanwhile_trouble_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    (spool.checkpoints / "ended-well").mkdir(parents=True)
    monkeypatch.setattr(Path, "rglob", lambda self, _pattern: [self / "gone"])
    spool.drop_checkpoints(set())
    assert (spool.checkpoints / "ended-well").exists()

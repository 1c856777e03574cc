"""The bounded history, at the edge where it forgets."""

import pytest

from federator.kernel.errors import Conflict
from federator.ports import Change
from federator.store.history import History


def test_a_revision_of_which_only_a_part_is_left_counts_as_forgotten() -> None:
    history = History(0, limit=2)
    pair = [Change("a", b"", 2), Change("b", b"", 2)]
    history.extend([Change("x", b"", 1), Change("y", b"", 1), *pair, Change("z", b"", 3)])
    assert [change.revision for change in history.since(3)] == [3]
    with pytest.raises(Conflict, match="up to revision 2"):
        history.since(2)


def test_at_least_the_promised_number_of_changes_is_kept() -> None:
    history = History(0, limit=10)
    for revision in range(1, 101):
        history.extend([Change("k", b"", revision)])
        assert len(history.since(max(1, revision - 9))) == min(revision, 10)
        assert len(history.changes) <= 20

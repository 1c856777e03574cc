"""Where in a log something is: what was written when, and how it ends."""

from itertools import pairwise

import pytest

from federator.api.log_offsets import keep_times, last_lines, offset_since, parts, times_of
from federator.store.blobs import MemoryBlobs
from federator.wire.log_times import LogPart, LogTime

DAY_S = 86400.0


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


def test_times_are_kept_in_order_and_not_too_close(blobs: MemoryBlobs) -> None:
    keep_times(blobs, "p/0", [LogTime(0, 1000.0), LogTime(5, 1000.1)])
    keep_times(blobs, "p/0", [LogTime(9, 1001.0), LogTime(9, 990.0), LogTime(3, 1005.0)])
    assert times_of(blobs, "p/0") == [(0, 1000.0), (9, 1001.0)]
    assert blobs.log_length("p/0") == 0, "the log itself is as its job has written it"


def test_a_month_of_a_line_a_second_takes_little_room(blobs: MemoryBlobs) -> None:
    """Coarser as it gets older, so that times never take more than the log."""
    for second in range(0, 30 * 86400, 60):
        keep_times(blobs, "p/0", [LogTime(second, 1e9 + second)])
    assert blobs.log_length("p/0/times") < 700_000
    found = times_of(blobs, "p/0")
    assert all(b.at - a.at <= 60 + 1e-4 * (b.at - 1e9) + 60 for a, b in pairwise(found))


def test_a_record_that_was_torn_is_none(blobs: MemoryBlobs) -> None:
    keep_times(blobs, "p/0", [LogTime(0, 1000.0)])
    blobs.append_log("p/0/times", 16, bytes(6))
    assert times_of(blobs, "p/0") == [(0, 1000.0)]
    keep_times(blobs, "p/0", [LogTime(7, 1010.0), LogTime(9, 1020.0)])
    assert times_of(blobs, "p/0")[-1] == (9, 1020.0)


def test_parts_of_a_log_have_their_times() -> None:
    times = [LogTime(4, 1.0), LogTime(8, 2.0), LogTime(8, 2.5), LogTime(20, 3.0)]
    assert list(parts(times, 2, b"abcdefgh")) == [
        LogPart(2, b"ab", None),
        LogPart(4, b"cdef", 1.0),
        LogPart(8, b"gh", 2.5),
    ]
    assert list(parts([], 5, b"xyz")) == [LogPart(5, b"xyz", None)]


def test_where_a_moment_begins() -> None:
    times = [LogTime(0, 10.0), LogTime(50, 20.0)]
    assert offset_since(times, 5.0, 90) == 0
    assert offset_since(times, 15.0, 90) == 50
    assert offset_since(times, 25.0, 90) == 90


def test_how_a_log_ends(blobs: MemoryBlobs) -> None:
    blobs.append_log("p/0", 0, b"".join(b"line %d\n" % number for number in range(100)))
    assert last_lines(blobs, "p/0", 2, 4096) == "line 98\nline 99"
    assert last_lines(blobs, "p/0", 50, 11) == "98\nline 99", "within so many bytes"
    assert not last_lines(blobs, "p/9", 2, 4096)

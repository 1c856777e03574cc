"""Logs in segments: whatever is appended, written, forgotten, refused or written late by a former writer, what is read is what was appended."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.kernel.errors import Damaged, Unavailable
from federator.store import segments
from federator.store.blobs import MemoryBlobs
from federator.store.bucket import Bucket, Found
from federator.store.segments import SegmentedLogs

SEGMENT = 50


class FakeBucket:
    """Objects in a dictionary, which may refuse to be written."""

    name = "s3://fake"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refuses = False
        self.puts = 0
        self.meanwhile: Callable[[], object] | None = None
        """Happens during the next put."""

    def put(self, key: str, data: bytes, *, patience_s: float | None = None) -> None:
        if self.refuses:
            raise Unavailable("it is down")
        self.puts += 1
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.objects[key] = bytes(data)

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def all(self, prefix: str) -> Iterator[Found]:
        return iter([Found(k, len(v), 0.0) for k, v in sorted(self.objects.items()) if k.startswith(prefix)])

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


def logs_in(bucket: FakeBucket) -> SegmentedLogs:
    """They write when they are told to."""
    return SegmentedLogs(cast(Bucket, bucket), segment_bytes=SEGMENT, flush_s=3600.0)


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "keep", "forget", "again"]),
        st.integers(0, 300),
        st.binary(max_size=90),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(WRITES)
def test_any_history_reads_as_in_memory(history: list[tuple[str, int, bytes]]) -> None:
    bucket, memory = FakeBucket(), MemoryBlobs()
    logs = logs_in(bucket)
    for act, offset, data in history:
        match act:
            case "append":
                assert logs.append("log", offset, data) == memory.append_log("log", offset, data)
            case "keep":
                logs.keep(["log"])
            case "forget":
                logs.close()
                logs = logs_in(bucket)
            case _:
                length = memory.log_length("log")
                assert logs.append("log", length, data) == memory.append_log("log", length, data)
        assert logs.length("log") == memory.log_length("log")
        assert logs.read("log", offset, 100) == memory.read_log("log", offset, 100)
    logs.close()
    after = logs_in(bucket)
    whole = memory.read_log("log", 0, 10_000)
    assert after.length("log") == len(whole)
    assert after.read("log", 0, 10_000) == whole
    after.drop("log")
    assert bucket.objects == {}
    after.close()


def test_a_former_writer_that_writes_late_takes_nothing_away() -> None:
    bucket = FakeBucket()
    former = logs_in(bucket)
    former.append("log", 0, b"0123456789")
    former.keep(["log"])
    former.append("log", 10, b"abcde")
    present = logs_in(bucket)
    assert present.length("log") == 10, "what was not written is asked for again"
    present.append("log", 10, b"abcdefghij" * 9)
    present.keep(["log"])
    former.keep(["log"])
    former.close()
    for reader in (present, logs_in(bucket)):
        assert reader.read("log", 0, 200) == b"0123456789" + b"abcdefghij" * 9
        reader.close()


def test_a_segment_that_a_former_writer_replaced_is_found_again() -> None:
    bucket = FakeBucket()
    former = logs_in(bucket)
    former.append("log", 0, b"01234")
    former.keep(["log"])
    present = logs_in(bucket)
    assert present.length("log") == 5
    former.append("log", 5, b"56789")
    former.keep(["log"])
    assert present.read("log", 0, 5) == b"01234"
    bucket.objects.clear()
    again = logs_in(bucket)
    again.logs["log"] = segments.Log("log", [segments.Segment(0, 5, 0, 5)])
    with pytest.raises(Damaged, match="lacks its bytes 0 to 5"):
        again.read("log", 0, 5)


def test_while_the_bucket_is_down_a_log_takes_a_segment_and_no_more() -> None:
    bucket = FakeBucket()
    logs = logs_in(bucket)
    bucket.refuses = True
    assert logs.append("log", 0, b"x" * SEGMENT) == SEGMENT
    with pytest.raises(Unavailable):
        logs.append("log", SEGMENT, b"more")
    with pytest.raises(Unavailable):
        logs.keep(["log"])
    assert logs.read("log", 0, 100) == b"x" * SEGMENT
    bucket.refuses = False
    assert logs.append("log", SEGMENT, b"more") == SEGMENT + 4
    logs.close()
    assert logs_in(bucket).read("log", 40, 100) == b"x" * 10 + b"more"


def test_many_logs_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MEMORY_BYTES", 20_000)
    bucket = FakeBucket()
    logs = logs_in(bucket)
    for number in range(200):
        logs.append(f"plc-{number}/0", 0, b"%040d" % number)
        assert logs.memory_bytes <= 20_000
    assert len(logs.logs) <= 20
    assert logs.append("plc-0/0", 40, b"more") == 44
    assert logs.read("plc-0/0", 0, 100) == b"%040dmore" % 0
    assert logs.usage()["plc-7"] == 40
    logs.close()


def test_what_is_appended_while_a_log_is_written_to_be_forgotten_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "MEMORY_BYTES", 4500)
    bucket = FakeBucket()
    logs = SegmentedLogs(cast(Bucket, bucket), flush_s=3600.0)
    logs.append("a", 0, b"a" * 1000)
    logs.append("b", 0, b"b" * 1000)
    told: list[int] = []
    bucket.meanwhile = lambda: told.append(logs.append("a", 1000, b"more"))
    logs.append("c", 0, b"c" * 1000)
    assert told == [1004]
    assert logs.length("a") == 1004
    logs.keep(["a"])
    assert logs_in(bucket).read("a", 990, 100) == b"a" * 10 + b"more"
    logs.close()


def test_a_log_that_always_grows_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MEMORY_BYTES", segments.ENTRY_BYTES + 2)
    bucket = FakeBucket()
    logs = SegmentedLogs(cast(Bucket, bucket), flush_s=3600.0)

    def grow() -> None:
        logs.logs["a"].tail += b"x"
        bucket.meanwhile = grow if bucket.puts < 100 else None

    bucket.meanwhile = grow
    assert logs.append("a", 0, b"first") == 5
    assert bucket.puts == segments.MOST_GROWN
    bucket.meanwhile = None
    logs.close()
    assert logs_in(bucket).read("a", 0, 100) == b"first" + b"x" * segments.MOST_GROWN


def test_what_two_threads_write_alike_stays_though_the_log_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "MEMORY_BYTES", 3000)
    bucket = FakeBucket()
    logs = SegmentedLogs(cast(Bucket, bucket), flush_s=3600.0)
    logs.append("a", 0, b"a" * 1000)
    bucket.meanwhile = lambda: logs.append("b", 0, b"b" * 1000)
    logs.keep(["a"])
    assert "a" not in logs.logs
    assert logs.length("a") == 1000
    logs.close()


def test_an_untouched_log_is_not_written_again() -> None:
    bucket = FakeBucket()
    logs = logs_in(bucket)
    logs.append("log", 0, b"once")
    for _ in range(3):
        logs.keep(["log"])
        logs.flush()
    assert bucket.puts == 1
    logs.close()


def test_threads_append_keep_and_read_at_once() -> None:
    bucket = FakeBucket()
    logs = logs_in(bucket)
    over = threading.Event()

    def keep() -> None:
        while not over.is_set():
            logs.keep(["log"])

    keepers = [threading.Thread(target=keep) for _ in range(3)]
    for keeper in keepers:
        keeper.start()
    expected = b""
    for number in range(400):
        piece = b"%07d\n" % number
        assert logs.append("log", len(expected), piece) == len(expected) + 8
        expected += piece
        assert logs.read("log", max(0, len(expected) - 100), 100) == expected[-100:]
    over.set()
    for keeper in keepers:
        keeper.join()
    logs.close()
    assert logs_in(bucket).read("log", 0, 10_000) == expected

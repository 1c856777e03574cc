"""The contract of `federator.ports.Blobs`, held against all implementations, and against each other."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federator.kernel.errors import Invalid, TooLarge
from federator.kernel.ids import content_hash
from federator.ports import Blobs, Usage
from federator.store.blobs import LARGEST_LOG_BYTES, FileBlobs, MemoryBlobs
from federator.store.s3_blobs import S3Blobs
from federator.store.segments import SegmentedLogs
from tests.testbeds.s3 import bucket_of_its_own


def s3_blobs(folder: Path) -> S3Blobs:
    bucket = bucket_of_its_own()
    # Segments so short that the suite's logs have several.
    return S3Blobs(bucket, folder / "scratch", SegmentedLogs(bucket, segment_bytes=100, flush_s=0.2))


FACTORIES: dict[str, Callable[[Path], Blobs]] = {
    "memory": lambda folder: MemoryBlobs(),
    "files": FileBlobs,
    "s3": s3_blobs,
}


@pytest.fixture(params=sorted(FACTORIES))
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    blobs = FACTORIES[request.param](tmp_path / "blobs")
    yield blobs
    blobs.close()


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_bytes_come_back_under_their_hash(blobs: Blobs, data: bytes) -> None:
    digest = blobs.put(data)
    assert digest == content_hash(data)
    assert blobs.has(digest)
    assert blobs.get(digest) == data


def test_bytes_that_come_in_parts_are_seen_when_they_are_kept(blobs: Blobs) -> None:
    draft = blobs.draft()
    draft.write(b"in ")
    draft.write(b"parts")
    digest = content_hash(b"in parts")
    assert (draft.length, draft.digest) == (8, digest)
    assert not blobs.has(digest)
    assert draft.keep() == digest
    draft.discard()
    assert blobs.get(digest) == b"in parts"
    again = blobs.draft()
    again.write(b"in parts")
    assert again.keep() == digest
    forgotten = blobs.draft()
    forgotten.write(b"never")
    forgotten.discard()
    assert not blobs.has(content_hash(b"never"))
    assert blobs.usage() == Usage({digest: 8}, {})


def test_bytes_are_read_in_parts(blobs: Blobs) -> None:
    file = blobs.open(blobs.put(b"in parts"))
    assert file is not None
    with file:
        assert [file.read(3), file.read(3), file.read(3), file.read(3)] == [b"in ", b"par", b"ts", b""]
    assert blobs.open(content_hash(b"never")) is None


def test_keeping_twice_is_keeping_once(blobs: Blobs) -> None:
    assert blobs.put(b"same") == blobs.put(b"same")
    assert blobs.get(content_hash(b"same")) == b"same"


@pytest.mark.parametrize("digest", [content_hash(b"never put"), "", "../../etc/passwd", "ab", "A" * 64])
def test_an_unknown_hash_is_not_there_whatever_it_looks_like(blobs: Blobs, digest: str) -> None:
    assert not blobs.has(digest)
    assert blobs.get(digest) is None


def test_threads_may_put_the_same_bytes_at_once(blobs: Blobs) -> None:
    data = [b"%d" % (number % 5) * 10_000 for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(blobs.put, data))
    assert [blobs.get(digest) for digest in digests] == data


def test_a_log_grows_and_is_read_in_pieces(blobs: Blobs) -> None:
    assert blobs.append_log("job-1/0", 0, b"hello ") == 6
    assert blobs.append_log("job-1/0", 6, b"world\n") == 12
    assert blobs.log_length("job-1/0") == 12
    assert blobs.read_log("job-1/0", 0, 5) == b"hello"
    assert blobs.read_log("job-1/0", 6, 100) == b"world\n"
    assert blobs.read_log("job-1/0", 12, 100) == b""
    assert blobs.read_log("job-1/0", 500, 100) == b""


def test_an_unknown_log_is_empty(blobs: Blobs) -> None:
    assert blobs.log_length("nothing") == 0
    assert blobs.read_log("nothing", 0, 10) == b""


def test_a_repeated_or_overlapping_write_changes_nothing_it_already_has(blobs: Blobs) -> None:
    blobs.append_log("log", 0, b"abcdef")
    assert blobs.append_log("log", 0, b"abcdef") == 6
    assert blobs.append_log("log", 2, b"XX") == 6
    assert blobs.append_log("log", 4, b"??gh") == 8
    assert blobs.read_log("log", 0, 100) == b"abcdefgh"


def test_a_gap_says_how_much_was_lost_and_moves_no_offset(blobs: Blobs) -> None:
    blobs.append_log("log", 0, b"start\n")
    assert blobs.append_log("log", 1006, b"end\n") == 1010
    assert b"\n[1000 bytes of this log were lost]\n" in blobs.read_log("log", 0, 2000)
    assert blobs.read_log("log", 0, 6) == b"start\n"
    assert blobs.read_log("log", 1006, 100) == b"end\n"


def test_a_short_gap_is_filled_exactly(blobs: Blobs) -> None:
    blobs.append_log("log", 0, b"a")
    assert blobs.append_log("log", 4, b"b") == 5
    assert blobs.read_log("log", 0, 100) == b"a~~\nb"


def test_nothing_at_an_offset_beyond_the_end_is_not_a_gap(blobs: Blobs) -> None:
    assert blobs.append_log("log", 100, b"") == 0
    assert blobs.log_length("log") == 0


def test_a_log_and_a_log_below_it_do_not_meet(blobs: Blobs) -> None:
    blobs.append_log("job", 0, b"outer")
    blobs.append_log("job/0", 0, b"inner")
    assert blobs.read_log("job", 0, 10) == b"outer"
    assert blobs.read_log("job/0", 0, 10) == b"inner"


BAD_NAMES = [
    "",
    "/",
    "/abs",
    "a/",
    "a//b",
    "..",
    "../a",
    "a/../b",
    ".",
    "a.log",
    "A",
    "a b",
    "a\\b",
    "a\n",
    "a\0",
    "ä",
    "x" * 201,
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_could_lead_elsewhere_are_refused(blobs: Blobs, name: str) -> None:
    for call in (
        lambda: blobs.append_log(name, 0, b"x"),
        lambda: blobs.read_log(name, 0, 1),
        lambda: blobs.log_length(name),
    ):
        with pytest.raises(Invalid, match="not a log name"):
            call()


def test_offsets_that_make_no_sense_are_refused(blobs: Blobs) -> None:
    with pytest.raises(Invalid, match="negative"):
        blobs.append_log("log", -1, b"x")
    with pytest.raises(TooLarge):
        blobs.append_log("log", LARGEST_LOG_BYTES, b"x")
    assert blobs.log_length("log") == 0


def test_threads_that_repeat_each_other_leave_one_copy(blobs: Blobs) -> None:
    """Two connections of one agent may send the same piece at the same time."""
    pieces = [b"%04d\n" % number for number in range(100)]
    with ThreadPoolExecutor(4) as pool:
        for number, piece in enumerate(pieces):
            offset = 5 * number
            list(
                pool.map(
                    lambda _, offset=offset, piece=piece: blobs.append_log("log", offset, piece), range(4)
                )
            )
    assert blobs.read_log("log", 0, 10_000) == b"".join(pieces)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(writes=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=80)), max_size=8))
def test_any_sequence_of_writes_reads_the_same_from_files_and_memory(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, bytes]]
) -> None:
    files, memory = FileBlobs(tmp_path_factory.mktemp("blobs")), MemoryBlobs()
    for offset, data in writes:
        before = files.read_log("log", 0, 1000)
        assert files.append_log("log", offset, data) == memory.append_log("log", offset, data)
        after = files.read_log("log", 0, 1000)
        assert after == memory.read_log("log", 0, 1000)
        assert after.startswith(before)


def test_what_is_kept_of_a_log_is_what_was_appended(blobs: Blobs) -> None:
    for number in range(40):
        blobs.append_log("job/0", 10 * number, b"%09d\n" % number)
        if number % 7 == 0:
            blobs.keep_logs(["job"])
    blobs.keep_logs(["job", "unknown"])
    assert blobs.read_log("job/0", 0, 1000) == b"".join(b"%09d\n" % number for number in range(40))
    assert blobs.read_log("job/0", 195, 10) == b"0019\n00000"


# ---------------------------------------------------------------------------------------------------------- dropping


def test_only_what_nobody_has_used_for_so_long_is_named_and_dropped(blobs: Blobs) -> None:
    digest = blobs.put(b"work directory")
    assert blobs.unused(3600.0) == []
    assert not blobs.drop(digest, 3600.0)
    assert blobs.has(digest)
    assert blobs.unused(0.0) == [digest]
    assert blobs.drop(digest, 0.0)
    assert not blobs.has(digest)
    assert blobs.get(digest) is None
    assert blobs.put(b"work directory") == digest
    assert blobs.get(digest) == b"work directory"


def test_to_ask_for_bytes_is_to_use_them(blobs: Blobs) -> None:
    """A client that finds its work directory there does not upload it; it must still be there when its job comes."""
    digest, other = blobs.put(b"asked for"), blobs.put(b"not asked for")
    waited_s = 0.5
    threading.Event().wait(2 * waited_s)
    assert blobs.has(digest)
    assert blobs.unused(waited_s) == [other]
    assert not blobs.drop(digest, waited_s)
    assert blobs.drop(other, waited_s)


def test_dropping_what_is_unknown_is_fine(blobs: Blobs) -> None:
    for digest in (content_hash(b"never"), "", "../../../etc/passwd"):
        assert blobs.drop(digest, 0.0)
    blobs.drop_logs("never")


def test_a_placements_logs_go_together_and_no_others(blobs: Blobs) -> None:
    for name in ("plc-1", "plc-1/0", "plc-1/1", "plc-10/0", "plc-2/0"):
        blobs.append_log(name, 0, b"text")
    blobs.drop_logs("plc-1")
    kept = {name: blobs.log_length(name) for name in ("plc-1", "plc-1/0", "plc-1/1", "plc-10/0", "plc-2/0")}
    assert kept == {"plc-1": 0, "plc-1/0": 0, "plc-1/1": 0, "plc-10/0": 4, "plc-2/0": 4}
    assert blobs.append_log("plc-1/0", 0, b"new") == 3


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_name_drops_what_is_elsewhere(blobs: Blobs, name: str) -> None:
    with pytest.raises(Invalid, match="not a log name"):
        blobs.drop_logs(name)


def test_usage_grows_with_what_is_kept_and_shrinks_with_what_is_dropped(blobs: Blobs) -> None:
    assert blobs.usage() == Usage({}, {})
    digest = blobs.put(bytes(5000))
    blobs.append_log("log/0", 0, b"x" * 8192)
    kept = blobs.usage()
    assert kept.blobs == {digest: 5000}
    assert set(kept.logs) == {"log"}
    assert kept.blobs_bytes == 5000
    assert kept.logs_bytes >= 8192
    blobs.drop(digest, 0.0)
    blobs.drop_logs("log")
    assert blobs.usage() == Usage({}, {})

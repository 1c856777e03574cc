"""What only blobs in files do: leftovers, damage, and bytes that survive their process."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federator.kernel.errors import Permanent, Unavailable
from federator.store.blobs import FileBlobs


def test_blobs_and_logs_are_there_after_opening_again(tmp_path: Path) -> None:
    first = FileBlobs(tmp_path)
    digest = first.put(b"bytes")
    first.append_log("job/0", 0, b"line\n")
    second = FileBlobs(tmp_path)
    assert second.get(digest) == b"bytes"
    assert second.append_log("job/0", 5, b"more\n") == 10


def test_a_write_cut_short_by_a_crash_is_never_seen_and_is_cleared_away(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    (tmp_path / "unfinished" / "tmp123").write_bytes(b"half")
    digest = blobs.put(b"half and more")
    FileBlobs(tmp_path)
    assert list((tmp_path / "unfinished").iterdir()) == []
    assert blobs.get(digest) == b"half and more"


def test_a_full_disk_is_unavailable_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="full"):
            blobs.put(b"bytes")
    assert list((tmp_path / "unfinished").iterdir()) == []
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    assert blobs.get(blobs.put(b"bytes")) == b"bytes"


def test_bytes_damaged_on_disk_are_not_handed_out(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    digest = blobs.put(b"bytes")
    next(path for path in tmp_path.rglob(digest)).write_bytes(b"bytez")
    with pytest.raises(Permanent, match="damaged"):
        blobs.get(digest)


def test_no_single_folder_holds_all_blobs(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    for number in range(100):
        blobs.put(b"%d" % number)
    assert max(len(list(folder.iterdir())) for folder in (tmp_path / "objects").iterdir()) < 20


def test_a_gap_takes_no_room_on_disk(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.append_log("log", 2**30, b"after an outage\n")
    assert (tmp_path / "logs" / "log.log").stat().st_blocks * 512 < 2**20
    assert blobs.read_log("log", 2**30, 100) == b"after an outage\n"


def test_only_one_thread_at_a_time_measures_a_log_and_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once could both see the old length; the line about a gap would then overwrite the other's bytes."""
    blobs = FileBlobs(tmp_path)
    alone = threading.Lock()
    write = os.pwrite

    def slow_write(descriptor: int, data: bytes, offset: int) -> int:
        assert alone.acquire(blocking=False), "two threads write at once"
        time.sleep(0.001)
        alone.release()
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", slow_write)
    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(lambda number: blobs.append_log("log", 5 * number, b"line\n"), range(20))) == 100

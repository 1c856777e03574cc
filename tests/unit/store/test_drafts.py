"""Parts of a large upload: what is on its way to the disk at once is little."""

import os
from pathlib import Path

import pytest

from federator.store.blobs import FileBlobs
from federator.store.drafts import WRITE_OUT_BYTES

PART_BYTES = 2**18


def test_the_disk_begins_with_a_large_draft_while_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of the store waits for all that is on its way there."""
    begun_with: list[int] = []

    def begin(descriptor: int, _offset: int, _count: int, _advice: int) -> None:
        begun_with.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "posix_fadvise", begin)
    draft = FileBlobs(tmp_path).draft()
    for _ in range(4 * WRITE_OUT_BYTES // PART_BYTES):
        draft.write(bytes(PART_BYTES))
    assert begun_with == [WRITE_OUT_BYTES * number for number in range(1, 5)]
    draft.discard()

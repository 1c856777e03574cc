"""What is kept of a file that grows without end: its beginning, its end, and how much lies on the disk."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator_agent import excerpts
from federator_agent.excerpts import Excerpt

MOST = 64 * 1024
SLACK = 8 * 1024
BLOCK = 4096
LINE = 100
"""At least as long as what is said of the bytes that are left out."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "SLACK_BYTES", SLACK)


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def text_of(excerpt: Excerpt) -> bytes:
    text = b""
    while len(text) < excerpt.length() and (part := excerpt.chunk(len(text))):
        text += part
    return text


def numbered(begin: int, count: int) -> bytes:
    """Bytes that say where in the file they are, and none of which is zero."""
    lines = b"".join(b"%07d\n" % at for at in range(begin // 8, (begin + count) // 8 + 1))
    return lines[begin % 8 :][:count]


@settings(max_examples=30)
@given(
    parts=st.lists(st.integers(min_value=1, max_value=3 * MOST), min_size=1, max_size=8),
    most=st.integers(min_value=20 * 1024, max_value=MOST),
)
def test_whatever_is_written_the_disk_holds_beginning_and_end_and_these_are_shown(
    tmp_path_factory: pytest.TempPathFactory, parts: list[int], most: int
) -> None:
    path = tmp_path_factory.mktemp("rank") / "log"
    excerpt, size, head = Excerpt(path.parent, path, most), 0, b""
    for count in parts:
        with path.open("ab") as file:
            file.write(numbered(size, count))
        size += count
        excerpt.shorten()
        assert path.stat().st_size == size, "who appends notices nothing"
        assert on_disk(path) <= most + SLACK + 3 * BLOCK
        head = text_of(excerpt)
        assert head == numbered(0, min(size, int(most * 3 / 4)))
    excerpt.over = True
    text = text_of(excerpt)
    assert b"\0" not in text
    if size <= most:
        assert text == numbered(0, size)
    else:
        assert len(text) == most
        begin, said, end = text[: len(head)], *text[len(head) + 1 :].split(b"\n", 1)
        assert begin == head
        assert b"MiB of this log left out" in said
        assert end == numbered(size - len(end), len(end))


def test_a_new_life_of_the_agent_with_another_limit_finds_the_hole(tmp_path: Path) -> None:
    """The dispatcher keeps more than it did before. What is gone is not sent as zeros."""
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 20 * MOST))
    Excerpt(tmp_path, path, MOST).shorten()
    larger = Excerpt(tmp_path, path, 10 * MOST)
    assert text_of(larger) == numbered(0, MOST * 3 // 4)
    larger.over = True
    text = text_of(larger)
    assert b"\0" not in text
    assert b"left out" in text
    assert text.endswith(numbered(20 * MOST - MOST // 8, MOST // 8))
    assert len(text) <= MOST + 2 * BLOCK


def test_a_file_of_nothing_but_a_hole_is_not_sent_as_gigabytes_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    os.truncate(path, 2**36)
    excerpt = Excerpt(tmp_path, path, MOST)
    excerpt.over = True
    assert len(text_of(excerpt)) <= BLOCK + LINE


def test_a_hole_that_is_filled_again_is_made_again(tmp_path: Path) -> None:
    """A job may open its log anew, and write in the middle: the file's length tells nothing."""
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 20 * MOST))
    excerpt = Excerpt(tmp_path, path, MOST)
    excerpt.shorten()
    with path.open("r+b") as file:
        file.seek(2 * MOST)
        file.write(b"x" * 10 * MOST)
    assert on_disk(path) > 10 * MOST
    excerpt.shorten()
    assert on_disk(path) <= MOST + SLACK + 3 * BLOCK


def test_nothing_is_taken_out_of_a_file_with_a_second_name_or_behind_a_link(tmp_path: Path) -> None:
    """Where the agent is root and the folder is the job's, the second name may be that of somebody else's file."""
    victim = tmp_path / "victim"
    victim.write_bytes(numbered(0, 20 * MOST))
    os.link(victim, tmp_path / "second")
    (tmp_path / "link").symlink_to(victim)
    for name in ("second", "link"):
        with pytest.raises(FileNotFoundError):
            Excerpt(tmp_path, tmp_path / name, MOST).shorten()
    assert victim.read_bytes() == numbered(0, 20 * MOST)


def test_a_file_system_without_holes_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert excerpts.lacking(tmp_path) == ""

    def unable(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "the file system cannot give back a part of a file")

    monkeypatch.setattr(excerpts, "punch", unable)
    assert "cannot" in excerpts.lacking(tmp_path)

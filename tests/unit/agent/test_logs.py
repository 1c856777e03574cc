"""Logs on their way: what the dispatcher's copy has is the truth, and one that does not grow is not fed for ever."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from federator.kernel.clock import SystemClock
from federator.kernel.errors import TooLarge
from federator.wire.link import LogLength
from federator.wire.log_times import LogTime
from federator_agent import excerpts, logs
from federator_agent.bulk import Bulk
from federator_agent.link_use import LinkUse
from federator_agent.logs import LogUploads, Upload


class Copy:
    """The dispatcher's copy of logs; `limit` is where it stops to take more."""

    def __init__(self, limit: int = 10**9) -> None:
        self.data = b""
        self.limit = limit
        self.most = 0
        self.puts: list[tuple[int, int]] = []
        self.times: list[LogTime] = []
        self.error: Exception | None = None

    async def put_log(
        self, placement: str, rank: int, offset: int, data: bytes, times: Sequence[LogTime] = ()
    ) -> LogLength:
        self.puts.append((offset, len(data)))
        self.times += times
        if self.error:
            raise self.error
        if offset == len(self.data):
            self.data = (self.data + data)[: self.limit]
        return LogLength(len(self.data), self.most)


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch) -> Copy:
    monkeypatch.setattr(excerpts, "CHUNK_BYTES", 4)
    return Copy()


def uploads(copy: Copy) -> LogUploads:
    return LogUploads(cast(Bulk, copy), LinkUse(SystemClock()))


async def test_a_log_goes_in_chunks_from_where_the_copy_ends(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    copy.data = b"012"
    sending = uploads(copy)
    sending.follow("p", 0, tmp_path / "log", fresh=False)
    assert await sending.finish("p") == ""
    assert copy.data == b"0123456789"
    assert copy.puts == [(0, 0), (3, 4), (7, 3)]


async def test_a_copy_that_lost_its_tail_gets_it_again(copy: Copy, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"01234567")
    sending = uploads(copy)
    sending.follow("p", 0, path, fresh=True)
    await sending.send(("p", 0), sending.uploads["p", 0], once=False)
    copy.data = b"01"
    sending.ask_again()
    with path.open("ab") as file:
        file.write(b"89")
    assert await sending.finish("p") == ""
    assert copy.data == b"0123456789"


async def test_a_copy_that_takes_no_more_is_not_fed_for_ever(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    copy.limit = 6
    sending = uploads(copy)
    sending.follow("p", 0, tmp_path / "log", fresh=True)
    assert await sending.finish("p") == "the log of rank 0 is incomplete"
    assert len(copy.puts) < 10


async def test_a_refused_log_does_not_hold_up_the_end(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    copy.error = TooLarge("no")
    sending = uploads(copy)
    sending.follow("p", 0, tmp_path / "log", fresh=True)
    assert "incomplete" in await sending.finish("p")


def test_the_oldest_logs_of_ended_placements_go_first(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "KEEP_BYTES", 6000)
    for age, name in enumerate(("newest", "middle", "oldest")):
        path = tmp_path / name / "rank-0" / "log"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(4096))
        os.utime(path, (1000 - age, 1000 - age))
    uploads(copy).drop_oldest([tmp_path / name for name in ("newest", "middle", "oldest")])
    assert [(tmp_path / name / "rank-0" / "log").exists() for name in ("newest", "middle", "oldest")] == [
        True,
        False,
        False,
    ]


async def test_a_link_in_the_place_of_a_log_is_not_followed(copy: Copy, tmp_path: Path) -> None:
    """The agent may be root, and the job's user is not."""
    rank = tmp_path / "placement" / "rank-0"
    rank.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (rank / "log").symlink_to(tmp_path / "secret")
    sending = uploads(copy)
    sending.follow("p", 0, rank / "log", fresh=True)
    assert await sending.finish("p") == "the log of rank 0 is incomplete"
    assert copy.data == b""


async def test_of_an_endless_log_the_beginning_and_the_end_are_sent_and_what_is_left_out_is_said(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it grows no more than the beginning is sent, so that there is room for the end."""
    monkeypatch.setattr(excerpts, "CHUNK_BYTES", 50)
    path = tmp_path / "log"
    path.write_bytes(b"first\n")
    copy.most = 400
    sending = uploads(copy)
    sending.follow("p", 0, path, fresh=True)
    upload = sending.uploads["p", 0]
    for part in (b"", b"x" * 500, b"y" * 2**20):
        with path.open("ab") as file:
            file.write(part)
        await sending.send(("p", 0), upload, once=False)
    assert copy.data == b"first\n" + b"x" * 294
    assert not upload.pending()
    with path.open("ab") as file:
        file.write(b"last\n")
    assert await sending.finish("p") == ""
    assert len(copy.data) == 400
    head, said, tail = copy.data[:300], *copy.data[300:].split(b"]\n")
    assert head == b"first\n" + b"x" * 294
    assert said.decode() == "\n[… 1.0 MiB of this log left out …"
    assert tail == b"y" * (len(tail) - 5) + b"last\n"


async def test_a_log_just_within_the_limit_is_sent_as_a_whole(copy: Copy, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(range(100)))
    copy.most = 100
    sending = uploads(copy)
    sending.follow("p", 0, path, fresh=True)
    await sending.send(("p", 0), sending.uploads["p", 0], once=False)
    assert len(copy.data) == 75, "the rest is for its end"
    assert await sending.finish("p") == ""
    assert copy.data == path.read_bytes()


async def test_what_was_written_while_nobody_answered_keeps_its_time(copy: Copy, tmp_path: Path) -> None:
    path = tmp_path / "log"
    sending = uploads(copy)
    sending.follow("p", 0, path, fresh=True)
    upload = sending.uploads["p", 0]
    for at, text in ((1000.0, b"ab"), (1060.0, b"cdefg"), (1120.0, b"h")):
        with path.open("ab") as file:
            file.write(text)
        os.utime(path, (at, at))
        upload.look()
    await sending.finish("p")
    assert copy.data == b"abcdefgh"
    assert copy.puts == [(0, 4), (4, 4)], "chunks of four"
    assert copy.times == [(0, 1000.0), (2, 1060.0), (4, 1060.0), (7, 1120.0)]
    assert upload.times == [(4, 1060.0), (7, 1120.0)], "what is sent is forgotten"


async def test_times_are_few_however_long_nobody_answers(copy: Copy, tmp_path: Path) -> None:
    path = tmp_path / "log"
    upload = Upload(path, 0)
    for second in range(3 * logs.KEEP_TIMES):
        with path.open("ab") as file:
            file.write(b"x")
        os.utime(path, (second, second))
        upload.look()
    assert len(upload.times) <= logs.KEEP_TIMES
    assert upload.times == sorted(upload.times)
    assert upload.times[0] == (0, 0.0)


async def test_the_end_of_a_long_log_has_its_time_though_the_middle_is_left_out(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excerpts, "CHUNK_BYTES", 1000)
    folder = tmp_path / "rank-0"
    folder.mkdir()
    path = folder / "log"
    copy.most = 800
    sending = uploads(copy)
    sending.follow("p", 0, path, fresh=True)
    upload = sending.uploads["p", 0]
    for at, text in ((1000.0, b"b" * 500), (1060.0, b"m" * 600), (1120.0, b"e" * 100)):
        with path.open("ab") as file:
            file.write(text)
        os.utime(path, (at, at))
        upload.look()
        if at == 1000.0:
            await sending.send(("p", 0), upload, once=True)
    await sending.finish("p")
    assert copy.data.startswith(b"b" * 500 + b"m" * 100)
    assert copy.data.endswith(b"m" * 50 + b"e" * 100)
    assert copy.times[-1] == (len(copy.data) - 100, 1120.0)

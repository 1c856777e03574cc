"""A log that is read again from its beginning goes on where its file ends: no byte twice, none left out unsaid."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.errors import Unavailable
from federator.kube.api import Api
from federator.retry import Backoff
from federator_agent.kube import log_follower
from federator_agent.kube.log_follower import HEAD_BYTES, KUBELET_SAYS, TAIL_BYTES, LogFollower, _Splice

LOG = b"".join(b"line %d\n" % number for number in range(3000))


def read(file: Path, log: bytes, step: int = 1000) -> bytes:
    """Read a log from its beginning, in pieces; the file afterwards."""
    splice = _Splice(file)
    with file.open("ab") as target:
        for start in range(0, len(log), step):
            target.write(splice.take(log[start : start + step]))
        target.write(splice.end())
    return file.read_bytes()


@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=5), step=st.integers(1, 9000))
def test_cuts_anywhere_lose_and_repeat_nothing(tmp_path_factory: object, cuts: list[int], step: int) -> None:
    file = tmp_path_factory.mktemp("log") / "log"  # type: ignore[attr-defined]
    file.touch()
    for cut in sorted(cuts):
        assert read(file, LOG[:cut], step) == LOG[:cut]
    assert read(file, LOG, step) == LOG


def test_a_shorter_look_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(LOG)
    assert read(file, LOG[:5000]) == LOG
    assert read(file, b"") == LOG


def test_what_was_rotated_goes_on_after_the_files_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(LOG[: 3 * HEAD_BYTES])
    assert read(file, LOG[2 * HEAD_BYTES :]) == LOG


def test_a_gap_is_said(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(LOG[:HEAD_BYTES])
    after = LOG[HEAD_BYTES + 2 * TAIL_BYTES :]
    found = read(file, after)
    assert found.startswith(LOG[:HEAD_BYTES])
    assert found.endswith(after)
    assert b"a part of this log was dropped at its node" in found


class GivenLog:
    """An API server that has this to say of a log."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[Any]:
        yield self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body


@pytest.mark.parametrize("words", KUBELET_SAYS)
async def test_what_a_kubelet_says_in_place_of_a_log_is_not_taken_for_one(
    tmp_path: Path, words: bytes
) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"second\n")
    follower = LogFollower(cast("Api", GivenLog(words + b" something")), "/pod", file)
    follower.over.set()
    await follower.run()
    assert file.read_bytes().startswith(b"second\n\n[federator: the rest of this log could not be fetched")
    assert file.read_bytes().count(words) == 1


async def test_of_a_command_that_wrote_nothing_there_is_an_empty_log(tmp_path: Path) -> None:
    file = tmp_path / "rank" / "log"
    await LogFollower(cast("Api", GivenLog(b"")), "/pod", file).finish()
    assert file.read_bytes() == b""


class Server:
    """An API server that is away for so many requests, and then has a log, or a node that does not give it."""

    def __init__(self, away: int, *, silent_node: bool = False) -> None:
        self.away, self.silent_node, self.asked = away, silent_node, 0

    def _ask(self) -> None:
        self.away -= 1
        if self.away >= 0:
            raise Unavailable("the API server cannot be reached")

    async def ask(self, _method: str, path: str) -> bytes:
        assert path == "/pods/p-0"
        self._ask()
        return b""

    @asynccontextmanager
    async def stream(self, path: str, _query: Any, *, silence_s: float) -> AsyncIterator[Any]:
        assert (path, silence_s > 0) == ("/pods/p-0/log", True)
        self._ask()
        self.asked += 1
        if self.silent_node:
            raise Unavailable("the kubelet does not answer")

        async def whole() -> AsyncIterator[bytes]:
            yield b"all of it\n"

        yield SimpleNamespace(iter_any=whole)


async def _finished(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(log_follower, "PAUSE_S", 0.0)
    monkeypatch.setattr(log_follower, "BACKOFF", Backoff(0.0, 0.0))
    follower = LogFollower(server, "/pods/p-0", folder / "log")  # type: ignore[arg-type]
    await follower.finish()
    return (folder / "log").read_text()


async def test_a_log_is_waited_for_as_long_as_the_api_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _finished(Server(10 * log_follower.TRIES_AT_END), tmp_path, monkeypatch) == "all of it\n"


async def test_the_log_of_a_silent_node_is_given_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(0, silent_node=True)
    said = await _finished(server, tmp_path, monkeypatch)
    assert "could not be fetched: the kubelet does not answer" in said
    assert server.asked == log_follower.TRIES_AT_END

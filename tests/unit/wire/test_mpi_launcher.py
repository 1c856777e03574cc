"""Who may take part in an `mpi` gang: its ranks, and nobody else who reaches the port or has taken it before rank 0 did. `mpirun` is a stand-in; the real one is tried in `tests/integration/agent/test_launchers.py`."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.meetings import ATTACKS, JUNK, OTHER, SECRET, Gang, ended, hung_up

HIDDEN = """python3 -c '
import glob, os
texts = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        texts.append(open(path, "rb").read())
    except OSError:
        pass
print("seen" if any(os.environ["FEDERATOR_GANG_SECRET"].encode() in text for text in texts) else "hidden")
'"""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    found = Gang(tmp_path)
    yield found
    for each in found.running:
        each.kill()
        each.communicate()


# Among themselves -----------------------------------------------------------------------------------------------------


def test_ranks_with_one_secret_run_what_mpirun_starts(gang: Gang) -> None:
    gang.starts("echo on $FEDERATOR_NODE_RANK; exit 7")
    first, second = gang.rank(0), gang.rank(1)
    assert ended(first) == (7, "", "")
    assert ended(second) == (0, "on 1\n", "")


def test_the_secret_is_in_no_command_line(gang: Gang) -> None:
    gang.starts(HIDDEN)
    gang.rank(0)
    assert ended(gang.rank(1)) == (0, "hidden\n", "")


@pytest.mark.parametrize("secret", [OTHER, ""], ids=["another", "none"])
def test_a_rank_without_the_secret_is_refused_and_both_sides_say_so(gang: Gang, secret: str) -> None:
    gang.starts("echo on")
    first = gang.rank(0, limits="60, 20")
    gang.connect().close()
    code, out, err = ended(gang.rank(1, secret, limits="1, 1"))
    assert (code, out) == (1, "")
    assert "is not rank 0 of this gang, or does not take us for one of it: it has hung up" in err
    assert f"rank 0 was not met at 127.0.0.1:{gang.port} within 1 s" in err
    assert "Traceback" not in err
    assert ended(gang.rank(1)) == (0, "on\n", "")
    code, _, err = ended(first)
    assert code == 0
    assert "a peer from 127.0.0.1 is refused: it does not know the secret of this gang" in err


def test_a_gang_that_does_not_meet_says_who_was_there(gang: Gang) -> None:
    code, out, err = ended(gang.rank(0, limits="0.5, 1"))
    assert (code, out) == (1, "")
    assert err == "federator: only rank-0 of 2 ranks have met within 0.5 s\n"


def test_ranks_that_were_given_no_secret_work_and_say_what_that_means(gang: Gang) -> None:
    """Of an older agent, or of several."""
    gang.starts("echo on")
    first, second = gang.rank(0, ""), gang.rank(1, "")
    code, out, err = ended(second)
    assert (code, out) == (0, "on\n")
    assert f"this gang has no secret, as its ranks are at several agents or its agent is an older one: whoever reaches 127.0.0.1:{gang.port} can take part in it" in err  # fmt: skip
    assert ended(first)[0] == 0


# Strangers at rank 0 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_stranger_is_hung_up_on_and_the_gang_meets_all_the_same(gang: Gang, attack: Any) -> None:
    gang.starts("echo on")
    first = gang.rank(0, limits="60, 2")
    with gang.connect() as stranger:
        with suppress(OSError):  # it may hang up in the middle
            attack(stranger)
        assert hung_up(stranger)
    second = gang.rank(1)
    assert ended(second) == (0, "on\n", "")
    code, _, err = ended(first)
    assert code == 0
    assert err.count("is refused") == 1
    assert len(err) < 1000, "what strangers say is not repeated"


def test_a_stranger_who_dribbles_is_hung_up_on_in_time(gang: Gang) -> None:
    gang.rank(0, limits="60, 1")
    with gang.connect() as stranger:
        done = threading.Event()

        def dribble() -> None:
            with suppress(OSError):
                while not done.wait(0.1):
                    stranger.sendall(b"x")

        threading.Thread(target=dribble, daemon=True).start()
        assert hung_up(stranger)
        done.set()


def test_many_strangers_who_say_nothing_push_out_each_other_and_not_the_ranks(gang: Gang) -> None:
    gang.starts("echo on")
    first = gang.rank(0, limits="60, 50")
    strangers = [gang.connect() for _ in range(150)]
    try:
        assert ended(gang.rank(1)) == (0, "on\n", "")
        code, _, err = ended(first)
        assert code == 0
        assert err.count("is refused") == 10, "the log is not filled by strangers"
        assert err.count("(no more such lines)") == 1
    finally:
        for each in strangers:
            each.close()


# Somebody in rank 0's place, or in between ----------------------------------------------------------------------------


class Between:
    """Listens at one port and passes all on to another, keeping what it hears."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.server = socket.create_server(("127.0.0.1", port))
        self.heard: dict[str, bytes] = {"there": b"", "back": b""}
        self._target = target
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            for way, source, sink in (("there", near, far), ("back", far, near)):
                threading.Thread(target=self._pass, args=(way, source, sink), daemon=True).start()

    def _pass(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.heard[way] += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def recorded(gang: Gang, folder: Path) -> Mapping[str, bytes]:
    """All that a rank 1 and its rank 0 say to each other."""
    first, far = gang.rank(0), Gang(folder)
    gang.connect().close()
    between = Between(far.port, gang.place)
    far.folder = gang.folder
    second = far.rank(1)
    try:
        assert ended(second)[0] == 0
        assert ended(first)[0] == 0
    finally:
        far.running.clear()
        between.server.close()
    return between.heard


def test_what_was_said_once_is_worth_nothing_later(gang: Gang, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    gang.starts(f"echo ran >>{mark}")
    heard = recorded(gang, tmp_path)
    assert mark.read_text() == "ran\n"
    assert SECRET.encode() not in heard["there"] + heard["back"]

    again = gang.rank(0, limits="2, 1")
    with gang.connect() as stranger:  # in rank 1's place
        stranger.sendall(heard["there"])
        assert hung_up(stranger)
    assert ended(again)[0] == 1

    with socket.create_server(gang.place) as squatter:  # in rank 0's
        second = gang.rank(1, limits="1, 1")
        peer, _ = squatter.accept()
        with peer, suppress(OSError):
            peer.sendall(heard["back"])
            peer.settimeout(5)
            hung_up(peer)
        squatter.close()
        code, out, err = ended(second)
    assert (code, out) == (1, "")
    assert "it does not know the secret of this gang" in err
    assert mark.read_text() == "ran\n", "nothing was run again"


@pytest.mark.parametrize("answer", [JUNK, b"", b'hello\n0 ""\n0 "touch mark"\n'])
def test_a_squatter_is_not_believed_and_does_not_hold_a_rank_up(
    gang: Gang, tmp_path: Path, answer: bytes
) -> None:
    gang.starts("echo on")
    with socket.create_server(gang.place) as squatter:
        second = gang.rank(1, limits="60, 2")
        peer, _ = squatter.accept()
        with suppress(OSError):
            peer.sendall(answer)
        peer.settimeout(5)
        assert hung_up(peer)
        peer.close()
    first = gang.rank(0)
    code, out, err = ended(second)
    assert (code, out) == (0, "on\n")
    assert "is not rank 0 of this gang" in err
    assert ended(first)[0] == 0
    assert not (tmp_path / "mark").exists()


def test_a_rank_0_whose_port_is_taken_says_so(gang: Gang) -> None:
    with socket.create_server(gang.place):
        code, out, err = ended(gang.rank(0))
    assert (code, out) == (1, "")
    assert f"rank 0 cannot listen at 127.0.0.1:{gang.port}, where the others look for it: " in err
    assert "Traceback" not in err

"""Who may take part in an `mpi` gang: its ranks, and nobody else who reaches the port or has taken it before rank 0 did. `mpirun` is a stand-in; the real one is tried in `tests/integration/agent/test_launchers.py`."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from federator.wire.jobfile import read_job
from tests.support.waiting import PATIENCE_S

SECRET = "5" * 64
OTHER = "6" * 64
JUNK = b"x" * (1 << 20)
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


def program(limits: str = "10, 5") -> list[str]:
    """What each rank runs. `limits`: for the meeting, and for a proof."""
    spec = read_job({"run": "train", "nodes": 2, "framework": "mpi"}, now=0.0).spec
    python, option, text, *words = spec.launch or ()
    changed = text.replace("MEET_S, PROVE_S = 300, 10", f"MEET_S, PROVE_S = {limits}")
    assert changed != text
    return [python, option, changed, *words]


class Gang:
    """Two ranks of one host, with a stand-in for mpirun that starts one command on rank 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.place = ("127.0.0.1", self.port)
        self.running: list[subprocess.Popen[str]] = []

    def variables(self, rank: int, secret: str) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "FEDERATOR_NODE_RANK": str(rank),
            "FEDERATOR_NUM_NODES": "2",
            "FEDERATOR_GPUS_PER_NODE": "0",
        } | ({"FEDERATOR_GANG_SECRET": secret} if secret else {})

    def starts(self, command: str) -> None:
        """What mpirun starts on rank 1; it ends with its code."""
        (self.folder / "remote").write_text(command)
        mpirun = self.folder / "mpirun"
        mpirun.write_text(
            f'#!/bin/sh\n[ "$1" != --version ] || exit 0\nexec "$PRTE_MCA_plm_ssh_agent" -x rank-1 sh {self.folder}/remote\n'
        )
        mpirun.chmod(0o755)

    def rank(self, rank: int, secret: str = SECRET, limits: str = "10, 5") -> subprocess.Popen[str]:
        found = subprocess.Popen(
            program(limits),
            env=self.variables(rank, secret),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(found)
        return found

    def connect(self) -> socket.socket:
        """To rank 0, as soon as it listens."""
        for _ in range(200):
            with suppress(OSError):
                return socket.create_connection(self.place, 5)
            time.sleep(0.05)
        raise AssertionError("rank 0 does not listen")


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    found = Gang(tmp_path)
    yield found
    for each in found.running:
        each.kill()
        each.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side has ended it, or does within the socket's limit."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


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


def silent(connection: socket.socket) -> None:
    del connection


def junk(connection: socket.socket) -> None:
    connection.sendall(JUNK)


def impostor(connection: socket.socket) -> None:
    connection.sendall(b"0" * 64 + b' {"rank": 1, "host": "evil", "challenge": ""}\n')


def empty_proof(connection: socket.socket) -> None:
    connection.sendall(b"\n")


def not_ascii(connection: socket.socket) -> None:
    connection.sendall(b"\xff\xfe {}\n")


@pytest.mark.parametrize("attack", [silent, junk, impostor, empty_proof, not_ascii])
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

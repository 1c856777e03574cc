"""How the ranks of `tensorflow` meet: as those of `mpi` do, whoever else connects; and the port that each has named is its own until TensorFlow takes it."""

import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.meetings import ATTACKS, JUNK, OTHER, Gang, ended, hung_up

SHOW = 'echo "$TF_CONFIG"'
# What TensorFlow's server does, and what others who look for a port do.
SERVE = """python3 -c '
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
mine = config["cluster"]["worker"][config["task"]["index"]]
port = int(mine.rpartition(":")[2])
stranger = socket.socket()
try:
    stranger.bind(("", port))
    print("anybody can take it")
except OSError:
    with socket.create_server(("", port)):
        print("mine")
'"""


def gang_of(folder: Path, run: str) -> Iterator[Gang]:
    found = Gang(folder, "tensorflow", run)
    yield found
    for each in found.running:
        each.kill()
        each.communicate()


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    yield from gang_of(tmp_path, SHOW)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Gang]:
    yield from gang_of(tmp_path, SERVE)


def met(first: tuple[int, str, str], second: tuple[int, str, str]) -> None:
    """Both know where both are."""
    assert [first[0], second[0]] == [0, 0], (first, second)
    configs = [json.loads(out) for _, out, _ in (first, second)]
    assert [each["task"]["index"] for each in configs] == [0, 1]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2


def test_ranks_learn_of_each_other(gang: Gang) -> None:
    first, second = gang.rank(0), gang.rank(1)
    met(ended(first), ended(second))


def test_a_port_is_kept_for_its_rank(serving: Gang) -> None:
    first, second = serving.rank(0), serving.rank(1)
    assert [ended(first), ended(second)] == [(0, "mine\n", "")] * 2


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_stranger_is_hung_up_on_and_the_ranks_meet_all_the_same(gang: Gang, attack: Any) -> None:
    first = gang.rank(0, limits="60, 2")
    with gang.connect() as stranger:
        with suppress(OSError):  # it may hang up in the middle
            attack(stranger)
        assert hung_up(stranger)
    second = ended(gang.rank(1))
    found = ended(first)
    met(found, second)
    assert found[2].count("is refused") == 1


def test_a_silent_stranger_does_not_hold_rank_0_beyond_its_limit(gang: Gang) -> None:
    first = gang.rank(0, limits="0.5, 30")
    with gang.connect():
        code, out, err = ended(first)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "federator: only rank-0 of 2 ranks have met within 0.5 s"


def test_a_rank_with_another_secret_is_refused_and_the_right_one_waited_for(gang: Gang) -> None:
    first = gang.rank(0, limits="60, 20")
    gang.connect().close()
    code, out, err = ended(gang.rank(1, OTHER, limits="1, 1"))
    assert (code, out) == (1, "")
    assert "is not rank 0 of this gang, or does not take us for one of it" in err
    second = ended(gang.rank(1))
    met(ended(first), second)


@pytest.mark.parametrize("answer", [JUNK, b"", b'hello\n0 ""\n0 ["evil:1"]\n'])
def test_whoever_has_taken_rank_0s_port_is_not_believed(gang: Gang, answer: bytes) -> None:
    with socket.create_server(gang.place) as squatter:
        second = gang.rank(1, limits="60, 2")
        peer, _ = squatter.accept()
        with peer, suppress(OSError):
            peer.sendall(answer)
            peer.settimeout(5)
            hung_up(peer)
    first = gang.rank(0)
    met(ended(first), ended(second))


# Without a secret, where anybody's proof holds ------------------------------------------------------------------------


def say(connection: socket.socket, what: object) -> None:
    """As a rank that has been given no secret."""
    lines = connection.makefile("rb")
    challenge = lines.readline().strip()
    text = what if isinstance(what, bytes) else json.dumps(what).encode()
    proof = hmac.new(b"", b"\n".join([b"hello", challenge, text]), hashlib.sha256).hexdigest()
    connection.sendall(proof.encode() + b" " + text + b"\n")


@pytest.mark.parametrize(
    "said",
    [
        {"rank": 9, "port": 1, "challenge": ""},
        {"rank": 0, "port": 1, "challenge": ""},
        {"rank": "1", "port": 1, "challenge": ""},
        {"rank": 1, "port": 70000, "challenge": ""},
        {"rank": 1, "port": None, "challenge": ""},
        {"rank": 1, "port": 1},
        {"run": "rank-1", "challenge": ""},
        [1],
        b"[" * 2000,
        b"not JSON",
    ],
    ids=lambda said: str(said)[:30],
)
def test_what_no_rank_would_say_is_refused_and_the_rank_waited_for(gang: Gang, said: object) -> None:
    first = gang.rank(0, "", limits="60, 5")
    with gang.connect() as stranger:
        say(stranger, said)
        assert hung_up(stranger)
    second = ended(gang.rank(1, ""))
    found = ended(first)
    met(found, second)
    assert found[2].count("is refused") == 1
    assert "whoever reaches" in found[2]

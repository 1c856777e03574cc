"""Whose port it is: what a process says of itself is not believed alone."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from federator_agent.local import traces

LISTEN = """import socket, sys
l = socket.create_server((sys.argv[1], int(sys.argv[2]))); print(l.getsockname()[1], flush=True); sys.stdin.read()"""


@contextmanager
def listening(directory: Path, address: str = "127.0.0.1", above: Path | None = None) -> Iterator[int]:
    """A process that says it is of that rank; `above`: of which the one is that starts it."""
    words = [sys.executable, "-c", LISTEN, address, "0"]
    if above is not None:
        words = ["/bin/sh", "-c", f'{traces.MARK}={directory} "$@"; exit', "sh", *words]
    with subprocess.Popen(
        words,
        env=os.environ | {traces.MARK: str(above or directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def test_a_port_of_a_rank_is_found(tmp_path: Path) -> None:
    for address in ("127.0.0.1", "0.0.0.0"):
        with listening(tmp_path, address) as port:
            assert traces.listens([tmp_path], port)


def test_one_of_another_address_is_none(tmp_path: Path) -> None:
    with listening(tmp_path, "127.0.0.2") as port:
        assert not traces.listens([tmp_path], port)
        with socket.create_server(("127.0.0.1", port)):
            assert not traces.listens([tmp_path], port)


def test_what_another_rank_started_is_not_believed(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with listening(one, above=one) as port:
        assert traces.listens([one], port)
    with listening(one, above=other) as port:
        assert not traces.listens([one], port)


def test_who_is_not_in_the_group_of_a_rank_is_not_of_it(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.procs").write_text("0\n")
    (tmp_path / "cgroups").write_text(f"{group}\n")
    with listening(tmp_path) as port:
        assert not traces.listens([tmp_path], port)
        (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in traces.processes(tmp_path)))
        assert traces.listens([tmp_path], port)

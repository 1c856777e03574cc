"""Into jobs at clusters with the command: a terminal that outlives its client, commands, files both ways, a port, and ssh."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.integration.command.conftest import Federation
from tests.integration.command.test_tunnels import Terminal, piped
from tests.support.waiting import PATIENCE_S, wait_until

CLUSTERS = ("slurm-a", "kube")
NAME = "entered"
"""Of the jobs that are entered; they write down nothing for the judge."""
_PYTHON = (
    'import socketserver as s; t = s.TCPServer(("127.0.0.1", 0), type("Loud", (s.BaseRequestHandler,), '
    '{"handle": lambda own: own.request.sendall(own.request.recv(100).upper())})); '
    "print(t.server_address[1], flush=True); t.serve_forever()"
)
_SERVE = f"""if python3 -c pass; then python3 -c '{_PYTHON}' >port & else
echo 4711 >port; nc -ll -p 4711 -e /bin/sh -c 'head -c 5 | tr a-z A-Z' & fi
COLOUR=green; echo a-$((6 * 7))
"""


class Inside(NamedTuple):
    """What came of it: exit codes, and what was said."""

    executed: tuple[int, bytes, bytes]
    copied_out: str
    copied_in: str
    answered: bytes
    by_ssh: tuple[int, bytes]
    left_with: int
    """The exit code of its terminal, to which somebody else had attached."""


def enter(home: Path, environ: dict[str, str], site: str) -> Inside:
    """Start a job with a terminal at that site, and try every way into it, as somebody whose home is this folder."""
    home.mkdir()
    whose = {"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    person, job = Federation(home, environ | whose, []), f"{NAME}-{site}"
    first = Terminal(person, "run", "-q", "-t", "--name", job, "--site", site, "--cpus", "0.1", "--", "sh")
    first.type(_SERVE)
    first.sees("a-42")
    os.kill(first.pid, signal.SIGKILL)
    os.waitpid(first.pid, 0)
    script = "cat; echo $FEDERATOR_SITE >there; echo wrong >&2; exit 7"
    executed = piped(person, b"from here\n", "exec", job, "--", "sh", "-c", script)
    copied = person.run("copy", f"{job}:there", str(home))
    (home / "mine").write_text("mine\n")
    person.run("copy", str(home / "mine"), f"{job}:")
    copied_in = person.run("exec", "-n", job, "--", "cat", "mine")
    port = person.run("exec", "-n", job, "--", "sh", "-c", "until [ -s port ]; do sleep 0.1; done; cat port")
    answers: list[bytes] = []

    def answered() -> bool:
        answers.append(piped(person, b"shout", "port-forward", "--stdio", job, port.stdout.strip()).stdout)
        return bool(answers[-1])

    wait_until(answered, "an answer from the job's port")
    person.run("ssh-config", "--install", job)
    words = ["ssh", "-F", str(home / ".ssh/config"), f"{job}.federator", "cat; exit 9"]
    shell = subprocess.run(
        words, env=person.environ, input=b"by ssh\n", capture_output=True, timeout=PATIENCE_S, check=False
    )
    again = Terminal(person, "attach", job)
    again.sees("a-42")
    again.type("echo $COLOUR-$((6 * 9)); kill $!; exit 5\n")
    again.sees("green-54")
    return Inside(
        executed=(executed.returncode, executed.stdout, executed.stderr),
        copied_out=(home / "there").read_text() if copied.returncode == 0 else copied.stderr,
        copied_in=copied_in.stdout,
        answered=answers[-1],
        by_ssh=(shell.returncode, shell.stdout),
        left_with=again.code(),
    )

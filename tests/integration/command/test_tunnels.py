"""Into a running job with the command: pipes and terminals, exit codes, ports; and that nothing of it outlives the job."""

import contextlib
import fcntl
import http.client
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.command.conftest import Federation
from tests.support.waiting import PATIENCE_S, wait_until

HOLD = "echo ready; until [ -e stop ]; do sleep 0.1; done"


@contextlib.contextmanager
def running(federation: Federation, run: str = HOLD, *words: str) -> Iterator[str]:
    """A job that has begun; cancelled at the end."""
    job = federation.run("run", "--detach", *words, "--", "sh", "-c", run).stdout.strip()
    wait_until(lambda: "ready" in federation.run("logs", job).stdout, "the job to begin")
    wait_until(lambda: "RUNNING" in federation.run("show", job).stdout, "the dispatcher to know")
    try:
        yield job
    finally:
        federation.run("cancel", job)
        federation.run("wait", job)


@pytest.fixture(scope="module")
def job(federation: Federation) -> Iterator[str]:
    with running(federation, HOLD, "--env", "COLOUR=green", "--gpus", "A100:2") as job:
        yield job


class Terminal:
    """A command in a terminal of its own, typed into."""

    def __init__(self, federation: Federation, *words: str) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            environ = federation.environ | {"TERM": "vt100"}
            os.execve(sys.executable, [sys.executable, "-m", "federator", *words], environ)
        self.said = ""
        self.resize(24, 80)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def sees(self, pattern: str) -> "re.Match[str]":
        """Wait until it has shown this; what came before is done with."""
        until = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < until, f"{pattern!r} is not in {self.said!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self._master, 65536).decode(errors="replace")
                except OSError:
                    assert re.search(pattern, self.said), f"{pattern!r} is not in {self.said!r}"
        self.said = self.said[found.end() :]
        return found

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def code(self) -> int:
        """Its exit code, once it has ended."""
        with contextlib.suppress(OSError):
            while os.read(self._master, 65536):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def piped(federation: Federation, given: bytes, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "federator", *words],
        env=federation.environ,
        input=given,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_input_output_errors_and_exit_code_pass(federation: Federation, job: str) -> None:
    script = "cat; echo $COLOUR $CUDA_VISIBLE_DEVICES; echo wrong >&2; exit 7"
    ran = piped(federation, b"from here\n", "exec", job, "--", "sh", "-c", script)
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"from here\ngreen 0,1\n", b"wrong\n")


def test_it_is_where_the_job_is(federation: Federation, job: str) -> None:
    assert federation.run("exec", "-n", job, "--", "touch", "made-inside").returncode == 0
    listed = federation.run("exec", "-n", job, "--", "ls")
    assert (listed.returncode, listed.stdout) == (0, "made-inside\n")


def test_many_bytes_come_and_go_whole(federation: Federation, job: str) -> None:
    given = os.urandom(5_000_000)
    ran = piped(federation, given, "exec", job, "--", "cat")
    assert (ran.returncode, ran.stdout == given) == (0, True)


def test_a_reader_that_has_enough_ends_it(federation: Federation, job: str) -> None:
    command = f"{sys.executable} -m federator exec -n {job} -- yes | head -1"
    ran = subprocess.run(
        ["sh", "-c", command], env=federation.environ, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (ran.stdout, ran.stderr) == (b"y\n", b"")


def test_a_command_that_is_not_there_and_one_that_a_signal_ends(federation: Federation, job: str) -> None:
    assert federation.run("exec", "-n", job, "--", "no-such-program").returncode == 127
    assert federation.run("exec", "-n", job, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_a_terminal_has_keys_size_and_exit_code(federation: Federation, job: str) -> None:
    shell = Terminal(federation, "exec", job, "--", "sh")
    shell.type("test -t 0 && test -t 2 && echo a-$((6 * 7))\n")
    shell.sees("a-42")
    shell.resize(33, 101)
    shell.type("until stty size | grep 33; do sleep 0.1; done; echo $TERM\n")
    shell.sees("33 101\r\nvt100")
    shell.type("sh -c 'echo beg\"\"ins; exec sleep 1000'\n")
    shell.sees("begins")
    shell.type("\x03")
    shell.type("echo code $?\n")
    shell.sees("code 130")
    shell.type("exit 9\n")
    assert shell.code() == 9


def test_a_terminal_that_hangs_is_left(federation: Federation, job: str) -> None:
    shell = Terminal(federation, "exec", job, "--", "sh")
    shell.type("stty -isig -echo; echo st''uck; cat >/dev/null\n")
    shell.sees("stuck")
    shell.type("\r~.")
    shell.sees("left")
    assert shell.code() == 4


def test_who_leaves_hangs_up(federation: Federation, job: str) -> None:
    with federation.start("exec", "-n", job, "--", "sh", "-c", "echo $$; exec sleep 4711") as client:
        assert client.stdout is not None
        client.stdout.readline()
        client.send_signal(signal.SIGKILL)

    def gone() -> bool:
        return "4711" not in federation.run("exec", "-n", job, "--", "sh", "-c", "ps ax").stdout

    wait_until(gone, "the command to end")


def test_it_ends_with_the_job(federation: Federation) -> None:
    with running(federation) as job:
        words = ("exec", "-n", job, "--", "sh", "-c", "trap '' HUP TERM; echo in; sleep 4712")
        with federation.start(*words) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "in\n"
            federation.run("cancel", job)
            assert client.wait(PATIENCE_S) != 0
    running_now = subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True).stdout
    assert "sleep 4712" not in running_now


def test_what_does_not_run_is_not_entered(federation: Federation, job: str) -> None:
    ended = federation.run("run", "--detach", "--", "true").stdout.strip()
    federation.run("wait", ended)
    refused = federation.run("exec", "-n", ended, "--", "true")
    assert (refused.returncode, refused.stdout) == (6, "")
    assert "only a running job can be entered" in refused.stderr
    refused = federation.run("exec", "-n", "--rank", "3", job, "--", "true")
    assert (refused.returncode, "has rank 0 only" in refused.stderr) == (2, True)


def test_the_timeline_says_who_was_in(federation: Federation, job: str) -> None:
    federation.run("exec", "-n", job, "--", "sh", "-c", "exit 3 # secret")
    shown = federation.run("show", job).stdout
    assert "admin opened 'sh' in rank 0" in " ".join(shown.split())
    assert "exit code 3" in " ".join(shown.split())
    assert "secret" not in shown


def test_files_are_copied_out_and_in(federation: Federation, job: str, tmp_path: Path) -> None:
    script = "rm -rf here; mkdir -p 'a b/deep'; echo one >'a b/deep/x'; ln -sf deep/x 'a b/link'; chmod +x 'a b/deep/x'; echo two >y"
    assert federation.run("exec", "-n", job, "--", "sh", "-c", script).returncode == 0
    copied = federation.run("copy", f"{job}:a b", "here", cwd=tmp_path)
    assert (copied.returncode, copied.stdout) == (0, "here\n")
    assert ((tmp_path / "here/deep/x").read_text(), (tmp_path / "here/link").readlink()) == (
        "one\n",
        Path("deep/x"),
    )
    assert os.access(tmp_path / "here/deep/x", os.X_OK)
    assert federation.run("copy", f"{job}:y", str(tmp_path)).returncode == 0
    assert (tmp_path / "y").read_text() == "two\n"
    (tmp_path / "here/new").write_bytes(os.urandom(3_000_000))
    assert federation.run("copy", str(tmp_path / "here"), f"{job}:").returncode == 0
    assert federation.run("copy", str(tmp_path / "y"), f"{job}:here/z").returncode == 0
    listed = federation.run(
        "exec", "-n", job, "--", "sh", "-c", "cat here/z here/link; cksum <here/new; ls -A"
    )
    ours = subprocess.run(
        ["cksum"], input=(tmp_path / "here/new").read_bytes(), capture_output=True, check=True
    )
    assert listed.stdout.startswith(f"two\none\n{ours.stdout.decode()}")
    assert ".federator-copy" not in listed.stdout
    again = federation.run("copy", str(tmp_path / "here"), f"{job}:")
    assert (again.returncode, "has a folder here already" in again.stderr) == (6, True)
    again = federation.run("copy", f"{job}:here", str(tmp_path))
    assert (again.returncode, "there is a folder" in again.stderr) == (6, True)
    assert federation.run("copy", f"{job}:none", str(tmp_path)).returncode == 3
    nowhere = federation.run("copy", f"{job}:y", f"{tmp_path}/no/")
    assert (nowhere.returncode, f"there is no folder {tmp_path}/no" in nowhere.stderr) == (2, True)
    assert federation.run("copy", "a", "b").returncode == 2


def test_outputs_are_fetched_as_far_as_they_are_while_the_job_runs(
    federation: Federation, tmp_path: Path
) -> None:
    script = (
        "mkdir -p 'out put/deep'; echo 1 >'out put/deep/a'; echo no >left; ln -s /etc/hostname 'out put/link'; "
        + HOLD
    )
    with running(federation, script, "--name", "half", "--outputs", "out put/**") as job:
        got = federation.run("download", "half", cwd=tmp_path)
        assert (got.returncode, got.stdout) == (0, "half-partial/out put/deep/a\n"), got.stderr
        assert "half runs; its outputs are as far as they are now" in got.stderr
        assert (tmp_path / "half-partial/out put/deep/a").read_text() == "1\n"
        script = "echo 2 >'out put/deep/b'"
        federation.run("exec", "-n", job, "--", "sh", "-c", script)
        again = federation.run("download", job, "--into", str(tmp_path / "half-partial"), cwd=tmp_path)
        assert again.stdout.splitlines() == ["half-partial/out put/deep/a", "half-partial/out put/deep/b"]
    assert [path.name for path in (tmp_path / "half-partial").iterdir()] == ["out put"]


def test_what_a_job_sends_stays_where_it_belongs(federation: Federation, tmp_path: Path) -> None:
    """A job may bring a `tar` of its own."""
    inside = "i=tarfile.TarInfo('ok/../../out'); i.size=1; t.addfile(i, io.BytesIO(b'x')); t.close()"
    (tmp_path / "tar").write_text(
        f"#!/usr/bin/env python3\nimport tarfile, io, sys\nt=tarfile.open(fileobj=sys.stdout.buffer, mode='w|gz'); {inside}\n"
    )
    (tmp_path / "tar").chmod(0o755)
    with running(
        federation, f"mkdir bin ok; {HOLD}", "--env", "PATH=bin:/usr/local/bin:/usr/bin:/bin"
    ) as job:
        assert federation.run("copy", str(tmp_path / "tar"), f"{job}:bin/").returncode == 0
        (tmp_path / "in").mkdir()
        copied = federation.run("copy", f"{job}:ok", str(tmp_path / "in"))
        assert (copied.returncode, "is not unpacked: ok/../../out" in copied.stderr) == (2, True), (
            copied.stderr
        )
        assert sorted(each.name for each in tmp_path.rglob("*")) == ["in", "tar"]


def test_a_port_is_reached_and_only_one_of_the_job(federation: Federation) -> None:
    serve = (
        "echo hello > hello; exec python3 -u -c 'import http.server as h, socketserver as s\n"
        's=s.ThreadingTCPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler)\n'
        'print("port", s.server_address[1], "ready", flush=True); s.serve_forever()\''
    )
    with running(federation, serve) as job:
        port = re.search(r"port (\d+)", federation.run("logs", job).stdout)
        assert port
        with federation.start("port-forward", job, f":{port[1]}") as forward:
            assert forward.stdout is not None
            name, _, port_here = forward.stdout.readline().split()[0].rpartition(":")
            assert name == "localhost", "the dispatcher is at 127.0.0.1"
            local = int(port_here)
            for _ in range(3):
                web = http.client.HTTPConnection("127.0.0.1", local, timeout=PATIENCE_S)
                web.request("GET", "/hello")
                assert web.getresponse().read() == b"hello\n"
                web.close()
            given = b"GET /hello HTTP/1.0\r\n\r\n"
            through = piped(federation, given, "port-forward", "--stdio", job, port[1])
            assert through.stdout.endswith(b"hello\n")
            forward.send_signal(signal.SIGINT)
            assert forward.wait(PATIENCE_S) == 130
        api = federation.environ["FEDERATOR_STATE_DIR"]
        other = (Path(api) / "address").read_text().strip().rpartition(":")[2]
        refused = piped(federation, b"", "port-forward", "--stdio", job, other)
        assert refused.returncode == 6
        assert f"nothing of the job listens on port {other}" in refused.stderr.decode()


def test_run_passes_its_input_where_it_is_asked_to_and_else_says_that_it_does_not(
    federation: Federation,
) -> None:
    ran = piped(federation, b"hi\n", "run", "-q", "-i", "--", "sh", "-c", "cat; echo wrong >&2; exit 3")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, b"hi\n", b"wrong\n")
    ran = piped(federation, b"hi\n", "run", "-q", "--", "cat")
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert b"standard input was not passed to the job: add --stdin" in ran.stderr


def test_run_in_a_terminal(federation: Federation) -> None:
    shell = Terminal(federation, "run", "-q", "-t", "--name", "shell", "--", "sh")
    shell.type("test -t 0 && echo a-$((6 * 7))\n")
    shell.sees("a-42")
    shell.type("exit 5\n")
    assert shell.code() == 5
    assert "FAILED" in federation.run("show", "shell").stdout


def test_a_terminal_outlives_its_client_and_is_attached_to_again(federation: Federation) -> None:
    shell = Terminal(federation, "run", "-q", "-t", "--name", "kept", "--", "sh")
    shell.type("echo a-$((6 * 7)); COLOUR=green\n")
    shell.sees("a-42")
    os.kill(shell.pid, signal.SIGKILL)
    os.waitpid(shell.pid, 0)
    second = Terminal(federation, "attach", "kept")
    second.sees("a-42")
    second.type("echo $COLOUR-$((6 * 9))\n")
    second.sees("green-54")
    third = Terminal(federation, "attach", "kept")
    third.sees("green-54")
    second.sees("another terminal has attached")
    assert second.code() == 6
    third.type("\r~.")
    third.sees("the command goes on")
    assert third.code() == 4
    assert "is not a terminal" in federation.run("attach", "kept").stderr
    last = Terminal(federation, "attach", "kept")
    last.type("exit 7\n")
    assert last.code() == 7
    assert federation.run("wait", "kept").returncode == 7


def test_of_a_job_without_a_terminal_the_output_is_attached_to(federation: Federation) -> None:
    with running(federation, f"{HOLD}; echo over; exit 5") as job:
        with federation.start("attach", job) as attached:
            assert attached.stdout is not None
            assert attached.stdout.readline() == "ready\n"
            federation.run("exec", "-n", job, "--", "touch", "stop")
            out, err = attached.communicate(timeout=PATIENCE_S)
        assert (attached.returncode, out) == (5, "over\n")
        assert "has no terminal: this is its output" in err


def test_a_run_whose_client_is_gone_ends(federation: Federation) -> None:
    with federation.start(
        "run", "-q", "-i", "--name", "left", "--", "sh", "-c", "echo in; sleep 600"
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "in\n"
        client.send_signal(signal.SIGKILL)
    assert federation.run("wait", "left").returncode == 129

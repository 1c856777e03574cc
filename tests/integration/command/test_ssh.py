"""Running jobs as hosts of the ssh of this machine."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.command.conftest import Federation
from tests.integration.command.test_tunnels import HOLD, piped, running
from tests.support.waiting import PATIENCE_S, wait_until
from tests.testbeds.required import need

HOST = "editor-work.federator"


@pytest.fixture(scope="module")
def job(federation: Federation) -> Iterator[str]:
    need("" if shutil.which("ssh") else "ssh is not installed (Debian: openssh-client)")
    with running(
        federation, HOLD, "--env", "COLOUR=green", "--gpus", "A100:2", "--name", "editor-work"
    ) as job:
        wrote = federation.run("ssh-config", "--install", "editor-work")
        assert (wrote.returncode, wrote.stdout) == (0, f"{HOST}\n"), wrote.stderr
        yield job


def ssh(federation: Federation, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["ssh", "-F", str(federation.folder / ".ssh/config"), *words],
        env=federation.environ,
        input=given,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_command_runs_as_exec_runs_it(federation: Federation, job: str) -> None:
    ran = ssh(
        federation, HOST, "cat; echo $COLOUR $CUDA_VISIBLE_DEVICES; echo wrong >&2; exit 7", given=b"in\n"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"in\ngreen 0,1\n", b"wrong\n")
    there = ssh(federation, HOST, "pwd").stdout
    assert there == piped(federation, b"", "exec", job, "--", "pwd").stdout
    shown = " ".join(federation.run("show", "-o", "wide", job).stdout.split())
    assert "admin opened 'sh' in rank 0" in shown


def test_a_terminal_has_a_size_and_an_exit_code(federation: Federation, job: str) -> None:
    ran = ssh(federation, "-tt", HOST, given=b"test -t 0 && echo a-$((6 * 7)); exit 9\n")
    assert (ran.returncode, b"a-42" in ran.stdout) == (9, True)


def test_who_leaves_hangs_up_on_one_command_alone(federation: Federation, job: str, tmp_path: Path) -> None:
    shared = ("-o", f"ControlPath={tmp_path}/mux")
    master = subprocess.Popen(
        ["ssh", "-F", str(federation.folder / ".ssh/config"), *shared, "-M", "-N", HOST],
        env=federation.environ,
    )
    try:
        wait_until((tmp_path / "mux").exists, "the connection that is shared")
        with subprocess.Popen(
            ["ssh", *shared, HOST, "echo in; exec sleep 4713"], env=federation.environ, stdout=subprocess.PIPE
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"in\n"
            client.kill()
        wait_until(
            lambda: b"4713" not in ssh(federation, *shared, HOST, "ps ax").stdout, "the command to end"
        )
    finally:
        master.terminate()
        master.wait(PATIENCE_S)


def test_a_port_of_the_job_is_reached_and_no_other(federation: Federation, job: str) -> None:
    serving = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); print(s.server_port, flush=True); s.serve_forever()"
    with federation.start("exec", "-n", job, "--", "python3", "-c", serving) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        got = ssh(federation, "-W", f"127.0.0.1:{port}", HOST, given=b"HEAD / HTTP/1.0\r\n\r\n")
        server.terminate()
    assert got.stdout.startswith(b"HTTP/1.0 200")
    assert b"error" not in got.stderr
    ours = federation.environ["FEDERATOR_STATE_DIR"]
    dispatcher = (Path(ours) / "address").read_text().strip().rpartition(":")[2]
    refused = ssh(federation, "-W", f"127.0.0.1:{dispatcher}", HOST, given=b"HEAD / HTTP/1.0\r\n\r\n")
    assert (refused.stdout, b"federator: " in refused.stderr) == (b"", True)
    assert ssh(federation, "-W", "example.com:80", HOST).returncode != 0


def test_files_are_those_of_the_job(federation: Federation, job: str) -> None:
    """A library's own sftp would serve those of this machine."""
    before = federation.run("show", "-o", "wide", job).stdout.count("opened 'sh'")
    ssh(federation, "-s", HOST, "sftp")
    assert federation.run("show", "-o", "wide", job).stdout.count("opened 'sh'") == before + 1
    assert ssh(federation, "-s", HOST, "netconf").returncode == 255


def test_what_does_not_run_is_said(federation: Federation, job: str) -> None:
    ended = federation.run("run", "--detach", "--name", "was-short", "--", "true").stdout.strip()
    federation.run("wait", ended)
    entry = federation.run("ssh-config", ended)
    assert entry.stdout.startswith(f"Host {ended}.federator\n")
    answered = piped(federation, b"", "ssh-proxy", ended)
    assert (answered.returncode, b"this one is SUCCEEDED" in answered.stderr) == (6, True)
    assert federation.run("ssh-config", "there-is-none").returncode == 3

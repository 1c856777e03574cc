"""What the agent reads of processes that stand round a rank."""

import os
import subprocess
from pathlib import Path

import pytest

from federator_agent.local import traces
from tests.support.waiting import wait_until


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes process namespaces without a user namespace")
def test_a_namespace_is_told_once_something_was_started_in_it(tmp_path: Path) -> None:
    """Before that its launcher still makes the view of the file system: who enters then finds half of it."""
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do read -t 0.02 _; done </dev/zero; sleep 600 & wait"
    words = ["unshare", "--pid", "--fork", "--kill-child", "bash", "-c", waits]
    launcher = subprocess.Popen(words, env={**os.environ, traces.MARK: str(tmp_path)})
    try:
        wait_until(lambda: len(traces.processes(tmp_path)) == 2, "the namespace")
        assert traces.holder(tmp_path) is None
        go.touch()
        wait_until(lambda: traces.holder(tmp_path) is not None, "something in it")
        found = traces.holder(tmp_path)
        assert found in traces.processes(tmp_path)
        assert found != launcher.pid
    finally:
        launcher.kill()
        launcher.wait()


def test_a_process_is_not_overlooked_while_it_becomes_another_program(tmp_path: Path) -> None:
    """There is nothing to read of its environment in the middle of that: a rank that was just being started was taken for over, and ran beside the next attempt."""
    again = tmp_path / "again"
    again.write_text(f'[ "$1" -gt 800 ] || exec /bin/sh {again} $(($1 + 1))')
    process = subprocess.Popen(["/bin/sh", again, "0"], env={**os.environ, traces.MARK: str(tmp_path)})
    overlooked = looks = 0
    try:
        while process.poll() is None:
            found = traces.processes(tmp_path)
            if process.poll() is None:
                looks += 1
                overlooked += process.pid not in found
    finally:
        process.kill()
        process.wait()
    assert looks > 20
    assert not overlooked

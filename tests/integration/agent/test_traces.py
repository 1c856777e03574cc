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

"""What a job has written, by attempt, by time and by what is in it: a real dispatcher, a real agent, a job that fails first."""

import json
import re
from pathlib import Path

import pytest

from tests.integration.command.conftest import Federation

TRIES = """name: tries
retry: {on: [error], max: 1, backoff: 0s}
checkpoint: {grace: 5s}
run: |
  echo "step 1"; echo "loss nan" >&2
  mark=$FEDERATOR_CHECKPOINT_DIR/mark
  if [ -e $mark ]; then echo "step 2"; else touch $mark; echo "out of luck"; exit 3; fi
"""


@pytest.fixture
def tried(federation: Federation, tmp_path: Path) -> str:
    """A job whose first attempt has failed, and whose second has not."""
    (tmp_path / "job.yaml").write_text(TRIES)
    job = federation.run("submit", str(tmp_path / "job.yaml")).stdout.strip()
    assert federation.run("wait", job).returncode == 0
    return job


def test_each_attempt_has_its_log(federation: Federation, tried: str) -> None:
    first, second = "step 1\nloss nan\nout of luck\n", "step 1\nloss nan\nstep 2\n"
    assert federation.run("logs", tried).stdout == second
    assert federation.run("logs", tried, "--attempt", "1").stdout == first
    assert federation.run("logs", tried, "--attempt", "2", "-f").stdout == second
    assert federation.run("logs", tried, "--all").stdout == (
        f"==> attempt 1 at north: FAILED <==\n{first}\n==> attempt 2 at north: SUCCEEDED <==\n{second}"
    )
    missing = federation.run("logs", tried, "--attempt", "3")
    assert missing.returncode == 3
    assert "has no attempt 3" in missing.stderr
    assert "its attempts are 1, 2" in missing.stderr
    shown = federation.run("show", tried).stdout
    assert re.search(r"1 +FAILED +north .*exit code 3", shown)
    assert re.search(r"2 +SUCCEEDED +north", shown)


def test_only_some_lines_and_when_they_were_written(federation: Federation, tried: str) -> None:
    found = federation.run("logs", tried, "--all", "--grep", "^step", "--timestamps").stdout
    times = re.findall(r"^(\S+)[+-]\d\d:\d\d step \d$", found, re.MULTILINE)
    assert len(times) == 3, found
    assert times == sorted(times)
    assert (
        federation.run("logs", tried, "--since", "2020-01-01T00:00:00Z", "--tail", "1").stdout == "step 2\n"
    )
    assert not federation.run("logs", tried, "--since", "0s").stdout
    assert federation.run("logs", tried, "--since", "last week").returncode == 2


def test_how_the_last_attempt_failed_is_in_show(federation: Federation, tmp_path: Path) -> None:
    script = "for n in $(seq 30); do echo line $n; done; echo '\\033[31mValueError: no data' >&2; exit 9"
    (tmp_path / "job.yaml").write_text(json.dumps({"name": "fails", "run": script}))
    job = federation.run("submit", str(tmp_path / "job.yaml")).stdout.strip()
    assert federation.run("wait", job).returncode == 9
    shown = federation.run("show", job).stdout
    assert "ValueError: no data" in shown
    assert "\033" not in shown
    assert "line 30" in shown
    assert "line 5\n" not in shown
    assert f"federator logs {job} --attempt 1" in shown
    detail = json.loads(federation.run("show", job, "-o", "json").stdout)
    assert detail["attempts"][0]["exit_code"] == 9

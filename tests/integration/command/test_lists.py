"""Lists as a person reads them and as a program does, and an array that follows another task by task, with everything real."""

import csv
import io
import os
import signal

import pytest

from tests.integration.command.conftest import Federation
from tests.integration.command.test_tunnels import Terminal


@pytest.fixture(scope="module")
def arrays(federation: Federation) -> None:
    """Of the first array one task fails; the second follows it task by task."""
    first = ("--name", "prepare", "--array", "0-1", "--", "sh", "-c", "exit $FEDERATOR_ARRAY_INDEX")
    assert federation.run("run", "--detach", *first).returncode == 0
    second = ("--name", "follow", "--array", "0-1", "--after", "each:prepare", "--priority", "60")
    assert federation.run("run", "--detach", *second, "--", "true").returncode == 0
    assert federation.run("wait", "follow").returncode != 0


def _rows(federation: Federation, *words: str) -> list[dict[str, str]]:
    listed = federation.run("list", "-o", "csv", "--limit", "1000", *words)
    assert listed.returncode == 0, listed.stderr
    return list(csv.DictReader(io.StringIO(listed.stdout)))


@pytest.mark.usefixtures("arrays")
def test_each_task_follows_its_own(federation: Federation) -> None:
    shown = {task: federation.run("show", f"follow[{task}]").stdout for task in (0, 1)}
    assert "SUCCEEDED" in shown[0]
    assert "it must follow prepare, which is FAILED" in shown[1]


@pytest.mark.usefixtures("arrays")
def test_a_list_is_sorted_and_has_the_columns_that_are_asked_for(federation: Federation) -> None:
    up = _rows(federation, "--sort", "priority", "--columns", "name,priority")
    assert list(up[0]) == ["name", "priority"]
    priorities = [int(row["priority"]) for row in up]
    assert priorities == sorted(priorities)
    down = _rows(federation, "--sort=-priority", "--columns", "name,priority")
    assert [int(row["priority"]) for row in down] == sorted(priorities, reverse=True)
    assert {"prepare", "follow"} <= {row["name"] for row in up}


@pytest.mark.usefixtures("arrays")
def test_a_watched_list_shows_what_changes_until_ctrl_c(federation: Federation) -> None:
    watching = Terminal(federation, "list", "--watch")
    watching.sees("follow")
    federation.run("run", "--detach", "--name", "seen", "--", "true")
    watching.sees(r"seen[^\n]*SUCCEEDED|SUCCEEDED[^\n]*seen")
    os.kill(watching.pid, signal.SIGINT)
    assert watching.code() in (0, 130)

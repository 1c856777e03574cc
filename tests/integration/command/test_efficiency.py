"""What a job really uses, from its processes to the screen: a real dispatcher and a real agent."""

import json
import re

from tests.integration.command.conftest import Federation
from tests.support.waiting import wait_until


def spent_s(federation: Federation, job: str) -> float:
    """The processor time that is known of."""
    used = json.loads(federation.run("show", job, "-o", "json").stdout).get("used") or {}
    return float(used.get("cpu_s", 0.0))


def test_what_a_job_really_uses_is_shown_while_it_runs_and_afterwards(federation: Federation) -> None:
    script = "while :; do :; done"
    job = federation.run("run", "--detach", "--name", "spins", "--", "sh", "-c", script).stdout.strip()
    # However little of a busy machine it gets.
    wait_until(lambda: spent_s(federation, job) > 0.1, "samples of a program that never waits")
    shown = federation.run("show", job).stdout
    assert re.search(r"^really uses? .*?[0-9.]+ CPUs", shown, re.MULTILINE), shown
    assert "spins" in federation.run("efficiency").stdout
    federation.run("cancel", job)
    federation.run("wait", job)
    shown = federation.run("show", job).stdout
    assert "really used" in shown
    assert "CPUs" in shown

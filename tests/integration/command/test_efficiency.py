"""What a job really uses, from its processes to the screen: a real dispatcher and a real agent."""

import re

from tests.integration.command.conftest import Federation
from tests.support.waiting import wait_until


def cpus(federation: Federation, job: str) -> float:
    """How many are busy, as `show` says it."""
    found = re.search(r"^really uses? .*?([0-9.]+) CPUs", federation.run("show", job).stdout, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_what_a_job_really_uses_is_shown_while_it_runs_and_afterwards(federation: Federation) -> None:
    script = "while :; do :; done"
    job = federation.run("run", "--detach", "--name", "spins", "--", "sh", "-c", script).stdout.strip()
    wait_until(lambda: cpus(federation, job) > 0.1, "samples of a program that never waits")
    assert "spins" in federation.run("efficiency").stdout
    federation.run("cancel", job)
    federation.run("wait", job)
    shown = federation.run("show", job).stdout
    assert "really used" in shown
    assert "CPUs" in shown

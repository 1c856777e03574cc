"""Who is before a job, what would help it, and the verb that does it, with everything real."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.command.conftest import Federation
from tests.support.waiting import wait_until

WHOLE = ("--nodes", "2", "--gpus", "4", "--", "sleep", "600")


@pytest.fixture(scope="module")
def line(federation: Federation) -> Iterator[None]:
    """All GPUs are taken, a job waits for them, and one that goes before it has come after it; a recorded decision has seen how it was without that one."""
    try:
        for name, priority in (("hog", "50"), ("mine", "50")):
            ran = federation.run("run", "--detach", "--name", name, "--priority", priority, *WHOLE)
            assert ran.returncode == 0, ran.stderr
            wait_until(lambda: "RUNNING" in federation.run("list", "--name", "hog").stdout, "the first")
        # A decision that starts nothing is not recorded.
        assert federation.run("run", "--quiet", "--", "true").returncode == 0
        federation.run("run", "--detach", "--name", "before", "--priority", "70", *WHOLE)
        wait_until(lambda: _delays(federation), "a plan that has seen them")
        yield
    finally:
        federation.run("cancel", "hog", "before", "mine")
        wait_until(lambda: "RUNNING" not in federation.run("list", "--name", "hog").stdout, "free GPUs")


def _explained(federation: Federation, job: str = "mine") -> Any:
    return json.loads(federation.run("explain", job, "-o", "json").stdout)


@pytest.mark.usefixtures("line")
def test_who_is_before_a_job_is_named(federation: Federation) -> None:
    told = " ".join(federation.run("explain", "mine").stdout.split())
    assert "behind hog of " in told, told
    assert "(8 GPUs, at north until " in told
    assert "(8 GPUs, waits before it)" in told


@pytest.mark.usefixtures("line")
def test_what_moved_its_forecast_is_named(federation: Federation) -> None:
    moved = federation.run("explain", "mine", "--since", "1h ago")
    assert moved.returncode == 0, moved.stderr
    assert "before of " in moved.stdout
    assert "came, and is to start before it" in " ".join(moved.stdout.split())


@pytest.mark.usefixtures("line")
def test_a_higher_priority_is_advised_and_applied(federation: Federation) -> None:
    told = " ".join(federation.run("explain", "mine").stdout.split())
    assert "it would start at " in told, told
    number, advice = next(
        (number, each)
        for number, each in enumerate(_explained(federation)["remedies"], 1)
        if each.get("delays")
    )
    assert advice["text"].startswith("priority "), advice
    applied = federation.run("apply", "mine", str(number))
    assert applied.returncode == 0, applied.stderr
    assert f"now has {advice['text'][:11]}" in applied.stdout
    shown = json.loads(federation.run("show", "mine", "-o", "json").stdout)
    assert shown["job"]["priority"] == advice["changes"][0]["value"]
    wait_until(lambda: not _delays(federation), "a plan by the new priority")
    assert federation.run("update", "mine", "--priority", "50").returncode == 0
    wait_until(lambda: _delays(federation), "the line as it was")


@pytest.mark.usefixtures("line")
def test_a_higher_priority_is_advised_to_an_array_and_given_to_all_its_tasks(federation: Federation) -> None:
    asked = ("--nodes", "2", "--gpus", "4", "--array", "0-1", "--", "sleep", "600")
    assert federation.run("run", "--detach", "--name", "sweep", *asked).returncode == 0
    try:
        wait_until(lambda: _delays(federation, "sweep"), "a plan that has seen them")
        remedies = _explained(federation, "sweep")["remedies"]
        number, advice = next((n, each) for n, each in enumerate(remedies, 1) if each.get("delays"))
        assert ": the last of its next 2 tasks would start at " in advice["text"], advice
        applied = federation.run("apply", "sweep", str(number))
        assert applied.returncode == 0, applied.stderr
        for task in ("sweep[0]", "sweep[1]"):
            shown = json.loads(federation.run("show", task, "-o", "json").stdout)
            assert shown["job"]["priority"] == advice["changes"][0]["value"]
    finally:
        federation.run("cancel", "sweep")


def _delays(federation: Federation, job: str = "mine") -> list[Any]:
    return [each for each in _explained(federation, job)["remedies"] if each.get("delays")]

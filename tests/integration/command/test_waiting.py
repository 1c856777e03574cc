"""`wait` outlives a restart of the dispatcher, `exec` says that it did not, and tells a person how far things are."""

from tests.integration.command.conftest import Federation
from tests.integration.command.test_tunnels import Terminal
from tests.support.waiting import PATIENCE_S, wait_until

UNTIL_TOLD = "trap 'exit 7' USR1; echo $$ > pid; echo ready; while :; do sleep 0.1; done"


def test_wait_goes_on_after_the_dispatcher_was_started_again(federation: Federation) -> None:
    job = federation.run("run", "--detach", "--name", "patient", "--", "sh", "-c", UNTIL_TOLD).stdout.strip()
    wait_until(lambda: "ready" in federation.run("logs", job).stdout, "the job to begin")
    waiting = federation.start("wait", "patient", "--timeout", "1m")
    following = federation.start("run", "--name", "followed", "--", "sh", "-c", UNTIL_TOLD)
    wait_until(lambda: "ready" in federation.run("logs", "followed").stdout, "the other job to begin")
    inside = federation.start("exec", "patient", "--", "sh", "-c", "echo begun > inside; sleep 600")
    begun = ("exec", "patient", "--", "cat", "inside")
    wait_until(lambda: federation.run(*begun).stdout == "begun\n", "the command to begin")
    federation.restart()
    _, lost = inside.communicate(timeout=PATIENCE_S)
    assert inside.returncode != 0
    assert "the dispatcher stops" in lost
    for name in ("patient", "followed"):
        told = federation.run("exec", name, "--", "sh", "-c", "kill -USR1 $(cat pid)")
        assert told.returncode == 0, told.stderr
    said, followed = waiting.communicate(timeout=PATIENCE_S), following.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, following.returncode) == (7, 7), (said, followed)
    assert said[0].startswith("FAILED  patient")
    assert followed[0] == "ready\n"


def test_a_terminal_sees_how_a_job_stands_and_pipes_do_not(federation: Federation) -> None:
    big = ("--gpus", "4", "--nodes", "2", "--max-duration", "20m")
    hog = federation.run("run", "--detach", *big, "--name", "hog", "--", "sleep", "60").stdout.strip()
    wait_until(lambda: "RUNNING" in federation.run("show", hog).stdout, "all GPUs to be taken")
    waiter = Terminal(federation, "run", "--gpus", "1", "--name", "next", "--", "echo", "done")
    waiter.sees(r"next PENDING \d+s: starts in 1\dm")
    alone = Terminal(federation, "wait", "hog")
    alone.sees(r"hog RUNNING \d+s at north: ends in 1\dm")
    federation.run("cancel", hog)
    alone.sees("CANCELLED  hog")
    assert "PENDING" not in waiter.sees(r"(?s)RUNNING: running at north.*done\r\n(.*)")[1]
    assert alone.code() == 125
    assert waiter.code() == 0
    piped = federation.run("wait", "hog", "next")
    assert (piped.returncode, piped.stderr) == (125, "")

"""Real processes: an agent's key is changed and revoked while its work goes on, and a site is drained, paused, declared dead, forgotten and left."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.secured import Secured
from tests.support.waiting import wait_until

UNTIL_TOLD = "while [ ! -e {} ]; do sleep 0.05; done; echo told"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Secured]:
    """A dispatcher with TLS, and a site with one host."""
    with Secured(tmp_path) as place:
        site = place.site()
        place.join(site)
        place.start(site)
        place.until_ready()
        yield place


def begin(place: Secured, name: str) -> Path:
    """Let a job run until a file is there: the file's name."""
    told = place.folder / f"{name}.told"
    script = place.folder / f"{name}.sh"
    script.write_text(UNTIL_TOLD.format(told))
    started = place.command("run", "--detach", "--name", name, "--gpus", "1", "--", "sh", str(script))
    assert started.returncode == 0, started.stdout
    wait_until(lambda: "RUNNING" in place.command("show", name).stdout, f"{name} to run")
    return told


def ends_well(place: Secured, name: str, told: Path) -> None:
    told.touch()
    waited = place.command("wait", name)
    assert waited.returncode == 0, waited.stdout


def test_a_key_is_changed_under_a_session_and_killed_at_each_point_one_of_the_two_works(
    place: Secured,
) -> None:
    site, state = place.folder / "north.yaml", place.folder / "north"
    told = begin(place, "steady")
    shutil.copy(state / "key", place.folder / "old-key")
    changed = place.agent("rotate-key", site)
    assert changed.returncode == 0, changed.stdout
    assert place.said("agent-north").count("stands") == 1
    assert (state / "key").read_text() != (place.folder / "old-key").read_text()

    def again() -> None:
        log = place.said("agent-north").count("stands")
        place.processes.kill("agent-north")
        place.start(site)
        wait_until(lambda: place.said("agent-north").count("stands") > log, "a session")

    again()
    # The dispatcher has taken the new key, and the agent was killed before it knew.
    (state / "key").rename(state / "key.next")
    shutil.copy(place.folder / "old-key", state / "key")
    assert "rotate-key again" in place.agent("status", site).stdout
    again()
    assert "knows our newest key" in place.said("agent-north")
    assert not (state / "key.next").exists()
    # It was killed before the dispatcher was asked.
    place.processes.kill("dispatcher")
    assert place.agent("rotate-key", site).returncode == 1
    assert (state / "key.next").exists()
    place.serve()
    again()
    assert place.agent("rotate-key", site).returncode == 0
    again()
    ends_well(place, "steady", told)


def test_a_revoked_key_ends_the_session_and_its_host_comes_back_with_its_work(place: Secured) -> None:
    site = place.folder / "north.yaml"
    told = begin(place, "kept")
    assert place.command("site", "revoke", "north", "--member", "north").returncode == 0
    wait_until(lambda: "has revoked this agent's key" in place.said("agent-north"), "the session to end")
    assert "its key was revoked" in place.command("site", "show", "north").stdout
    assert place.agent("rotate-key", site).returncode == 1
    other = place.agent("join", site, "--new-key", "--token", "-", given=place.token() + "\n")
    assert (other.returncode, "joined with another key" in other.stdout) == (1, True), other.stdout
    token = place.token("--member", "north")
    joined = place.agent("join", site, "--new-key", "--token", "-", given=token + "\n")
    assert joined.returncode == 0, joined.stdout
    assert token not in joined.stdout
    place.until_ready()
    ends_well(place, "kept", told)


def test_drained_paused_and_left(place: Secured) -> None:
    site = place.folder / "north.yaml"
    assert place.command("drain", "north").returncode == 0
    assert place.row()["status"] == "DRAINING"
    assert place.command("undrain", "north").returncode == 0
    wait_until(lambda: place.row()["status"] == "READY", "it to take work again")
    assert place.agent("pause", site).returncode == 0
    wait_until(lambda: place.row()["paused"], "the pause to be seen")
    assert "paused" in place.agent("status", site).stdout
    assert "the site has paused new work" in place.command("site", "show", "north").stdout
    assert place.agent("resume", site).returncode == 0
    told = begin(place, "last")
    running = place.agent("leave", site)
    assert (running.returncode, "another agent is running" in running.stdout) == (1, True), running.stdout
    ends_well(place, "last", told)
    removed = place.command("site", "remove", "north")
    assert (removed.returncode, "north is connected" in removed.stdout) == (6, True), removed.stdout
    wait_until(lambda: "last" not in place.agent("status", site).stdout, "its end to be acknowledged")
    place.processes.kill("agent-north")
    left = place.agent("leave", site)
    assert left.returncode == 0, left.stdout
    wait_until(lambda: place.command("site", "remove", "north").returncode == 0, "the site to be away")
    assert "no sites" in place.command("sites").stdout


def test_one_host_is_declared_dead_and_forgotten_while_the_other_works(place: Secured) -> None:
    second = place.site("north-2", member="north-2")
    place.join(second)
    place.start(second)
    place.until_ready("north", "north-2")
    tolds = {name: begin(place, name) for name in ("one", "two")}
    place.processes.kill("agent-north-2")
    wait_until(
        lambda: "not connected" in place.command("site", "show", "north").stdout, "it to be seen as away"
    )
    early = place.command("site", "remove", "north", "--member", "north-2")
    assert (early.returncode, "attempts may still run there" in early.stdout) == (6, True), early.stdout
    dead = place.command("site", "declare-dead", "north", "--member", "north-2", "--reason", "it burnt")
    assert dead.returncode == 0, dead.stdout
    shown = place.command("site", "show", "north").stdout
    assert "LOST" in shown
    assert "declared dead" in shown
    gone = place.command("site", "remove", "north", "--member", "north-2")
    assert gone.returncode == 0, gone.stdout
    assert [host["name"] for host in place.row()["hosts"]] == ["north"]
    for name, told in tolds.items():
        ends_well(place, name, told)

"""What `install.sh --uninstall --purge` takes away on a host, and what it leaves because it may be somebody else's: in a mount namespace, with an agent that says where its state is."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S
from tests.testbeds.required import need

ROOT = Path(__file__).parents[2]
INSTALLER = ROOT / "deploy/install/install.sh"
SAID = "site: north\nkind: onprem\ndispatcher: https://centre.example.org:7070\n"
INSIDE = """set -e
mount --make-rprivate /
for each in etc opt run srv var/lib; do mount --bind "$1/$each" "/$each"; done
shift
exec "$@"
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The folders of a host that are its own, with an agent in it that user root has."""
    need("" if os.geteuid() == 0 and shutil.which("unshare") else "only root can purge, with unshare")
    installed = [
        name for name in ("federator", "federator-agent") if Path("/usr/local/bin", name).is_symlink()
    ]
    need(f"{installed} of /usr/local/bin would be taken from this host" if installed else "")
    need(
        f"{sys.prefix} is hidden by the test"
        if sys.prefix.startswith(("/opt/", "/srv/", "/var/lib/"))
        else ""
    )
    for each in ("opt/federator/agent/current/bin", "run", "srv", "var/lib"):
        (tmp_path / each).mkdir(parents=True)
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True, ignore=shutil.ignore_patterns("federator*"))
    (tmp_path / "etc/federator").mkdir()
    program = tmp_path / "opt/federator/agent/current/bin/python"
    packages = f"{ROOT}:{ROOT / 'agents'}:{sysconfig.get_paths()['purelib']}"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return tmp_path


def purge(host: Path, role: str = "agent") -> str:
    """What it says."""
    words = (str(INSTALLER), role, "--user", "root", "--uninstall", "--purge")
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", INSIDE, "inside", str(host), *words],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def make_state(folder: Path) -> Path:
    """As of an agent that has run there."""
    (folder / "specs").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "journal").touch()
    return folder


def write_site(host: Path, *more: str) -> Path:
    """The agent's site file."""
    file = host / "etc/federator/site.yaml"
    file.write_text(SAID + "".join(f"{line}\n" for line in more))
    return file


@pytest.mark.parametrize(
    ("written", "folder"),
    [
        ("/var/lib/federator-agent", "var/lib/federator-agent"),
        ("/srv/agents/north/", "srv/agents/north"),
        ('"/srv/agents/the north"  # a disk of its own', "srv/agents/the north"),
        ("/srv/agents/north#2", "srv/agents/north#2"),
        (">-\n  /srv/agents/folded", "srv/agents/folded"),
    ],
)
def test_the_state_goes_from_where_the_agent_has_it_and_no_other_does(
    host: Path, written: str, folder: str
) -> None:
    """Whatever the site file looks like to who does not read it as the agent does."""
    others = [make_state(host / "srv/agents" / name) for name in ("north", "the", "south")]
    own = host / folder
    if own not in others:
        make_state(own)
    config = write_site(host, f"state_dir: {written}")
    purge(host)
    assert (own.exists(), config.exists()) == (False, False)
    assert [path for path in others if not path.exists()] == [path for path in others if path == own]


@pytest.mark.parametrize(
    ("written", "more", "why"),
    [
        ("/srv/agents", "srv/agents/north/specs", "the folder of another agent is in it"),
        ("/srv/agents", "srv/agents/placements/1/specs", "the folder of another agent is in it"),
        ("/srv/agents", "srv/agents/thesis.tex", "no agent has made the thesis.tex in it"),
        ("/srv/agents", "srv/agents/.ssh", "no agent has made the .ssh in it"),
        ("/srv/link/agents", "", "its path has links or '..' in it"),
        ("/srv/../srv/agents", "", "its path has links or '..' in it"),
        ("../../srv/agents", "", "its path has links or '..' in it"),
    ],
)
def test_what_may_be_anothers_is_left_and_said_so(host: Path, written: str, more: str, why: str) -> None:
    state = make_state(host / "srv/agents")
    (host / "srv/link").symlink_to(".")
    if more.endswith("specs"):
        make_state((host / more).parent)
    elif more:
        (host / more).touch()
    write_site(host, f"state_dir: {written}")
    assert f"is left: {why}. Look into it" in purge(host)
    assert (state / "lock").exists()


def test_no_top_folder_and_none_of_another_user_or_another_kind_is_removed(host: Path) -> None:
    make_state(host / "srv")
    write_site(host, "state_dir: /srv")
    current = host / "opt/federator"
    kept = shutil.copytree(current, host / "kept")
    assert "/srv is left: it is not a folder of user root's below the top ones" in purge(host)
    os.chown(make_state(host / "srv/others"), 65534, 65534)
    (host / "srv/plain").mkdir()
    for name, why in (
        ("others", "it is not a folder of user root's"),
        ("plain", "does not look like an agent's"),
    ):
        shutil.copytree(kept, current, dirs_exist_ok=True)
        (host / "etc/federator").mkdir(exist_ok=True)
        write_site(host, f"state_dir: /srv/{name}")
        assert why in purge(host)
        assert (host / "srv" / name).exists()


@pytest.mark.parametrize("line", ["", "stat_dir: /srv/agents"])
def test_where_the_agent_cannot_say_where_its_state_is_nothing_of_it_goes(host: Path, line: str) -> None:
    """It may have been told by the environment of the service."""
    state = make_state(host / "var/lib/federator-agent")
    config = write_site(host, line)
    assert "only an installed agent can say for sure" in purge(host)
    assert (config.exists(), state.exists()) == (True, True)


def test_a_dispatchers_state_goes_unless_an_agents_is_below_it(host: Path) -> None:
    state = host / "var/lib/federator"
    agents = make_state(state / "agents/north")
    assert "/var/lib/federator is left: the folder of another agent is in it" in purge(host, "dispatcher")
    shutil.rmtree(agents / "specs")
    (agents / "identity.json").touch()
    assert "the folder of another agent is in it" in purge(host, "dispatcher"), "one that was never started"
    shutil.rmtree(agents)
    purge(host, "dispatcher")
    assert not state.exists()

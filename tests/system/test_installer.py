"""The installer, run as on a host that builds an image: from a wheel built here, without a network, twice, and away again; and what it has installed, run."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.secured import Secured
from tests.support.waiting import PATIENCE_S
from tests.testbeds.required import need

ROOT = Path(__file__).parents[2]
INSTALLER = ROOT / "agents/install/install.sh"
UNITS = (
    ROOT / "agents/install/federator-agent.service",
    ROOT / "deploy/systemd/federator-dispatcher.service",
)


def run(*words: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words,
        env=os.environ | (environment or {}),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=3 * PATIENCE_S,
        check=False,
    )


def install(tree: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Without a network, and without the dependencies: those of the tests are used."""
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    return run(str(INSTALLER), "--root", str(tree), "--python", sys.executable, *words, environment=offline)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    built = run(sys.executable, *build, "--wheel-dir", str(folder), str(ROOT))
    assert built.returncode == 0, built.stdout
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def tree(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file tree with the agent installed."""
    tree = tmp_path_factory.mktemp("image")
    words = ("--from", str(wheel), "--site", "north", "--dispatcher", "https://centre.example.org:7070")
    installed = install(tree, *words)
    assert installed.returncode == 0, installed.stdout
    return tree


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Secured]:
    with Secured(tmp_path) as place:
        yield place


def test_everything_is_in_its_place_and_stays_there_when_it_is_installed_again(
    tree: Path, wheel: Path
) -> None:
    config = tree / "etc/federator/site.yaml"
    assert config.read_text().splitlines()[:3] == [
        "site: north",
        "kind: onprem",
        "dispatcher: https://centre.example.org:7070",
    ]
    assert (
        (tree / "opt/federator/bin/federator-agent").read_text().startswith("#!/opt/federator/bin/python\n")
    )
    unit = tree / "etc/systemd/system/federator-agent.service"
    assert "ExecStart=/opt/federator/bin/federator-agent serve" in unit.read_text()
    wanted = unit.parent / "multi-user.target.wants/federator-agent.service"
    assert wanted.resolve() == unit
    assert "u federator" in (tree / "etc/sysusers.d/federator-agent.conf").read_text()
    config.write_text(config.read_text() + "# by hand\n")
    again = install(
        tree, "--from", str(wheel), "--site", "other", "--dispatcher", "https://other.example.org"
    )
    assert again.returncode == 0, again.stdout
    assert "# by hand" in config.read_text()


def test_what_is_installed_joins_and_runs_a_job(tree: Path, place: Secured) -> None:
    site = place.site()
    dependencies = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    python = str(tree / "opt/federator/bin/python")
    where = run(
        python, "-c", "import federator_agent; print(federator_agent.__file__)", environment=dependencies
    )
    assert where.stdout.startswith(str(tree)), where.stdout
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FEDERATOR_")}
    joined = subprocess.run(
        [python, "-m", "federator_agent", "join", "--config", str(site), "--token", "-"],
        env=clean | dependencies,
        input=place.token() + "\n",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
        check=False,
    )
    assert joined.returncode == 0, joined.stdout
    with (place.folder / "agent.log").open("wb") as log:
        agent = subprocess.Popen(
            [python, "-m", "federator_agent", "serve", "--config", str(site)],
            env=clean | dependencies,
            stdout=log,
            stderr=log,
        )
    try:
        place.until_ready()
        ran = place.command("run", "--", "echo", "by what was installed")
        assert (ran.returncode, "by what was installed" in ran.stdout) == (0, True), ran.stdout
    finally:
        agent.terminate()
        agent.wait()


def test_it_goes_away_and_leaves_what_is_the_owners_until_that_is_purged(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy, symlinks=True)
    for words, left in (((), ["etc/federator/site.yaml"]), (("--purge",), [])):
        removed = install(copy, "--uninstall", *words)
        assert removed.returncode == 0, removed.stdout
        files = [str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()]
        assert files == left


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--nonsense",), "usage: install.sh"),
        (("--from",), "--from wants a value"),
        (("--token-file", "x"), "--token-file does not go with --root"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(
    tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    refused = install(tmp_path / "tree", *words)
    assert (refused.returncode != 0, complaint in refused.stdout) == (True, True), refused.stdout
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_has_nothing_to_say_of_the_units(unit: Path, tmp_path: Path) -> None:
    """But that the programs are not there; and it is told so by pointing it to one that is."""
    need("" if shutil.which("systemd-analyze") else "systemd-analyze cannot be found; install systemd")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/federator/bin/", "/bin/true --"))
    assert run("systemd-analyze", "verify", "--man=no", str(copy)).stdout == ""


def test_a_shell_without_extras_can_read_it() -> None:
    checked = run("sh", "-n", str(INSTALLER))
    assert checked.returncode == 0, checked.stdout
    if shutil.which("shellcheck"):
        assert run("shellcheck", "-s", "sh", str(INSTALLER)).stdout == ""

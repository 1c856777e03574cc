"""The installer, run as on a host that builds an image: without a network, twice, back and away again; and what it has installed, run."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bundles import ONE_PACKAGE, make_bundle
from tests.support.secured import Secured
from tests.support.waiting import PATIENCE_S
from tests.testbeds import images
from tests.testbeds.required import need
from tools.bundle import sign
from tools.images import wheel_of_this_tree

ROOT = Path(__file__).parents[2]
INSTALLER = ROOT / "deploy/install/install.sh"
UNITS = ("federator-agent", "federator-dispatcher")
SITE = ("--site", "north", "--dispatcher", "https://centre.example.org:7070")


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


def install(bundle: Path, tree: Path, *words: str, role: str = "agent") -> "subprocess.CompletedProcess[str]":
    """Without a network, and with one package: else those of the tests are used."""
    return run(str(bundle / "install.sh"), role, "--root", str(tree), "--python", sys.executable, *words)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of two versions."""
    need(images.missing())
    folder = tmp_path_factory.mktemp("bundles")
    wheel = wheel_of_this_tree(folder)
    return {version: make_bundle(folder / version, wheel, version) for version in ("1.0", "1.1")}


@pytest.fixture(scope="module")
def tree(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file tree with the agent installed."""
    tree = tmp_path_factory.mktemp("image")
    installed = install(bundles["1.0"], tree, *SITE)
    assert installed.returncode == 0, installed.stdout
    return tree


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Path:
    """Of that tree, to be changed."""
    return Path(shutil.copytree(tree, tmp_path / "copy", symlinks=True))


def version_of(tree: Path, role: str = "agent") -> str:
    """Which one is going to run there."""
    return (tree / "opt/federator" / role / "current").readlink().name.partition("-")[0]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Secured]:
    with Secured(tmp_path) as place:
        yield place


def test_everything_is_in_its_place_and_stays_there_when_it_is_installed_again(
    copy: Path, bundles: dict[str, Path]
) -> None:
    config = copy / "etc/federator/site.yaml"
    assert config.read_text().splitlines()[:3] == [
        "site: north",
        "kind: onprem",
        "dispatcher: https://centre.example.org:7070",
    ]
    program = copy / "opt/federator/agent/current/bin/federator-agent"
    assert program.read_text().startswith("#!/opt/federator/agent/1.0-")
    found = (copy / "usr/local/bin/federator-agent").readlink()
    assert found == Path("/opt/federator/agent/current/bin/federator-agent")
    unit = copy / "etc/systemd/system/federator-agent.service"
    assert f"ExecStart={found} serve" in unit.read_text()
    wanted = unit.parent / "multi-user.target.wants/federator-agent.service"
    assert wanted.resolve() == unit
    assert "u federator" in (copy / "etc/sysusers.d/federator-agent.conf").read_text()
    config.write_text(config.read_text() + "# by hand\n")
    again = install(bundles["1.0"], copy, "--site", "other", "--dispatcher", "https://other.example.org")
    assert again.returncode == 0, again.stdout
    assert "# by hand" in config.read_text()


def test_many_sites_share_one_template_and_each_has_its_own_name(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    template = tmp_path / "stores.yaml"
    template.write_text(
        "dispatcher: https://centre.example.org:7070\nlabels: {chain: stores}\nstate_dir: /srv/agent\n"
    )
    for name in ("store-zug", "store-bern"):
        words = ("--site", name, "--template", str(template))
        installed = install(bundles["1.0"], tmp_path / name, *words)
        assert installed.returncode == 0, installed.stdout
        written = (tmp_path / name / "etc/federator/site.yaml").read_text()
        assert written == f"site: {name}\n{template.read_text()}"
        user = (tmp_path / name / "etc/sysusers.d/federator-agent.conf").read_text()
        assert user.splitlines()[0].endswith(" /srv/agent"), "its state is where the template says"
    template.write_text("site: store-zug\n" + template.read_text())
    refused = install(bundles["1.0"], tmp_path / "other", "--site", "other", "--template", str(template))
    assert refused.returncode == 1
    assert "--site names it" in refused.stdout


def test_a_dispatcher_is_put_beside_it_and_neither_takes_the_others_files(
    copy: Path, bundles: dict[str, Path]
) -> None:
    put = install(bundles["1.1"], copy, "--federation", "example", role="dispatcher")
    assert put.returncode == 0, put.stdout
    assert "federation: example" in (copy / "etc/federator/dispatcher.yaml").read_text()
    assert (version_of(copy), version_of(copy, "dispatcher")) == ("1.0", "1.1")
    assert install(bundles["1.0"], copy, "--uninstall", "--purge").returncode == 0
    assert version_of(copy, "dispatcher") == "1.1"
    given = (copy / "etc/tmpfiles.d/federator-dispatcher.conf").read_text()
    assert given == "z /etc/federator/dispatcher.yaml 0640 root federator-dispatcher -\n"
    kept = install(bundles["1.0"], copy, "--uninstall", role="dispatcher")
    assert kept.returncode == 0
    assert (copy / "etc/tmpfiles.d/federator-dispatcher.conf").exists(), "as long as there are settings"
    assert install(bundles["1.0"], copy, "--uninstall", "--purge", role="dispatcher").returncode == 0
    assert [path for path in copy.rglob("*") if not path.is_dir()] == []


def test_the_version_before_is_kept_to_go_back_to_and_no_older_one(
    copy: Path, bundles: dict[str, Path], tmp_path: Path
) -> None:
    assert "no version before" in install(bundles["1.0"], copy, "--rollback").stdout
    for number, version in enumerate(("1.1", "1.0", "1.1")):
        installed = install(bundles[version], copy)
        assert installed.returncode == 0, installed.stdout
        assert version_of(copy) == version, number
    back = install(bundles["1.1"], copy, "--rollback")
    assert (back.returncode, version_of(copy)) == (0, "1.0"), back.stdout
    third = Path(shutil.copytree(bundles["1.1"], tmp_path / "third"))
    with (third / "agent.txt").open("a") as lock:
        lock.write("# another build\n")
    sign(third)
    assert install(third, copy).returncode == 0
    kept = [path for path in (copy / "opt/federator/agent").iterdir() if not path.is_symlink()]
    assert len(kept) == 2


def test_going_back_goes_back_to_the_unit_of_that_version_and_never_to_the_present_one(
    copy: Path, bundles: dict[str, Path], tmp_path: Path
) -> None:
    newer = Path(shutil.copytree(bundles["1.1"], tmp_path / "newer"))
    with (newer / "federator-agent.service").open("a") as text:
        text.write("# of the newer one\n")
    sign(newer)
    unit = copy / "etc/systemd/system/federator-agent.service"
    put = install(newer, copy, "--user", "worker")
    assert (put.returncode, "# of the newer one" in unit.read_text()) == (0, True), put.stdout
    back = install(newer, copy, "--rollback")
    assert (back.returncode, version_of(copy)) == (0, "1.0"), back.stdout
    assert ("# of the newer one" in unit.read_text(), "User=worker" in unit.read_text()) == (False, True)
    folder = copy / "opt/federator/agent"
    (folder / "previous").unlink()
    (folder / "previous").symlink_to((folder / "current").readlink())
    refused = install(newer, copy, "--rollback")
    assert (refused.returncode, "no version before" in refused.stdout) == (1, True), refused.stdout


def test_a_strict_umask_of_root_keeps_nobody_from_what_is_installed(
    tmp_path: Path, bundles: dict[str, Path]
) -> None:
    tree = tmp_path / "tree"
    installer = str(bundles["1.0"] / "install.sh")
    words = ("dispatcher", "--root", str(tree), "--python", sys.executable, "--federation", "example")
    put = run("sh", "-c", 'umask 077; exec "$@"', "sh", installer, *words)
    assert put.returncode == 0, put.stdout
    folder = tree / "opt/federator/dispatcher"
    program = folder / "current/bin/federator"
    for path in (tree / "etc/federator", folder, folder / "current", program):
        assert path.stat().st_mode & 0o055 == 0o055, path
    assert (tree / "etc/federator/dispatcher.yaml").stat().st_mode & 0o777 == 0o640


def test_nothing_is_installed_that_is_not_what_was_packed(
    copy: Path, bundles: dict[str, Path], tmp_path: Path
) -> None:
    """Neither a file of the bundle nor a package; and what was there is there."""
    bundle = Path(shutil.copytree(bundles["1.1"], tmp_path / "bundle"))
    lock = bundle / "agent.txt"
    package = next((bundle / "packages").glob(f"{ONE_PACKAGE}-*"))
    package.write_bytes(package.read_bytes() + b"more")
    refused = install(bundle, copy)
    assert (refused.returncode, "DO NOT MATCH THE HASHES" in refused.stdout) == (1, True), refused.stdout
    lock.write_text(lock.read_text() + "something-else==1.0\n")
    refused = install(bundle, copy)
    assert (refused.returncode, "agent.txt: FAILED" in refused.stdout) == (1, True), refused.stdout
    assert version_of(copy) == "1.0"


def test_what_is_installed_joins_and_runs_a_job(tree: Path, place: Secured) -> None:
    site = place.site()
    dependencies = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    python = str(tree / "opt/federator/agent/current/bin/python")
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
        known = re.search("(?m)^own_files='(.*)'$", INSTALLER.read_text())
        assert known
        made = [path.name for path in (place.folder / "north").iterdir()]
        unknown = [name for name in made if not re.fullmatch(known[1], name)]
        assert unknown == [], "a purge would leave the folder because of these"
    finally:
        agent.terminate()
        agent.wait()


def test_it_goes_away_and_leaves_what_is_the_owners_until_that_is_purged(
    copy: Path, bundles: dict[str, Path]
) -> None:
    for words, left in (((), ["etc/federator/site.yaml"]), (("--purge",), [])):
        removed = install(bundles["1.0"], copy, "--uninstall", *words)
        assert removed.returncode == 0, removed.stdout
        files = [str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()]
        assert files == left


def test_what_looks_like_state_in_a_file_tree_is_left_as_nobody_can_be_asked_whose_it_is(
    copy: Path, bundles: dict[str, Path]
) -> None:
    state = copy / "var/lib/federator-agent"
    (state / "specs").mkdir(parents=True)
    (state / "lock").touch()
    removed = install(bundles["1.0"], copy, "--uninstall", "--purge")
    assert removed.returncode == 0, removed.stdout
    assert f"{state} is left: in a file tree no state is removed" in removed.stdout
    assert (state / "lock").exists()


@pytest.mark.parametrize("tree", ["", "/", "/.", "//./", "/usr/..", "link", "link/./"])
def test_the_host_itself_is_no_file_tree_under_any_name(tmp_path: Path, tree: str) -> None:
    """What goes back there would go back below what runs."""
    (tmp_path / "link").symlink_to("/")
    name = f"{tmp_path}/{tree}" if tree.startswith("link") else tree
    refused = run(str(INSTALLER), "agent", "--root", name, "--rollback")
    expected = "is this host itself: leave --root out" if tree else "--root wants a folder"
    assert (refused.returncode, expected in refused.stdout) == (1, True), refused.stdout


@pytest.mark.parametrize("link", ["opt", "opt/federator", "etc", "etc/systemd/system", "usr/local/bin"])
def test_a_link_that_leads_out_of_the_tree_is_not_followed(tmp_path: Path, link: str) -> None:
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    (elsewhere / "agent/versions").mkdir(parents=True)
    (elsewhere / "federator/agent/versions").mkdir(parents=True)
    (tree / link).parent.mkdir(parents=True)
    (tree / link).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    refused = run(str(INSTALLER), "agent", "--root", str(tree), "--uninstall", "--purge")
    assert (refused.returncode, "by a link: make that link relative" in refused.stdout) == (1, True)
    assert sorted(elsewhere.rglob("*")) == before


@pytest.mark.parametrize(
    ("role", "words", "complaint"),
    [
        ("operator", (), "usage: install.sh"),
        ("agent", ("--nonsense",), "usage: install.sh"),
        ("agent", ("--site",), "--site wants a value"),
        ("agent", ("--token-file", "x"), "--token-file does not go with --root"),
        ("dispatcher", ("--site", "x"), "are of an agent"),
        ("dispatcher", (), "give --federation"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(
    tmp_path: Path, bundles: dict[str, Path], role: str, words: tuple[str, ...], complaint: str
) -> None:
    refused = install(bundles["1.0"], tmp_path / "tree", *words, role=role)
    assert (refused.returncode != 0, complaint in refused.stdout) == (True, True), refused.stdout
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_has_nothing_to_say_of_the_units(unit: str, tmp_path: Path) -> None:
    """But that the programs are not there; and it is told so by pointing it to one that is."""
    need("" if shutil.which("systemd-analyze") else "systemd-analyze cannot be found; install systemd")
    copy = tmp_path / f"{unit}.service"
    text = (ROOT / "deploy/install" / copy.name).read_text()
    copy.write_text(re.sub(r"/opt/federator/\w+/current/bin/", "/bin/true --", text))
    assert run("systemd-analyze", "verify", "--man=no", str(copy)).stdout == ""


def test_a_shell_without_extras_can_read_it() -> None:
    installer = str(INSTALLER)
    checked = run("sh", "-n", installer)
    assert checked.returncode == 0, checked.stdout
    if shutil.which("shellcheck"):
        assert run("shellcheck", "-s", "sh", installer).stdout == ""

"""Dispatcher and agent on a host with systemd, put there, exchanged, put back and taken away by the installer, while a job runs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from federator.planning.kernels import cache, prepare
from tests.support.bundles import make_bundle
from tests.support.waiting import wait_until
from tests.testbeds import images
from tests.testbeds.host import GIVEN, PACKAGES, PYTHON, Host, missing
from tests.testbeds.ports import free_ports
from tests.testbeds.required import need
from tools.images import wheel_of_this_tree

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ENVIRONMENT = f"PYTHONPATH={PACKAGES}"
"""What stands in for packages that are not installed again."""
DROP_IN = (
    f"[Service]\nEnvironment={ENVIRONMENT}\nProtectHome={'yes' if PYTHON.is_relative_to('/usr') else 'no'}\n"
)
"""The tests' own Python may be in somebody's home."""
WORK = "/var/lib/federator-agent/placements/*/work"
OLD, NEW, BROKEN, DEAF = "0.0.9", "0.1.1", "0.1.2", "0.1.3"
SERVE_FAILS = {"federator_agent/commands.py": "\ndef serve(options: object) -> int:\n    return 3\n"}
SPEAKS_ANOTHER_PROTOCOL = {"federator_agent/link.py": "\nPROTOCOL = 1000\n"}


class Installed:
    """A host, and the bundles that it is given."""

    def __init__(self, host: Host) -> None:
        self.host = host
        (self.port,) = free_ports(1)

    def install(self, version: str, role: str, *words: str) -> str:
        """By the installer of that version."""
        ran = self._installer(version, role, *words)
        assert ran[0] == 0, ran[1]
        return ran[1]

    def refused(self, version: str, role: str, *words: str) -> str:
        """What the installer says that does not do it."""
        code, said = self._installer(version, role, *words)
        assert code == 1, said
        return said

    def _installer(self, version: str, role: str, *words: str) -> tuple[int, str]:
        installer = str(GIVEN / version / "install.sh")
        ran = self.host("env", ENVIRONMENT, installer, role, "--python", str(PYTHON), *words)
        return ran.returncode, ran.stdout

    def federator(self, *words: str) -> str:
        """The command, as the first administrator."""
        token = self.host.said("cat", "/var/lib/federator/admin.token").strip()
        known = [f"FEDERATOR_SERVER=http://127.0.0.1:{self.port}", f"FEDERATOR_TOKEN={token}"]
        ran = self.host("env", ENVIRONMENT, *known, "/usr/local/bin/federator", *words)
        assert ran.returncode == 0, ran.stdout
        return ran.stdout

    def runs(self, role: str) -> str:
        """The version from which the service's process runs."""
        pid = self.host.said(
            "systemctl", "show", "--value", "--property=MainPID", f"federator-{role}"
        ).strip()
        found = re.search(
            rf"/opt/federator/{role}/([\d.]+)-", self.host("cat", f"/proc/{pid}/cmdline").stdout
        )
        return found[1] if found else ""

    def status(self) -> str:
        """Of the one job that there is."""
        (row,) = json.loads(self.federator("list", "-o", "json"))
        return str(row["status"])

    def is_ready(self) -> bool:
        """Whether the site is."""
        return "READY" in self.federator("sites")


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    need(missing() or images.missing())
    given = tmp_path / "given"
    given.mkdir()
    wheel = wheel_of_this_tree(tmp_path)
    kernels = share_kernels(given)
    for version, more in ((OLD, {}), (NEW, {}), (BROKEN, SERVE_FAILS), (DEAF, SPEAKS_ANOTHER_PROTOCOL)):
        make_bundle(given / version, wheel, version, kernels | more)
    host = Host(tmp_path / "place", given)
    try:
        yield Installed(host)
    finally:
        host.end()


def share_kernels(given: Path) -> dict[str, str]:
    """Give them the compiled planner of the tests, as each version would take a quarter of a minute of a processor; the patch that makes them look there."""
    assert prepare()
    kernels = cache.folder()
    assert kernels is not None
    shutil.copytree(kernels, given / kernels.name)
    for path in (given / kernels.name).rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return {
        "federator/planning/kernels/cache.py": f"\ndef folder() -> Path:\n    return Path({str(GIVEN / kernels.name)!r})\n"
    }


def test_work_goes_on_while_both_are_exchanged_and_put_back(installed: Installed) -> None:
    host = installed.host
    for role in ("dispatcher", "agent"):
        folder = f"/etc/systemd/system/federator-{role}.service.d"
        host.said("mkdir", "-p", folder)
        host.said("tee", f"{folder}/tests.conf", given=DROP_IN)
    installed.install(OLD, "dispatcher", "--federation", "test", "--no-start")
    host.said("sed", "-i", f"s/port: 7070/port: {installed.port}/", "/etc/federator/dispatcher.yaml")
    assert "kept /etc/federator/dispatcher.yaml" in installed.install(OLD, "dispatcher")
    assert host.said("stat", "--format=%U %a", "/var/lib/federator").strip() == "federator-dispatcher 700"
    token = installed.federator("token", "create", "--site", "north", "--kind", "onprem").splitlines()[0]
    host.said("sh", "-c", "umask 077; cat >/run/join-token", given=token)
    joined = installed.install(
        OLD, "agent", "--site", "north", "--dispatcher", f"http://127.0.0.1:{installed.port}", "--token-file", "/run/join-token"
    )  # fmt: skip
    assert token not in joined
    job = "echo begun >>begun; while [ ! -e enough ]; do sleep 0.1; done; echo it has seen the end; exit 7"
    installed.federator("run", "--detach", "--name", "long", "--", "sh", "-c", job)
    wait_until(lambda: installed.status() == "RUNNING", "the job")

    for version in (NEW, OLD):
        for role in ("dispatcher", "agent"):
            if version == NEW:
                installed.install(NEW, role)
            else:
                installed.install(NEW, role, "--rollback")
            assert installed.runs(role) == version
            wait_until(installed.is_ready, "the site")
            assert installed.status() == "RUNNING"
    assert "it does not start" in installed.refused(BROKEN, "agent")
    assert installed.runs("agent") == OLD
    wait_until(installed.is_ready, "the site")
    alive = "/var/lib/federator-agent/alive"
    wait_until(lambda: host("cat", alive).stdout == "connected\n", "the agent to say so itself")
    told = installed.refused(DEAF, "agent", "--within", "5")
    assert "it has not reached the dispatcher within 5 s" in told
    assert installed.runs("agent") == OLD
    wait_until(installed.is_ready, "the site")

    refused = installed.refused(OLD, "agent", "--uninstall")
    assert "nothing is removed while work is here" in refused
    host.said("systemctl", "enable", "--now", "federator-agent")
    assert host.said("sh", "-c", f"cd {WORK} && cat begun && touch enough") == "begun\n"
    wait_until(lambda: installed.status() == "FAILED", "the end of the job")
    assert installed.federator("logs", "long").strip() == "it has seen the end"

    status = "runuser -u federator -- /usr/local/bin/federator-agent status --config /etc/federator/site.yaml"
    wait_until(
        lambda: "placement" not in host.said("env", ENVIRONMENT, *status.split()),
        "the agent to be without work",
    )
    removed = installed.install(OLD, "agent", "--uninstall", "--purge")
    assert "is left" not in removed, removed
    host.said("sh", "-c", "! ls /var/lib/federator-agent /etc/federator/site.yaml /opt/federator/agent")

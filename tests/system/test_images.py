"""The images of dispatcher and agent, built here and run by podman as a cluster would run them: not as root, on a file system that nobody can write to."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_until
from tests.testbeds import images
from tests.testbeds.podman import Podman
from tests.testbeds.ports import free_ports
from tools.images import UNUSED

ROOT = Path(__file__).parents[2]
KEPT = (
    "--network=host",
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--cgroups=disabled",
)
GRACE_S = 20
"""What the chart and the units leave for stopping."""

pytestmark = [pytest.mark.system, pytest.mark.timeout(900), pytest.mark.xdist_group("images")]


def test_they_are_the_same_when_they_are_built_again(podman: Podman, built: dict[str, str]) -> None:
    again = images.build(podman, "agent", "--no-cache")
    assert list(again.values()) == [built["federator-agent"]]


@pytest.mark.parametrize("role", ["agent", "dispatcher"])
def test_what_is_in_them_is_written_down(podman: Podman, built: dict[str, str], role: str) -> None:
    said = json.loads(
        podman(
            "run",
            "--rm",
            *KEPT,
            "--entrypoint=cat",
            built[f"federator-{role}"],
            "/opt/federator/sbom.cdx.json",
        )
    )
    assert said["metadata"]["component"]["name"] == "federator"
    python = {each["name"]: each for each in said["components"] if each["purl"].startswith("pkg:pypi/")}
    lock = (ROOT / "requirements" / f"{role}.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", lock, re.MULTILINE))
    assert {name: each["version"] for name, each in python.items()} == {
        name: version for name, version in locked.items() if name.replace("-", "_") not in UNUSED
    }
    assert all(each["hashes"][0]["content"] in lock for each in python.values())
    assert any(each["name"] == "libc6" for each in said["components"]), "nothing of the base is in it"


def test_the_solver_works_without_what_is_left_out(podman: Podman, built: dict[str, str]) -> None:
    words = [
        "--entrypoint=python3",
        built["federator-dispatcher"],
        "-c",
        "import federator.solving.glop, federator.store.etcd, boto3",
    ]
    assert podman("run", "--rm", *KEPT, *words) == ""


class Federation:
    """A dispatcher and an agent in containers."""

    def __init__(self, podman: Podman, built: dict[str, str], folder: Path) -> None:
        self._podman, self._built = podman, built
        self._state = {name: folder / name for name in ("dispatcher", "agent")}
        for state in self._state.values():
            state.mkdir()
            os.chown(state, 10001, 10001)
        self._site = folder / "site.yaml"
        (port,) = free_ports(1)
        self._address = f"http://127.0.0.1:{port}"
        self._run("dispatcher", ["-d", "--name=dispatcher", f"--env=FEDERATOR_PORT={port}"])
        wait_until((self._state["dispatcher"] / "address").exists, "the dispatcher", 5 * PATIENCE_S)
        pool = {"name": "cpu", "nodes": 1, "gpus_per_node": 0, "cpus_per_node": 2, "memory_per_node": "1GiB"}
        site = {
            "site": "north",
            "dispatcher": self._address,
            "state_dir": "/var/lib/federator",
            "pools": [pool],
        }
        self._site.write_text(json.dumps(site))
        token = self.command("token", "create", "--site", "north", "--kind", "onprem").splitlines()[0]
        config = "--config=/etc/federator/site.yaml"
        self._run("agent", ["--rm", "-i"], "join", config, "--token=-", given=f"{token}\n")
        self._run("agent", ["-d", "--name=agent"])

    def _run(self, role: str, how: list[str], *words: str, given: str = "") -> str:
        volumes = [f"--volume={self._state[role]}:/var/lib/federator"]
        volumes += [f"--volume={self._site}:/etc/federator/site.yaml:ro"] if role == "agent" else []
        return self._podman(
            "run", *how, *KEPT, *volumes, self._built[f"federator-{role}"], *words, given=given
        )

    def command(self, *words: str) -> str:
        """`federator`, of this machine, as its administrator."""
        known = {
            "FEDERATOR_SERVER": self._address,
            "FEDERATOR_TOKEN": (self._state["dispatcher"] / "admin.token").read_text().strip(),
        }
        ran = subprocess.run(
            [sys.executable, "-m", "federator", *words], env=os.environ | known, text=True, capture_output=True, timeout=2 * PATIENCE_S, check=False
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def test_a_job_runs_and_both_end_within_their_grace(
    podman: Podman, built: dict[str, str], tmp_path: Path
) -> None:
    federation = Federation(podman, built, tmp_path)
    said = federation.command(
        "run", "--name", "who", "--", "sh", "-c", "id -u; touch /opt/federator/x 2>/dev/null || echo refused"
    )
    assert [line for line in said.splitlines() if not line.startswith("federator:")] == ["10001", "refused"]
    for name in ("agent", "dispatcher"):
        began = time.monotonic()
        podman("stop", f"--time={GRACE_S}", name)
        assert time.monotonic() - began < GRACE_S
        assert podman("inspect", "--format={{.State.ExitCode}}", name).strip() == "0", podman("logs", name)

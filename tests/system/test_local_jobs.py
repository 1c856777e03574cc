"""Real processes: a site whose dispatcher is gone admits jobs by its allotment, its agent is killed meanwhile, and afterwards it is all in the ledger."""

import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.secured import Secured
from tests.support.waiting import wait_until

pytestmark = pytest.mark.system

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {limit: {gpus: 4}}
---
apiVersion: federator/v1
kind: Allotment
metadata: {name: north}
spec: {sites: [north], queue: default, users: [ada], gpu_hours: 2, max_duration: 30m, after: 1s}
"""


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Names of sockets are short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder) / "s"


def job_file(place: Secured, name: str, run: str, **fields: Any) -> str:
    path = place.folder / f"{name}.yaml"
    path.write_text(json.dumps({"name": name, "run": run, "resources": {"gpus": 1}, **fields}))
    return str(path)


class Site:
    """A dispatcher and a site with three GPUs, whose agent takes jobs at a socket."""

    def __init__(self, place: Secured, socket: Path) -> None:
        self.place = place
        self.socket = socket
        me = pwd.getpwuid(os.geteuid()).pw_name
        pool = {
            "name": "main",
            "model": "A100",
            "gpus_per_node": 3,
            "cpus_per_node": 8,
            "memory_per_node": "8GiB",
        }
        self.file = place.site(pools=[pool], local_submit={"users": {me: "ada"}, "socket": str(socket)})
        place.join(self.file)
        place.start(self.file)
        place.until_ready()
        policies = place.folder / "policies.yaml"
        policies.write_text(POLICIES)
        applied = place.command("policy", "apply", str(policies), "--reason", "test")
        assert applied.returncode == 0, applied.stdout
        journal = place.folder / "north/journal"
        wait_until(lambda: "Allotment/north" in journal.read_text(), "the allotment")

    def local(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.place.run("federator", "local", *words, "--socket", str(self.socket))

    def admitted(self, file: str) -> str:
        """The id, once it is admitted."""
        answers: list[str] = []

        def admits() -> bool:
            answer = self.local("submit", file)
            answers.append(answer.stdout.strip())
            return answer.returncode == 0

        wait_until(admits, "the site to admit a job")
        return answers[-1]

    def rows(self) -> dict[str, dict[str, Any]]:
        listed = json.loads(self.local("list", "-o", "json").stdout)
        return {row["name"]: row for row in listed["jobs"]}

    def becomes(self, job: str, status: str) -> None:
        wait_until(lambda: status in self.place.command("show", job).stdout, f"{job} to be {status}")


def test_jobs_of_a_cut_off_site_are_run_once_and_counted(tmp_path: Path, sockets: Path) -> None:
    with Secured(tmp_path) as place:
        site = Site(place, sockets)
        central = job_file(place, "central", f"while [ ! -e {tmp_path}/told ]; do sleep 0.1; done")
        assert place.command("submit", central).returncode == 0
        site.becomes("central", "RUNNING")
        short = job_file(place, "short", "echo at the site; sleep 1")
        refused = site.local("submit", short)
        assert (refused.returncode, "this site is connected" in refused.stdout) == (5, True), refused.stdout

        place.processes.kill("dispatcher")
        long = job_file(place, "long", "sleep 600")
        ids = {"short": site.admitted(short), "long": site.admitted(long)}
        third = site.local("submit", job_file(place, "third", "true", resources={"gpus": 2}))
        assert "no room" in third.stdout, third.stdout
        waited = site.local("wait", "short")
        assert waited.returncode == 0, waited.stdout
        assert site.local("logs", "short").stdout == "at the site\n"
        place.processes.kill("agent-north")
        place.start(site.file)
        wait_until(lambda: site.local("list").returncode == 0, "the agent to answer again")
        wait_until(lambda: site.rows()["long"]["status"] == "RUNNING", "the long job to be found")
        assert site.rows()["short"]["status"] == "SUCCEEDED"

        place.serve()
        site.becomes(ids["long"], "RUNNING")
        site.becomes(ids["short"], "SUCCEEDED")
        assert place.command("logs", ids["short"]).stdout == "at the site\n"
        over = site.local("cancel", "long")
        assert "the dispatcher has it" in over.stdout, over.stdout
        assert place.command("cancel", ids["long"]).returncode == 0
        site.becomes(ids["long"], "CANCELLED")
        (tmp_path / "told").touch()
        assert place.command("wait", "central").returncode == 0, "what was planned went on"
        _adds_up(place, ids)


def _adds_up(place: Secured, ids: dict[str, str]) -> None:
    """Each job is there once, is ada's, and what they have used is what the ledger has of her."""
    listed = json.loads(place.command("list", "-o", "json").stdout)
    assert sorted(row["name"] for row in listed) == ["central", "long", "short"]
    shown = {name: json.loads(place.command("show", ids[name], "-o", "json").stdout)["job"] for name in ids}
    assert {job["owner"] for job in shown.values()} == {"ada"}
    assert all(job["gpu_s"] > 0.9 for job in shown.values())
    used = json.loads(place.command("usage", "--by", "user", "--everybody", "-o", "json").stdout)
    (ada,) = [row for row in used["rows"] if row["user"] == "ada"]
    assert ada["gpu_s"] == pytest.approx(sum(job["gpu_s"] for job in shown.values()))

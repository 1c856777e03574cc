"""What a real dispatcher has decided and had to do, decided and simulated again with the command, as a platform engineer would."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from federator.cli.demo.federation import DemoFederation
from federator.client.jobs import JobFilter
from federator.model.jobs import JobStatus
from tests.support.waiting import until

pytestmark = pytest.mark.system

JOBS = 6
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 60m, met_deadline_usd_per_gpu_hour: 5}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: night}
spec: {max_duration: 60m}
"""
SITE = {"site": "lab", "kind": "onprem", "pools": [{"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 2, "cpus_per_node": 16}]}  # fmt: skip


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class Operator:
    """Somebody with the command and an administrator's token."""

    def __init__(self, federation: DemoFederation, home: Path) -> None:
        self._environment = {
            **os.environ,
            "HOME": str(home),
            "FEDERATOR_SERVER": federation.server,
            "FEDERATOR_TOKEN": federation.admin_token,
        }

    async def run(self, *words: str) -> Ran:
        """One command, to its end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "federator",
            *words,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ran(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    """Beside a dispatcher and one site of two GPUs, at which a handful of quick jobs have run one after another."""
    federation = DemoFederation(tmp_path / "federation", 1.0)
    federation.folder.mkdir()
    try:
        await federation.start_dispatcher()
        await federation.apply_policies(POLICIES)
        await federation.start_sites([SITE])
        for number in range(JOBS):
            job = {
                "name": f"quick-{number % 2}",
                "run": "sleep 1",
                "env": {"GREETING": "hunter2"},
                "queue": ("default", "night")[number % 2],
                "resources": {"gpus": 2},
                "estimate": "20s",
                "finish_within": "30m",
            }
            await federation.admin.submit(job)

        async def over() -> bool:
            rows = (await federation.admin.jobs(JobFilter())).jobs
            return len(rows) == JOBS and all(row.status == JobStatus.SUCCEEDED for row in rows)

        await until(over, "all jobs to have succeeded", limit_s=180.0)
        yield Operator(federation, tmp_path)
    finally:
        await federation.end()


async def test_decisions_policies_and_purchases_are_replayed(operator: Operator, tmp_path: Path) -> None:
    """One federation for all of it: it takes longer to come up than to be asked."""
    await _decisions(operator, tmp_path)
    await _policies(operator, tmp_path)
    await _purchase(operator, tmp_path)


async def _decisions(operator: Operator, folder: Path) -> None:
    ran = await operator.run("decisions", "replay", "--last", "20", "-o", "json")
    verdicts = json.loads(ran.out)
    assert ran.code == 0, ran.out
    assert sum(verdict["actions"] for verdict in verdicts) >= JOBS
    assert all(verdict["identical"] for verdict in verdicts)
    one, file = verdicts[-1]["decision"], folder / "problem.json.gz"
    assert (await operator.run("decisions", "show", one, "--problem", str(file))).code == 0
    assert (await operator.run("decisions", "replay", str(file))).out == "identical\n"
    assert (await operator.run("decisions", "replay", one, "--at-dispatcher")).out == "identical\n"


async def _policies(operator: Operator, folder: Path) -> None:
    proposed, figures, page = folder / "proposed", folder / "figures.json", folder / "page.html"
    proposed.mkdir()
    (proposed / "only.yaml").write_text(POLICIES.split("---", maxsplit=1)[0])
    ran = await operator.run(
        "policy", "replay", "-f", str(proposed), "--since", "1h", "--json", str(figures), "--report", str(page)
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
    assert "proposed: Queue/night is removed" in ran.out
    contrast = json.loads(figures.read_text())["contrast"]
    assert (contrast["total"]["before"]["jobs"], contrast["total"]["before"]["refused"]) == (JOBS, 0)
    assert contrast["total"]["after"]["refused"] == JOBS // 2
    assert [row["queue"] for row in contrast["queues"]] == ["default", "night"]
    assert "Queue/night is removed" in page.read_text()
    ran = await operator.run(
        "policy", "replay", "-f", str(proposed), "--since", "1h", "--json", str(figures), "--at-dispatcher"
    )
    assert ran.code == 0, ran.err + ran.out
    assert "proposed: Queue/night is removed" in ran.out
    assert json.loads(figures.read_text())["contrast"]["total"]["after"]["refused"] == JOBS // 2


async def _purchase(operator: Operator, folder: Path) -> None:
    world, trace = folder / "world.yaml", folder / "trace.csv"
    ran = await operator.run(
        "simulate", "--from-live", "--since", "1h", "--add-pool", "lab=2xA100x5", "--save-world", str(world), "--save-trace", str(trace)
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
    assert "what if: 5 hosts of 2 A100 more at lab" in ran.out
    assert "hunter2" not in world.read_text() + trace.read_text()
    assert len(trace.read_text().splitlines()) == JOBS + 1
    again = await operator.run("simulate", "--world", str(world), "--trace", str(trace), "--drain", "mars")
    assert again.code == 2
    assert "there are lab" in again.err

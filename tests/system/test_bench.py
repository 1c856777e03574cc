"""`python -m tests.bench` measures at a tiny scale what it measures at the usual one. Nothing here asks how fast anything is."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.harness import SCENARIOS
from tests.testbeds.console import lacking
from tests.testbeds.kubernetes.cluster import missing as no_kubernetes
from tests.testbeds.required import need
from tests.testbeds.slurm import Slurm, missing

FIGURES = {
    "submit": (
        "submit one by one, 32 clients",
        "submit one by one, time of an answer, p99",
        "submit one by one, dispatcher's CPU",
        "submit as NDJSON",
        "submit as NDJSON, dispatcher's CPU",
    ),
    "start": (
        "submit to process started, median",
        "submit to process started, p95",
        "submit to end of a no-op job, median",
        "the command `federator submit`",
    ),
    "finish": (
        "no-op jobs end to end",
        "no-op job, dispatcher's CPU",
        "no-op job, solver's CPU",
        "no-op job, agent's CPU",
        "no-op job, CPU of the job's own processes",
    ),
    "memory": (
        "idle agent, memory",
        "idle dispatcher, memory",
        "idle solver, memory",
        "idle agent, CPU",
        "idle dispatcher, CPU",
    ),
    "fleet": (
        "fleet, 10,000 running, CPU",
        "fleet, 10,000 running and a trickle, CPU",
        "fleet, 10,000 running, memory",
        "fleet, 1,000 sites joined and linked",
        "fleet, 1,000 sites joined and linked, CPU",
        "fleet, 1,000 idle sites, CPU",
        "fleet, 1,000 idle sites, memory",
        "fleet, the verb `sites` at 1,000 sites",
        "fleet, a job to site 777 of 1,000",
        "fleet, 1,000 agents back after a restart",
        "fleet, slowest answer meanwhile",
        "fleet, attempts per agent",
    ),
    "backlog": (
        "queued, list, first page, p99",
        "queued, list, by label, p99",
        "queued, show, p99",
        "queued, explain, far back, p99",
        "queued, memory after filling",
        "queued, restart to serving",
        "queued, no-op jobs beside them",
        "queued, memory after work",
    ),
    "etcd": (
        "SQLite: submit, 64 clients",
        "SQLite: submit as NDJSON",
        "etcd: submit, 64 clients",
        "etcd: submit, 64 clients, dispatcher's CPU",
        "etcd: submit, one client, median",
        "etcd: submit as NDJSON",
        "etcd: puts of 1 KiB, 64 at once",
        "etcd: leader's kill -9 to the next accepted job",
        "etcd: leader's SIGTERM to the next accepted job",
    ),
    "federatedjobs": (
        "objects applied with no operator",
        "FederatedJobs applied and submitted",
        "FederatedJobs applied, submitted and mirrored",
        "the operator's CPU until it is submitted",
    ),
    "slurm": (
        "Slurm: sbatch, 32 at once",
        "Slurm: the command sbatch",
        "Slurm: submit to process started, median",
        "Slurm: no-op jobs end to end",
    ),
    "gangs": (
        "Slurm: gangs of 2 by sbatch",
        "Slurm: sbatch to first rank begun, one gang",
        "gangs of 2 on Slurm",
        "submit to accepted by sbatch, median",
        "submit to first rank begun on Slurm, median",
    ),
    "console": (
        "first view, one site, files",
        "first view, 1,000 sites",
        "page plan",
        "plan, a frame on average",
        "answer, a plan of 5,000 bars, median",
        "a turn, nobody follows",
        "a turn, 50 follow",
    ),
    "verbs": ("the program `python -c pass`", "the verb `list`", "the verb `exec`", "the verb `exec`, CPU"),
    "array": (
        "array, submit",
        "array, show, its last task",
        "array, cancel, all",
        "array, dispatcher's memory after",
    ),
    "archive": (
        "archive, rows written",
        "archive, list --since, the last hundredth",
        "archive, usage by user and month",
        "archive, most memory",
    ),
    "neighbour": ("0 nobody: answers, p99", "4 YAML: answers, p99", "7 jobs: answers, p99"),
}
NEED_SLURM = ("slurm", "gangs")
LARGE = ("backlog", "etcd", "federatedjobs", "fleet", "gangs", "neighbour")
"""Start many processes or wait for terms to run out, however small the scale: `make nightly` has them."""


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, marks=pytest.mark.slow if each in LARGE else ()) for each in FIGURES],
)
def test_each_scenario_does_its_work_and_reports_its_figures(scenario: str, tmp_path: Path) -> None:
    if scenario in NEED_SLURM:
        need(missing())
    if scenario == "federatedjobs":
        need(no_kubernetes())
    if scenario == "console":
        need(lacking())
    report = tmp_path / "report.md"
    command = [sys.executable, "-m", "tests.bench", scenario, "--runs=1", "--scale=0.01"]
    done = subprocess.run([*command, f"--report={report}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[0].removeprefix("| ") for line in report.read_text().splitlines()]
    for name in FIGURES[scenario]:
        assert name in rows
        assert name in done.stdout
    assert "run 1 of 1" in done.stderr, "whoever watches is told how far it is"


def test_every_scenario_is_tried() -> None:
    assert set(FIGURES) == set(SCENARIOS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("tests.bench sumbit", "no scenario sumbit; there are archive,"),
        ("tests.bench --runs 0", "--runs must be at least 1"),
        ("tests.bench --scale nan", "--scale must be a number above 0"),
        ("tests.bench.solver --sites 2", "required: --jobs"),
        ("tests.bench.solver --jobs 0 --sites 2", "--jobs: must be at least 1"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(words: str, told: str) -> None:
    command = [sys.executable, "-m", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.system
@pytest.mark.timeout(900)
async def test_a_real_slurm_runs_a_job_and_leaves_nothing(tmp_path: Path) -> None:
    need(missing())
    out = tmp_path / "out"
    async with Slurm(tmp_path / "slurm", cpus=4) as slurm:
        job = await slurm.submit("#!/bin/sh\necho done by $SLURM_JOB_ID\n", f"--output={out}")
        await slurm.idle()
        pids = [slurm.pid(daemon) for daemon in ("slurmctld", "n0")]
        await slurm.submit("#!/bin/sh\nsleep 1000\n", f"--output={tmp_path}/endless")
        while not (await slurm.command("squeue", "--noheader", "--states=RUNNING")).strip():
            pass
    assert out.read_text() == f"done by {job}\n"
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
    assert not [line for line in _command_lines() if str(tmp_path) in line and "sleep" in line]


def _command_lines() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            found.append(environment.replace(b"\0", b" ").decode(errors="replace"))
    return found

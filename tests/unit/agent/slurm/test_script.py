"""What Slurm is asked for: tasks that may share nodes, time and memory that the cluster takes, and nothing that a shell could misread."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from federator.model.jobs import Accelerators, Resources
from federator.model.placements import DesiredEntry, Order
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import PlacementRecord
from federator_agent.slurm.script import SlurmPool, batch_script, command_script, sbatch_options
from federator_agent.slurm.settings import Account

TARGET = SlurmPool(
    "gpu", "a100", None, node_cpus=32, node_gpus=8, node_memory_mib=64000, default_memory=False
)


def _options(
    need: Resources, target: SlurmPool = TARGET, account: Account | None = None, **fields: Any
) -> set[str]:
    entry = DesiredEntry(
        placement="plc-1",
        job="job-1",
        job_name="x",
        epoch=2,
        spec_hash="",
        order=Order.RUN,
        ranks=(0, 1),
        pool="gpu",
        **fields,
    )
    slots = tuple(Slot(rank, "gpu", "n0", (), 0, 0) for rank in (0, 1))
    return set(sbatch_options(PlacementRecord(entry=entry, slots=slots), need, target, account or Account()))


def test_a_gang() -> None:
    need = Resources(gpus=Accelerators(count=4), cpus_milli=2500, memory_mib=1000)
    assert _options(need, max_duration_s=3600.0, grace_s=60.0) == {
        "--parsable",
        "--no-requeue",
        "--job-name=plc-1",
        "--comment=federator job=job-1 epoch=2",
        "--partition=gpu",
        "--ntasks=2",
        "--cpus-per-task=3",
        "--gpus-per-task=a100:4",
        "--mem-per-cpu=334M",
        "--time=67",
    }


@pytest.mark.parametrize(
    ("need", "target", "memory"),
    [
        (Resources(cpus_milli=8000), TARGET, "--mem-per-cpu=2000M"),
        (Resources(gpus=Accelerators(count=2), cpus_milli=1000), TARGET, "--mem-per-cpu=16000M"),
        (Resources(cpus_milli=1000), TARGET._replace(default_memory=True), ""),
    ],
)
def test_who_asks_for_no_memory_gets_a_share(need: Resources, target: SlurmPool, memory: str) -> None:
    found = {option for option in _options(need, target) if option.startswith("--mem")}
    assert found == ({memory} if memory else set())


@pytest.mark.parametrize(
    ("max_time_s", "max_duration_s", "limit"),
    [(None, None, "UNLIMITED"), (7200.0, None, "120"), (3660.0, 3600.0, "61"), (None, 1.0, "6")],
)
def test_the_time_limit(max_time_s: float | None, max_duration_s: float | None, limit: str) -> None:
    target = TARGET._replace(max_time_s=max_time_s)
    assert f"--time={limit}" in _options(Resources(), target, max_duration_s=max_duration_s)


def test_in_whose_name() -> None:
    options = _options(Resources(), account=Account(account="res", qos="low", partition="polite", user="ada"))
    assert {"--account=res", "--qos=low", "--partition=polite", "--uid=ada"} <= options
    assert "--partition=gpu" not in options


def test_nodes_that_are_left_out() -> None:
    assert "--exclude=n[0-3],m1" in _options(Resources(), TARGET._replace(exclude="n[0-3],m1"))


def test_an_untyped_gpu() -> None:
    need = Resources(gpus=Accelerators(count=1))
    assert "--gpus-per-task=1" in _options(need, TARGET._replace(gpu_type=""))


def test_a_command_is_taken_word_for_word(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    words = ["printf", "%s|", "a b", "$HOME", "'\"", "x=y", "$(date)", "\n", "é"]
    script = command_script(words, {"ODD": "a 'b' $C", "with.dot": "1"})
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode() == "".join(f"{word}|" for word in words[2:])
    script = command_script(["printenv", "ODD", "with.dot"], {"ODD": "a 'b' $C", "with.dot": "1"})
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"a 'b' $C\n1\n"


def test_what_a_command_is_given_is_in_no_command_line(tmp_path: Path) -> None:
    """Which all users of a node can read. What a shell does not take from a script is: none of it is a secret."""
    (tmp_path / "work").mkdir()
    given = {
        "TOKEN": "hush'$x",
        "CDPATH": "/",
        "UID": "12",
        "BASH_ENV": "/no",
        "with.dot": "1",
        "PATH": "/bin",
    }
    script = command_script(["sh=x"], given)
    assert "hush" not in script.splitlines()[-1]
    (tmp_path / "sh=x").write_text("#!/bin/sh\n/usr/bin/tr '\\0' '\\n' </proc/$$/environ; echo \"$@\"; pwd\n")
    (tmp_path / "sh=x").chmod(0o755)
    script = command_script(["sh=x", "a b"], given | {"PATH": str(tmp_path)})
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True, text=True)
    *seen, words, where = done.stdout.splitlines()
    assert {f"{name}={value}" for name, value in given.items() if name not in ("PATH", "with.dot")} <= set(
        seen
    )
    assert (words, where) == ("a b", str(tmp_path / "work")), "whatever CDPATH says"


def test_a_batch_script_runs_once(tmp_path: Path) -> None:
    """A slurmctld that has lost its latest state may start a job again under its old number."""
    folder = tmp_path / "with a blank"
    folder.mkdir()
    script = batch_script(folder, 2, Resources()).replace("srun", "echo srun >>runs; true")
    for code in (0, 77):
        done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
        assert done.returncode == code, done.stderr
    assert (folder / "runs").read_text() == "srun\n"

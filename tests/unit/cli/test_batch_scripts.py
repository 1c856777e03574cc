"""Batch scripts of Slurm come to job files, and what has no place there is said."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from federator.api.problems import problem_of
from federator.cli.batch_scripts import read_script
from federator.cli.jobfiles import is_script
from federator.cli.sbatch_values import deadline_of, seconds_of
from federator.kernel.errors import Invalid
from federator.wire.http import Submitted
from federator.wire.jobfile import read_job
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.conftest import Command


def job_of(*lines: str, body: str = "echo hi", shell: str = "/bin/sh") -> tuple[dict[str, Any], str]:
    """The job file without what runs, and the notes in one text."""
    document, notes = read_script(Path("dir/train.sbatch"), "\n".join((f"#!{shell}", *lines, body, "")))
    assert isinstance(document.value, dict)
    read_job({key: value for key, value in document.value.items() if key != "workdir"}, now=0.0)
    return {key: value for key, value in document.value.items() if key not in ("run", "command")}, "\n".join(
        notes
    )


SBATCH: list[tuple[str, dict[str, object]]] = [
    ("--job-name=my job", {"name": "my"}),
    ('-J "my job"', {"name": "my-job"}),
    ("-a 1-10:3%2", {"array": "1-10:3%2"}),
    ("--time=90", {"max_duration": "1h30m"}),
    ("-t1-12", {"max_duration": "1d12h"}),
    ("--nodes=4 --gpus=16", {"nodes": 4, "resources": {"gpus": 4}}),
    ("-N2-4", {"nodes": 4, "min_nodes": 2, "max_nodes": 4}),
    ("--gres=gpu:a100:2", {"resources": {"gpus": "A100:2"}}),
    ("--gres=gpu", {"resources": {"gpus": 1}}),
    ("--gpus-per-node=h100:8", {"resources": {"gpus": "H100:8"}}),
    ("--ntasks-per-node=4 --gpus-per-task=1 -c 6", {"resources": {"gpus": 4, "cpus": 24}}),
    ("-n 8 --ntasks-per-node=4", {"nodes": 2, "resources": {"cpus": 4}}),
    ("-G 2 --cpus-per-gpu=8", {"resources": {"gpus": 2, "cpus": 16}}),
    ("--mem=64G", {"resources": {"memory": "64GiB"}}),
    ("--mem=1500", {"resources": {"memory": "1500MiB"}}),
    ("-c 4 --mem-per-cpu=2G", {"resources": {"cpus": 4, "memory": "8GiB"}}),
    ("-G 2 --mem-per-gpu=40G", {"resources": {"gpus": 2, "memory": "80GiB"}}),
    (
        "-d afterok:a:b,afternotok:c,aftercorr:d",
        {"after": {"ok": ["a", "b"], "failed": ["c"], "each": ["d"]}},
    ),
    ("--signal=B:SIGUSR1@120", {"checkpoint": {"signal": "USR1", "grace": "120s"}}),
    ("--export=NONE,A=1,B=x", {"env": {"A": "1", "B": "x"}}),
    ("--container-image=docker://nvcr.io#nvidia/pytorch:24.01", {"image": "nvcr.io/nvidia/pytorch:24.01"}),
    ("--mail-type=END,FAIL,ARRAY_TASKS", {"notify": ["end", "fail"]}),
    ("--mail-type=NONE", {}),
    ("-L matlab@server:2,ansys", {"licenses": {"matlab": 2, "ansys": 1}}),
    ("--requeue --chdir=/data  # as always", {"workdir": "/data"}),
]


@pytest.mark.parametrize(("line", "fields"), SBATCH, ids=[line for line, _ in SBATCH])
def test_an_sbatch_line_comes_to_fields_of_a_job_file(line: str, fields: dict[str, object]) -> None:
    found, _ = job_of(f"#SBATCH {line}")
    assert found == {"name": "train", **fields}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SBATCH -p gpu", "line 2: --partition is left out: queues here are named by --queue"),
        ("#SBATCH --frobnicate=3", "line 2: --frobnicate is left out"),
        ("#SBATCH --mail-type END,STAGE_OUT", "--mail-type=STAGE_OUT is left out: write notify"),
        ("#SBATCH --export=ALL", "your environment does not go along"),
        ("#SBATCH -d singleton", "--dependency singleton is left out"),
        ("#SBATCH -N 2", "on every node, not on the first alone"),
        ("#SBATCH --ntasks=4", "once per node, not 4 times"),
        ("srun python train.py", "starts its work with srun"),
        ("module load cuda", "loads modules"),
        ("#BSUB -n 4", "line 2: #BSUB is of another scheduler and counts for nothing: write #SBATCH"),
        ("ls\n#SBATCH -N 2", "line 3: #SBATCH after the first command counts for nothing"),
    ],
)
def test_what_has_no_place_in_a_job_file_is_said(line: str, said: str) -> None:
    assert said in job_of(line)[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SBATCH --time=soon", "line 2: 'soon' is not a time limit"),
        ("#SBATCH --nodes=two", "--nodes 'two' is not a whole number"),
        ("#SBATCH --mem=much", "'much' is not an amount of memory"),
        ("#SBATCH -N 3 --gpus=4", "4 GPUs are not as many on each of 3 nodes"),
        ('#SBATCH --job-name="open', "line 2: No closing quotation"),
    ],
)
def test_a_value_that_cannot_be_read_is_told_with_its_line(line: str, said: str) -> None:
    with pytest.raises(Invalid, match=said.replace("'", ".")):
        job_of(line)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/bin/sh", {"run": "[ 1 ]\n"}),
        ("#!/bin/bash", {"command": ["bash", "-c", "[ 1 ]\n"]}),
        ("#!/bin/sh -e", {"command": ["sh", "-e", "-c", "[ 1 ]\n"]}),
    ],
)
def test_each_script_is_run_by_its_own_shell(first: str, expected: dict[str, object]) -> None:
    document, _ = read_script(Path("dir/train.sbatch"), f"{first}\n[ 1 ]\n")
    assert document.value == {"name": "train"} | expected


def test_what_runs_is_the_script_by_its_own_shell_with_the_variables_that_it_reads() -> None:
    text = "#!/bin/bash -l\n#SBATCH -a 0-3\n# kept\necho $SLURM_ARRAY_TASK_ID ${SLURM_JOB_ID}\n"
    document, _ = read_script(Path("x.sbatch"), text)
    assert isinstance(document.value, dict)
    *shell, script = document.value["command"]
    assert shell == ["bash", "-l", "-c"]
    assert script.splitlines() == [
        'export SLURM_ARRAY_TASK_ID="$FEDERATOR_ARRAY_INDEX"',
        'export SLURM_JOB_ID="$FEDERATOR_JOB_ID"',
        "# kept",
        "echo $SLURM_ARRAY_TASK_ID ${SLURM_JOB_ID}",
    ]
    python, _ = read_script(Path("x.sbatch"), "#!/usr/bin/env python3\nprint(1)\n")
    assert isinstance(python.value, dict)
    assert python.value["command"] == ["python3", "-c", "print(1)\n"]


def test_a_folder_goes_along_where_the_script_names_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    for body, taken in (
        ("python train.py --lr 1", True),
        ("python other.py", False),
        ("cat /etc/train.py", False),
    ):
        document, notes = read_script(tmp_path / "x.sbatch", f"#!/bin/sh\n{body}\n")
        assert isinstance(document.value, dict)
        assert ("workdir" in document.value) is taken
        assert bool(notes) is taken


def test_a_script_is_told_from_a_job_file() -> None:
    assert is_script(Path("x.sh"), "#!/bin/sh\n")
    assert is_script(Path("x.sbatch"), "echo")
    assert not is_script(Path("job.yaml"), "# a job\nrun: x\n")


def test_times_are_as_slurm_has_them() -> None:
    given = ("90", "1:30", "2:00:00", "1-12", "1-12:30", "0-0:0:5", "1:30:15")
    assert [seconds_of(text) for text in given] == [5400, 90, 7200, 129600, 131400, 5, 5415]
    now = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    assert deadline_of("18:00", now) == "2026-11-23T18:00:00+00:00"
    assert deadline_of("9:30", now) == "2026-11-24T09:30:00+00:00"
    assert deadline_of("2026-12-01T08:00:00Z", now) == "2026-12-01T08:00:00+00:00"
    with pytest.raises(ValueError, match="25:00"):
        deadline_of("25:00", now)


def test_a_script_is_not_refused_for_its_mail(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --mail-type=END\ntrue\n")

    async def take(request: web.Request) -> web.StreamResponse:
        if "notify" in await request.json():
            raise_for = Invalid("there is no address for ada", field="$.notify", remedy="leave it out")
            return web.Response(
                status=400,
                body=msgspec.json.encode(problem_of(raise_for)),
                content_type="application/problem+json",
            )
        return web.Response(status=201, body=msgspec.json.encode(Submitted(("job-1",), "train")))

    fake.handle("POST /v1/jobs", take)
    ran = federator("submit", str(tmp_path / "train.sbatch"))
    assert (ran.code, ran.out) == (0, "job-1\n"), ran.err
    assert "note: notify is left out: there is no address for ada" in ran.err
    (tmp_path / "job.yaml").write_text("run: x\nnotify: [end]\n")
    assert federator("submit", str(tmp_path / "job.yaml")).code == 2

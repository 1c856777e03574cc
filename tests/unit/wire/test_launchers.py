"""`framework:` and `success:` of a job file: what each rank runs, beside what was asked for, and what is refused."""

import ast
import shutil
import subprocess
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import FIRST, Framework, JobSpec
from federator.wire.jobfile import encode_spec, read_job
from federator.wire.launchers import NAMES
from federator.wire.needs import LAUNCHERS, needs_of

RUN = "python train.py --lr 0.1"


def spec(framework: object, **fields: Any) -> JobSpec:
    return read_job({"run": RUN, "nodes": 2, "framework": framework} | fields, now=0.0).spec


@pytest.mark.parametrize("name", NAMES)
def test_the_record_has_what_was_asked_and_what_runs(name: str) -> None:
    of = spec(name)
    assert (of.run, of.framework, of.name) == (RUN, Framework(name), "train")
    assert of.launch
    assert of.launch[-3:] == ("/bin/sh", "-c", RUN), "the launcher, with the command inside"
    assert needs_of(of) == (LAUNCHERS,)
    by_words = read_job({"command": ["python", "train.py"], "framework": name}, now=0.0).spec
    assert by_words.launch
    assert by_words.launch[-2:] == ("python", "train.py")
    assert by_words.launch[:-2] == of.launch[:-3], "of the command nothing but the place at the end"
    assert msgspec.json.decode(encode_spec(of), type=JobSpec) == of


@pytest.mark.parametrize("name", NAMES)
def test_a_launcher_is_a_program_that_parses(name: str) -> None:
    launch = spec(name).launch or ()
    if launch[0] == "python3":
        ast.parse(launch[2])
    else:
        shell = shutil.which("dash") or "sh"
        subprocess.run([shell, "-n", "-c", launch[2]], check=True)


def test_a_job_without_one_is_as_it_was() -> None:
    of = read_job({"run": RUN}, now=0.0).spec
    assert {"framework", "launch", "success"} & set(msgspec.to_builtins(of)) == set()
    assert needs_of(of) == ()


@pytest.mark.parametrize(
    ("name", "success"),
    [(name, FIRST if name in ("mpi", "ray", "dask", "spark") else None) for name in NAMES],
)
def test_whose_end_is_the_jobs_comes_with_the_framework(name: str, success: str | None) -> None:
    assert (spec(name).success or None) == success
    assert spec(name, success=FIRST).success == FIRST
    assert read_job({"run": RUN, "success": "all"}, now=0.0).spec.success is msgspec.UNSET


def test_options_are_of_the_frameworks_that_have_them() -> None:
    of = spec({"name": "torchrun", "processes": 4, "restarts": 3})
    assert of.framework == Framework("torchrun", processes=4, restarts=3)
    assert (of.launch or ())[2].startswith("processes=4\nrestarts=3\n")
    assert (spec({"name": "mpi", "processes": 4}).launch or ())[3] == "4"


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"framework": "tourchrun"}, "$.framework", "did you mean torchrun?"),
        ({"framework": {"name": "rai"}}, "$.framework.name", "did you mean ray?"),
        ({"framework": {"processes": 2}}, "$.framework.name", "is missing"),
        ({"framework": {"name": "ray", "processes": 2}}, "$.framework.processes", "it is for torchrun, deepspeed and mpi"),
        ({"framework": {"name": "mpi", "restarts": 2}}, "$.framework.restarts", "it is for torchrun"),
        ({"framework": {"name": "mpi", "processes": 0}}, "$.framework.processes", "from 1 to 1024"),
        ({"framework": {"name": "mpi", "procs": 2}}, "$.framework.procs", "processes"),
        ({"framework": "ray", "success": "all"}, "$.success", "write first"),
        ({"success": "last"}, "$.success", "write all or first"),
        ({"launcher": "ray"}, "$.launcher", "did you mean framework?"),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_field_and_what_would_do(
    document: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_job({"run": RUN} | document, now=0.0)
    assert refused.value.field == field
    assert words in refused.value.describe()

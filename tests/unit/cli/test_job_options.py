"""Options that say what a job is go before what its file says, the same for `submit`, `preview` and `run`."""

import json
import time
from pathlib import Path

import pytest

from federator.kernel.quantities import parse_instant
from federator.wire.http import Preview, Submitted
from federator.wire.yamltext import read_document
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.conftest import Command
from tests.unit.cli.test_commands import explanation

FILE = "run: x\nenv: {A: '1', B: '2'}\nresources: {gpus: 2, cpus: 4}\nfinish_within: 2h\npriority: 10\nplacement: {sites: [a], kinds: [cloud]}\n"


@pytest.fixture
def job_yaml(tmp_path: Path) -> str:
    (tmp_path / "job.yaml").write_text(FILE)
    return str(tmp_path / "job.yaml")


def _sent(fake: FakeDispatcher) -> bytes:
    """The job that was submitted last; whether its sites are there is asked after it."""
    return next(heard.body for heard in reversed(fake.heard) if heard.method == "POST")


def test_options_go_before_what_the_file_says(
    federator: Command, fake: FakeDispatcher, job_yaml: str
) -> None:
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "x"), 201)
    words = (
        "--gpus",
        "8",
        "--deadline",
        "2099-12-01T08:00:00Z",
        "--env",
        "B=3",
        "--after",
        "any:y",
        "--array",
        "0-9%2",
        "--licenses",
        "matlab:2,ansys",
        "--site",
        "north",
    )
    assert federator("submit", "-f", job_yaml, *words).code == 0
    assert json.loads(fake.heard[0].body) == {
        "run": "x",
        "env": {"A": "1", "B": "3"},
        "resources": {"gpus": "8", "cpus": 4},
        "deadline": "2099-12-01T08:00:00Z",
        "priority": 10,
        "after": {"any": ["y"]},
        "array": "0-9%2",
        "licenses": {"matlab": 2, "ansys": 1},
        "placement": {"sites": ["north"], "kinds": ["cloud"]},
    }
    before = time.time()
    assert federator("submit", "-f", job_yaml, "--deadline", "2h").code == 0
    deadline = parse_instant(json.loads(_sent(fake))["deadline"])
    assert before + 7199 <= deadline <= time.time() + 7200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--priority", "800"), "$.priority: cannot be 800"),
        (
            ("--licenses", "matlab:0"),
            "--licenses: matlab: '0' is not a whole number above 0 (write NAME:COUNT",
        ),
        (("--deadline", "2x"), "or how long from now, such as 2h"),
        (("--deadline", "25:99"), "--deadline: '25:99' is not an instant"),
        (("--env", "A"), "--env: 'A' gives no value"),
        (("--after", "when:y"), "when"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_is_sent(
    federator: Command, fake: FakeDispatcher, job_yaml: str, words: tuple[str, ...], said: str
) -> None:
    ran = federator("submit", job_yaml, *words)
    assert ran.code == 2
    assert said in ran.err
    assert not fake.heard


def test_to_yaml_prints_the_job_file_and_submits_nothing(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -G 2 -p gpu\nset -e\npython -m train\n")
    ran = federator("submit", str(script), "--to-yaml", "--name", "mine")
    assert "note: line 2: --partition is left out" in ran.err
    assert read_document(ran.out).value == {
        "name": "mine",
        "resources": {"gpus": 2},
        "command": ["bash", "-c", "set -e\npython -m train\n"],
    }
    assert "- |\n  set -e\n  python -m train\n" in ran.out
    assert not fake.heard


def test_a_dry_run_is_a_preview(federator: Command, fake: FakeDispatcher, job_yaml: str) -> None:
    fake.answer("POST /v1/preview", Preview("x", "research", explanation(), 1.5))
    for words in (
        ("submit", job_yaml, "--dry-run"),
        ("preview", job_yaml, "--gpus", "8"),
        ("run", "--dry-run", "--", "ls"),
    ):
        assert "Nothing was submitted." in federator(*words).out
    assert [heard.path for heard in fake.heard] == ["/v1/preview"] * 3
    assert json.loads(fake.heard[1].body)["resources"] == {"gpus": "8", "cpus": 4}


def test_run_follows_one_job(federator: Command, fake: FakeDispatcher) -> None:
    assert "--array: run follows one job" in federator("run", "--array", "0-9", "--", "ls").err
    fake.answer("POST /v1/jobs", Submitted(("job-1", "job-2"), "ls"), 201)
    assert federator("run", "--array", "0-1", "--detach", "--", "ls").out == "job-1\njob-2\n"


def test_the_image_the_setup_and_the_folder_may_be_given_too(
    federator: Command, fake: FakeDispatcher, job_yaml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is relative to where the command is typed, and `none` leaves out the file's."""
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path)
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "x"), 201)
    words = ("--image", "pytorch:2", "--setup", "pip install .", "--estimate", "90m")
    given = {"image": "pytorch:2", "setup": "pip install .", "estimate": "90m"}
    assert federator("submit", "-f", job_yaml).code == 0
    before = _sent(fake)
    assert federator("submit", "-f", job_yaml, *words).code == 0
    assert json.loads(_sent(fake)) == {**json.loads(before), **given}
    assert federator("run", "--detach", *words, "--", "true").code == 0
    assert json.loads(_sent(fake)) == {"command": ["true"]} | given
    as_yaml = federator("submit", "-f", job_yaml, "--workdir", "code", "--to-yaml").out
    assert f"workdir: {tmp_path / 'code'}\n" in as_yaml
    with_folder = tmp_path / "with.yaml"
    with_folder.write_text("run: x\nworkdir: code\n")
    without = federator("submit", "-f", str(with_folder), "--workdir", "none", "--to-yaml").out
    assert read_document(without).value == {"run": "x"}
    refused = federator("submit", "-f", job_yaml, "--workdir", "cod")
    assert (refused.code, "there is no folder" in refused.err) == (2, True)

"""Secrets are the site's: found by name, for whom it says, and never told in an error."""

from pathlib import Path
from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import JobSpec
from federator.model.whose import Whose
from federator.wire.decoding import decode
from federator_agent.secrets import Secret, Secrets, check, secrets_of, variables
from federator_agent.staging_errors import StagingError, StagingRefused

SPEC = JobSpec(name="job", run="x", secrets=("wandb", "hub"))


def _known(tmp_path: Path, **texts: str) -> dict[str, Secret]:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: Secret(file=tmp_path / name) for name in texts}


def test_lines_become_variables(tmp_path: Path) -> None:
    known = _known(
        tmp_path,
        wandb="# a key\n\nWANDB_KEY=a=b c\nexport WANDB_MODE='on line'\n",
        hub='TOKEN="x"\nWANDB_MODE=off\n',
    )
    assert variables(known, SPEC) == {"WANDB_KEY": "a=b c", "WANDB_MODE": "off", "TOKEN": "x"}


@pytest.mark.parametrize("text", ["hush hush\n", "1A=hush\n", "A=1\nhush"])
def test_what_is_not_a_variable_is_named_by_its_line_alone(tmp_path: Path, text: str) -> None:
    with pytest.raises(StagingError, match=r"'wandb', line [12]") as error:
        variables(_known(tmp_path, wandb=text, hub=""), SPEC)
    assert "hush" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    known = {"wandb": Secret(file=tmp_path / "none"), "hub": Secret(kubernetes="hub")}
    with pytest.raises(StagingError, match="'wandb' cannot be read"):
        variables(known, SPEC)


def test_one_that_the_site_does_not_have_or_give(tmp_path: Path) -> None:
    known = _known(tmp_path, wandb="")
    with pytest.raises(StagingRefused, match="'hub'"):
        check(known, SPEC, Whose("research"))
    known["hub"] = Secret(file=tmp_path / "hub", queues=("research/vision",))
    check(known, SPEC, Whose("research/vision/a"))
    with pytest.raises(StagingRefused, match="only to queue research/vision"):
        check(known, SPEC, Whose("research"))


@pytest.mark.parametrize(
    ("written", "kube", "field"),
    [
        ({"w": {"kubernetes": "x"}}, False, r"\$\.secrets\.w"),
        ({"w": {"file": "/x"}}, True, r"\$\.secrets\.w"),
        ({"w": {"file": "/x", "kubernetes": "x"}}, False, r"\$\.secrets\.w"),
        ({"w": {"path": "/x"}}, False, r"\$\.secrets\.w\.path"),
        ({"w w": "/x"}, False, r"\$\.secrets"),
        (["w"], False, r"\$\.secrets"),
    ],
)
def test_a_site_file_that_is_wrong_says_where(written: Any, kube: bool, field: str) -> None:
    with pytest.raises(Invalid, match=field):
        secrets_of(decode(written, Secrets, "$.secrets"), "$.secrets", kube=kube)


def test_short_and_long_ways_to_write_one() -> None:
    found = secrets_of(
        decode({"a": "/etc/a.env", "b": {"file": "/b", "queues": ["research"]}}, Secrets, "$.secrets"),
        "$.secrets",
        kube=False,
    )
    assert found == {"a": Secret(file=Path("/etc/a.env")), "b": Secret(file=Path("/b"), queues=("research",))}
    assert secrets_of(decode({"a": "name"}, Secrets, "$.secrets"), "$.secrets", kube=True) == {
        "a": Secret(kubernetes="name")
    }

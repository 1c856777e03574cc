"""Inputs that are outputs of other jobs: what is written comes out, the job follows those, and each mistake is named with its field."""

from typing import Any

import pytest
from msgspec import UNSET

from federator.kernel.errors import Invalid
from federator.kernel.globs import may_hold
from federator.model.jobs import Follows, InputFrom, JobSpec
from federator.wire.jobfile import JobRequest, encode_spec, read_job
from federator.wire.needs import OUTPUTS, needs_of


def request(inputs: Any, **fields: Any) -> JobRequest:
    return read_job({"run": "true", "inputs": inputs, **fields}, now=0.0)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"from": "train"}, InputFrom("train", "train")),
        ({"from": "train", "output": "results/model.pt"}, InputFrom("train", "model.pt", "results/model.pt")),
        ({"from": "train", "output": "./results/"}, InputFrom("train", "results", "results")),
        ({"from": "train", "output": "."}, InputFrom("train", "train")),
        ({"from": "train", "output": "model.pt", "name": "start"}, InputFrom("train", "start", "model.pt")),
    ],
)
def test_what_is_written_is_read_and_the_job_follows_it(written: Any, read: InputFrom) -> None:
    found = request(written)
    assert found.spec.inputs_from == (read,)
    assert found.spec.inputs is UNSET
    assert (found.after, found.after_how) == (("train",), ())
    assert needs_of(found.spec) == (OUTPUTS,)


def test_what_after_says_of_that_job_holds() -> None:
    inputs = ["s3://team/set", {"from": "a"}, {"from": "b"}, {"from": "sweep"}]
    found = request(inputs, after={"any": "b", "each": "sweep"}, array="0-1")
    assert dict(zip(found.after, found.after_how, strict=True)) == {
        "a": Follows.OK,
        "b": Follows.ANY,
        "sweep": Follows.EACH,
    }
    assert found.spec.inputs_from
    assert [each.each for each in found.spec.inputs_from] == [False, False, True]


def test_a_job_that_reads_no_outputs_has_the_spec_that_it_always_had() -> None:
    assert b"inputs_from" not in encode_spec(JobSpec(name="job", run="true"))


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"from": "train", "uri": "s3://team/x"}, "$.inputs[0].uri"),
        ({"from": "train", "size": "1GB"}, "$.inputs[0].size"),
        ({"uri": "s3://team/x", "output": "x"}, "$.inputs[0].output"),
        ({"uri": "s3://team/x", "name": "x"}, "$.inputs[0].name"),
        ({"size": "1GB"}, "$.inputs[0].uri"),
        ({"from": "no name"}, "$.inputs[0].from"),
        ({"from": "train", "output": "../secret"}, "$.inputs[0].output"),
        ({"from": "train", "output": "/etc/passwd"}, "$.inputs[0].output"),
        ({"from": "train", "output": "~/x"}, "$.inputs[0].output"),
        ({"from": "train", "output": "x" * 1001}, "$.inputs[0].output"),
        ({"from": "train", "name": "../up"}, "$.inputs[0].name"),
        ([{"from": "train"}, {"from": "train"}], "$.inputs[1]"),
        (["s3://team/train", {"from": "train"}], "$.inputs[1]"),
    ],
)
def test_mistakes_are_named(written: Any, field: str) -> None:
    with pytest.raises(Invalid) as error:
        request(written)
    assert error.value.field == field
    assert error.value.remedy or "characters" in error.value.message


@pytest.mark.parametrize(
    ("pattern", "path", "may"),
    [
        ("results/**", "results", True),
        ("results/**", "results/a/b.pt", True),
        ("results/*.pt", "results", True),
        ("results/*.pt", "results/model.pt", True),
        ("results/*.pt", "results/model.txt", False),
        ("results", "results/deep/x", True),
        ("results/**", "weights", False),
        ("**/x.pt", "any/where", True),
        ("a/b", "a/c", False),
    ],
)
def test_which_patterns_may_hold_an_output(pattern: str, path: str, may: bool) -> None:
    assert may_hold([pattern], path) is may

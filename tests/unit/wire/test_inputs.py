"""`inputs` of a job file: what is written comes out, and each mistake is named with its field and what would be right."""

from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Input, JobSpec
from federator.wire.jobfile import encode_spec, read_job


def inputs(value: Any) -> Any:
    return read_job({"run": "true", "inputs": value}, now=0.0).spec.inputs


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            [{"uri": "s3://datasets/imagenet", "size": "150GB"}],
            (Input("s3://datasets/imagenet", 150 * 10**9),),
        ),
        ([{"uri": "https://host.example/a.tar"}], (Input("https://host.example/a.tar"),)),
        (["file:///data/x/"], (Input("file:///data/x"),)),
        ("s3://b-1", None),
        ({"uri": "s3://data", "size": "1GiB"}, (Input("s3://data", 2**30),)),
        (["s3://one", "s3://two"], (Input("s3://one"), Input("s3://two"))),
    ],
)
def test_what_is_written_is_read(written: Any, read: tuple[Input, ...] | None) -> None:
    assert inputs(written) == (read or (Input("s3://b-1"),))


def test_a_job_without_inputs_has_the_spec_and_the_hash_that_it_always_had() -> None:
    for spec in (
        read_job({"run": "true"}, now=0.0).spec,
        read_job({"run": "true", "inputs": []}, now=0.0).spec,
    ):
        assert spec.inputs is msgspec.UNSET
        assert b"inputs" not in encode_spec(spec)


def test_a_spec_with_inputs_is_read_as_it_was_written() -> None:
    spec = read_job({"run": "true", "inputs": [{"uri": "s3://data", "size": "2GB"}]}, now=0.0).spec
    assert msgspec.json.decode(encode_spec(spec), type=JobSpec) == spec


@pytest.mark.parametrize(
    ("written", "field", "says"),
    [
        (4, "$.inputs[0]", "not a text"),
        ([4], "$.inputs[0]", "not a text"),
        (["imagenet"], "$.inputs[0]", "use file, http, https, s3"),
        (["gs://bucket/x"], "$.inputs[0]", "use file, http, https, s3"),
        (["s3:/bucket/x"], "$.inputs[0]", "use file, http, https, s3"),
        (["s3://bucket/a b"], "$.inputs[0]", "not an address"),
        (["s3://B_/x"], "$.inputs[0]", "not the name of a bucket"),
        (["s3:///x"], "$.inputs[0]", "not the name of a bucket"),
        (["https:///x"], "$.inputs[0]", "names no host"),
        (["http://[x"], "$.inputs[0]", "not an address"),
        (["https://me:secret@host.example/x"], "$.inputs[0]", "their own credentials"),
        (["file://host/x"], "$.inputs[0]", "three slashes"),
        (["file:///"], "$.inputs[0]", "three slashes"),
        (["file:///a/../etc"], "$.inputs[0]", "'..'"),
        (["http://x/a/..%2F..%2Fetc"], "$.inputs[0]", "'..'"),
        (["https://x/a?X-Amz-Signature=secret"], "$.inputs[0]", "their own credentials"),
        ([{"size": "1GB"}], "$.inputs[0].uri", "is missing"),
        ([{"uri": "s3://one", "size": 5}], "$.inputs[0].size", "has no unit"),
        ([{"uri": "s3://one", "size": "0GB"}], "$.inputs[0].size", "more than 0"),
        ([{"url": "s3://one"}], "$.inputs[0].url", "did you mean uri?"),
        (["s3://one", "s3://one/"], "$.inputs[1]", "write it once"),
        (["s3://one"] * 101, "$.inputs", "at most 100"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(written: Any, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        inputs(written)
    assert caught.value.field == field
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)

"""Every fault of a document, found by reading it again without what was wrong."""

import pytest

from federator.kernel.errors import Invalid
from federator.wire.faults import MOST, every_fault, raise_all
from federator.wire.jobfile import read_job


def fields(document: object) -> list[str | None]:
    return [fault.field for fault in every_fault(lambda value: read_job(value, now=0.0), document)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"run": "x"}, []),
        ([], ["$"]),
        ({}, ["$.run"]),
        ({"run": "x", "nodes": 0, "priority": 101}, ["$.nodes", "$.priority"]),
        ({"run": "x", "a": 1, "b": 2}, ["$.a", "$.b"]),
        ({"run": "x", "resources": {"gpus": "?", "cpus": "?"}}, ["$.resources.cpus", "$.resources.gpus"]),
        ({"run": "x", "after": [{}], "nodes": "two"}, ["$.after[0]", "$.nodes"]),
        ({"run": "x", "after": ["a", {}, "b", {}]}, ["$.after[1]", "$.after[3]"]),
        (
            {"run": "x", "inputs": ["?", "s3://data/b", {"uri": "s3://data/c", "to": 1}, {"size": "1GiB"}]},
            ["$.inputs[0]", "$.inputs[2].to", "$.inputs[3].uri"],
        ),
        ({"run": "x", "name": "a", "every": {"at": "@dayly"}}, ["$.every.at"]),
    ],
)
def test_each_fault_is_told_once(document: object, expected: list[str]) -> None:
    assert fields(document) == expected


def test_what_is_missing_because_something_above_it_was_taken_out_is_no_fault() -> None:
    whole = {"keys": {"one": 1, "two": "?"}}

    def read(value: object) -> None:
        keys = value.get("keys", {}) if isinstance(value, dict) else {}
        for key in ("one", "two"):
            if not isinstance(keys.get(key), int):
                raise Invalid("is missing", field=f"$.keys.{key}")

    assert [fault.field for fault in every_fault(read, whole)] == ["$.keys.two"]


def test_it_comes_to_an_end() -> None:
    assert len(fields({"run": "x"} | {f"field{n}": n for n in range(100)})) == MOST


def test_the_document_is_left_as_it_is() -> None:
    document = {"run": "x", "resources": {"gpus": "?"}}
    fields(document)
    assert document == {"run": "x", "resources": {"gpus": "?"}}


def test_one_fault_is_raised_as_itself_and_several_together() -> None:
    raise_all([])
    with pytest.raises(Invalid):
        raise_all([Invalid("a")])
    with pytest.raises(ExceptionGroup):
        raise_all([Invalid("a"), Invalid("b")])

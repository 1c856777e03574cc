"""A file with `steps` is read as a whole: its jobs in order, and each mistake with its field and what would do."""

import time
from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Follows
from federator.wire.faults import every_fault
from federator.wire.jobfile import read_in_lines, read_job
from federator.wire.steps import MOST_STEPS, StepsRequest, read_steps
from federator.wire.yamltext import read_document

PIPELINE = {
    "name": "nightly",
    "queue": "research",
    "resources": {"cpus": 2},
    "steps": {
        "report": {"run": "c", "after": {"any": "train"}, "inputs": {"from": "prepare", "output": "data/x"}},
        "train": {"run": "b", "array": "0-1", "inputs": [{"from": "prepare"}], "queue": "gpu"},
        "prepare": {"run": "a", "outputs": ["data/**"]},
    },
}


def read(steps: dict[str, Any], **more: Any) -> StepsRequest:
    return read_steps({"name": "nightly", **more, "steps": steps}, now=0.0)


def test_steps_come_behind_those_that_they_follow_with_what_holds_for_all() -> None:
    found = read_steps(PIPELINE, now=0.0)
    assert [step.name for step in found.steps] == ["prepare", "train", "report"]
    prepare, train, report = (step.request for step in found.steps)
    assert (prepare.spec.name, prepare.queue, train.queue) == ("nightly.prepare", "research", "gpu")
    assert {each.spec.resources.cpus_milli for each in (prepare, train, report)} == {2000}
    assert train.after == ("nightly.prepare",)
    assert train.spec.inputs_from
    assert train.spec.inputs_from[0].job == "nightly.prepare"
    assert train.spec.inputs_from[0].name == "prepare", "as its file calls it"
    assert dict(zip(report.after, report.after_how, strict=True)) == {
        "nightly.train": Follows.ANY,
        "nightly.prepare": Follows.OK,
    }


@pytest.mark.parametrize(
    ("steps", "field", "says"),
    [
        ({}, "$.steps", "not a mapping"),
        ([{"run": "a"}], "$.steps", "not a mapping"),
        ({"a": 4}, "$.steps.a", "not a job file"),
        ({"a.b": {"run": "a"}}, "$.steps", "dot"),
        ({"a b": {"run": "a"}}, "$.steps", "a b"),
        ({"a" * 60: {"run": "a"}}, f"$.steps.{'a' * 60}", "name"),
        ({"a": {}}, "$.steps.a.run", "nothing to run"),
        ({"a": {"run": "a", "gpus": 1}}, "$.steps.a.gpus", "resources.gpus"),
        ({"a": {"run": "a", "name": "x"}}, "$.steps.a.name", "does not go"),
        ({"a": {"run": "a", "every": "6h"}}, "$.steps.a.every", "does not go"),
        ({"a": {"run": "a", "steps": {}}}, "$.steps.a.steps", "does not go"),
        ({"a": {"run": "a", "after": "a"}}, "$.steps.a.after", "itself"),
        ({"prepare": {"run": "a"}, "b": {"run": "b", "after": "prepaer"}}, "$.steps.b.after", "did you mean prepare?"),
        ({"a": {"run": "a"}, "b": {"run": "b", "inputs": {"from": "other"}}}, "$.steps.b.inputs", "by its id"),
        (
            {"a": {"run": "a", "after": "c"}, "b": {"run": "b", "after": "a"}, "c": {"run": "c", "after": ["b"]}},
            "$.steps.a.after",
            "a after c after b after a",
        ),
        ({"a": {"run": "a"}, "b": {"run": "b", "inputs": {"from": "a"}}}, "$.steps.b.inputs", "collects no outputs"),
        (
            {
                "a": {"run": "a", "outputs": "x/*.pt"},
                "c": {"run": "a", "outputs": "model"},
                "b": {"run": "b", "inputs": {"from": "a", "output": "model"}},
            },
            "$.steps.b.inputs",
            "write from: c",
        ),
        (
            {"a": {"run": "a", "array": "0-3"}, "b": {"run": "b", "array": "0-4", "after": {"each": "a"}}},
            "$.steps.b.after",
            "not all indices",
        ),
        ({"a": {"run": "a", "array": "0-3"}, "b": {"run": "b", "after": {"each": "a"}}}, "$.steps.b.after", "not an array"),
        ({str(n): {"run": "a"} for n in range(MOST_STEPS + 1)}, "$.steps", f"at most {MOST_STEPS}"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_what_would_do(steps: Any, field: str, says: str) -> None:
    with pytest.raises(Invalid) as error:
        read(steps)
    assert error.value.field == field
    assert says in f"{error.value.message}; {error.value.remedy}"


@pytest.mark.parametrize(
    "field", ["run", "command", "groups", "array", "after", "inputs", "every", "overlap"]
)
def test_what_is_of_one_step_does_not_stand_beside_them(field: str) -> None:
    with pytest.raises(Invalid) as error:
        read({"a": {"run": "a"}}, **{field: "x"})
    assert error.value.field == f"$.{field}"


def test_a_mistake_beside_the_steps_is_told_there_and_all_mistakes_are_told() -> None:
    with pytest.raises(Invalid) as error:
        read({"a": {"run": "a"}}, priority=1000)
    assert error.value.field == "$.priority"
    document = {"name": "n", "steps": {"a": {"run": "a", "nodes": 0}, "b": {"run": "b", "after": "x"}}}
    faults = every_fault(lambda value: read_steps(value, now=0.0), document)
    assert {fault.field for fault in faults} == {"$.steps.a.nodes", "$.steps.b.after"}


@pytest.mark.parametrize(
    "document",
    [
        {"steps": None},
        {"name": "n", "steps": []},
        {"name": "n", "steps": {}},
        {"name": "n", "steps": {str(n): {"run": "a"} for n in range(MOST_STEPS + 1)}},
        {"steps": {"a": {"run": "a"}}},
        {"name": 4, "steps": {1: {"run": "a"}, None: 3}},
        {"name": "n", "steps": {"a": {"inputs": [{"from": {}}], "after": {"each": 3}}}},
        {"name": "n", "client_id": 3, "steps": {"a": {"run": "a"}}},
    ],
)
def test_whatever_is_wrong_is_told_when_all_of_it_is_asked_for(document: Any) -> None:
    faults = every_fault(lambda value: read_steps(value, now=0.0), document)
    assert faults
    assert all(fault.field and fault.message for fault in faults)


def test_a_duplicated_step_and_any_other_mistake_have_their_line() -> None:
    with pytest.raises(Invalid, match=r"line 4.*twice"):
        read_document("name: n\nsteps:\n  a: {run: x}\n  a: {run: y}\n")
    document = read_document("name: n\nsteps:\n  a: {run: x}\n  b:\n    run: y\n    after: c\n")
    with pytest.raises(Invalid, match="line 6"):
        read_in_lines(document, lambda value: read_steps(value, now=0.0))


def test_ten_thousand_steps_are_refused_at_once() -> None:
    steps = {f"s{number}": {"run": "a", "after": f"s{number - 1}"} for number in range(10_000)}
    began = time.process_time()
    with pytest.raises(Invalid, match="has 10000 steps"):
        read(steps)
    assert time.process_time() - began < 1.0


def test_where_one_job_is_wanted_a_pipeline_is_told_to_be_one() -> None:
    with pytest.raises(Invalid, match="one job is wanted") as error:
        read_job(PIPELINE, now=0.0)
    assert error.value.field == "$.steps"

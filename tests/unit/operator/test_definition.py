"""The definition of FederatedJob: a structural schema with every field of the job file that an object may have."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from federator.operator.definition import (
    COLUMNS,
    POLICY_COLUMNS,
    SITE_COLUMNS,
    definition,
    site_definition,
    structural_of,
)
from federator.operator.objects import LEFT_OUT, Status
from federator.operator.policies import PolicyStatus
from federator.operator.sites import SiteStatus
from federator.wire.jobfile import JobFile

SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
MARKS = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
KNOWN = {
    "additionalProperties", "description", "enum", "exclusiveMinimum", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minimum", "pattern", "properties", "required", "type", *MARKS,
}  # fmt: skip


def nodes(schema: dict[str, Any], path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name], f"{path}.{name}")


def test_each_field_has_one_type_or_is_open_and_nothing_that_kubernetes_does_not_know() -> None:
    for path, node in nodes(SCHEMA):
        assert set(node) <= KNOWN, path
        assert isinstance(node.get("type"), str) != any(mark in node for mark in MARKS), path
        assert "(?" not in node.get("pattern", ""), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_it_has_all_of_the_job_file_but_what_the_object_itself_stands_for() -> None:
    written = set(SCHEMA["properties"]["spec"]["properties"])
    assert written == {each.encode_name for each in msgspec.structs.fields(JobFile)} - set(LEFT_OUT)
    assert all(
        SCHEMA["properties"]["spec"]["properties"][name].get("description")
        for name in written - {"placement", "retry"}
    )


def test_bounds_forms_and_words_are_those_of_the_job_file() -> None:
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert (spec["priority"]["minimum"], spec["priority"]["maximum"]) == (0, 100)
    assert spec["spot_policy"]["enum"] == ["auto", "on-demand", "spot"]
    assert spec["command"]["items"] == {"x-kubernetes-int-or-string": True}
    assert "stop_within" in spec["on_disconnect"]["description"]
    assert spec["checkpoint"]["properties"]["grace"]["type"] == "string"


def test_the_spec_of_a_site_is_checked_by_the_api_server() -> None:
    schema = site_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]
    assert (spec["drained"]["type"], spec["why"]["maxLength"]) == ("boolean", 500)
    for path, node in nodes(schema):
        assert set(node) <= KNOWN, path


@pytest.mark.parametrize(
    ("columns", "record"), [(COLUMNS, Status), (POLICY_COLUMNS, PolicyStatus), (SITE_COLUMNS, SiteStatus)]
)
def test_each_column_shows_a_field_that_there_is(
    columns: tuple[tuple[str, str, str, int, str], ...], record: type[msgspec.Struct]
) -> None:
    status = structural_of(record)["properties"]
    for _, path, kind, _, _ in columns:
        part, _, name = path.removeprefix(".").partition(".")
        if part == "status":
            assert status[name]["type"] == kind, path

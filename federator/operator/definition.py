"""The definitions of `FederatedJob`, `FederatedPolicy` and `FederatedSite` for the API server. The schema of the former is that of the job file, so `kubectl explain` and the checks of `kubectl apply` are the job file's own.

Kubernetes takes a part of JSON Schema, a "structural" one: each field has one type. Where a job file takes several forms the field is left open, its description
says which, and the dispatcher checks it. `make docs` writes the result into `deploy/kubernetes`.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from federator.operator import policies, sites
from federator.operator.objects import GROUP, KIND, LEFT_OUT, PLURAL, SHORT, VERSION, Status
from federator.wire.jobfile import JobFile
from federator.wire.schema import NULL, in_words, one_line, record_schema
from federator.wire.yamltext import write_document
from federator_policies.documents import KINDS

_KEPT = ("description", "enum", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minimum")  # fmt: skip
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}
_WORKDIR = "The content of a folder that was uploaded before, as `sha256:…`."
COLUMNS = (
    ("Phase", ".status.phase", "string", 0, "How far it is"),
    ("Site", ".status.site", "string", 0, "Where it is, or was last"),
    ("Reason", ".status.reason", "string", 0, "Why it waits, or is as it is"),
    ("Start", ".status.expectedStart", "string", 0, "When it should start"),
    ("Finish", ".status.expectedFinish", "string", 0, "When it should be done"),
    ("USD", ".status.costUsd", "string", 0, "What it has cost so far"),
    ("Age", ".metadata.creationTimestamp", "date", 0, "Since when the object is there"),
    ("Job", ".status.job", "string", 1, "Its id at the dispatcher"),
    ("Message", ".status.message", "string", 1, "The reason as a sentence"),
)


POLICY_COLUMNS = (
    ("Kind", ".spec.kind", "string", 0, "The kind of the document"),
    ("Phase", ".status.phase", "string", 0, "What became of it"),
    ("Version", ".status.version", "integer", 0, "Of the set in which it is in force"),
    ("Age", ".metadata.creationTimestamp", "date", 0, "Since when the object is there"),
    ("Message", ".status.message", "string", 1, "What is wrong with it, or why it waits"),
)


SITE_COLUMNS = (
    ("Phase", ".status.phase", "string", 0, "How it is"),
    ("GPUs", ".status.gpus", "number", 0, "How many it has"),
    ("Free", ".status.free", "number", 0, "How many of them are not in use"),
    ("Running", ".status.running", "integer", 0, "How many jobs run there"),
    ("Drained", ".status.drained", "boolean", 0, "Whether nothing new starts there"),
    ("Agent", ".status.version", "string", 0, "The versions of its agents"),
    ("Age", ".metadata.creationTimestamp", "date", 0, "Since when the object is there"),
    ("Kind", ".status.kind", "string", 1, "What sort of place it is"),
    ("Region", ".status.region", "string", 1, "Where it is"),
    ("Runtime", ".status.runtime", "string", 1, "What runs the work there"),
    ("Gang", ".status.largestGang", "string", 1, "The largest gang that fits now"),
    ("Link", ".status.link", "string", 1, "The round trip between it and the dispatcher"),
    ("Message", ".status.message", "string", 1, "Why it is so"),
)


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition of `FederatedJob`."""
    said = "A job of Federator. `spec` is a job file; deleting the object cancels the job."
    names = (KIND, PLURAL, SHORT)
    return _definition(names, "Namespaced", said, _spec(), Status, COLUMNS)


def policy_definition() -> dict[str, Any]:
    """The CustomResourceDefinition of `FederatedPolicy`."""
    said = "A policy document of Federator. All objects together are the set of policies."
    spec = structural_of(policies.PolicySpec)
    spec["properties"]["kind"]["enum"] = sorted(KINDS)
    spec["properties"]["spec"] = _OPEN | {
        "type": "object",
        "description": spec["properties"]["spec"]["description"],
    }
    names = (policies.KIND, policies.PLURAL, policies.SHORT)
    return _definition(names, "Cluster", said, spec, policies.PolicyStatus, POLICY_COLUMNS)


def site_definition() -> dict[str, Any]:
    """The CustomResourceDefinition of `FederatedSite`."""
    said = "A site of Federator: its status says how it is, its spec whether it is drained."
    names = (sites.KIND, sites.PLURAL, sites.SHORT)
    spec = structural_of(sites.SiteSpec)
    return _definition(names, "Cluster", said, spec, sites.SiteStatus, SITE_COLUMNS)


def _definition(
    called: tuple[str, str, str],
    scope: str,
    said: str,
    spec: dict[str, Any],
    status: type[msgspec.Struct],
    shown: Iterable[tuple[str, str, str, int, str]],
) -> dict[str, Any]:
    columns = [
        {"name": name, "jsonPath": path, "type": kind, "priority": priority, "description": says}
        for name, path, kind, priority, says in shown
    ]
    schema = {
        "type": "object",
        "description": said,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_of(status),
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    kind, plural, short = called
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
        "categories": ["all"] if scope == "Namespaced" else [],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }


def written() -> str:
    """All as a file."""
    documents = (definition(), policy_definition(), site_definition())
    return "# Written from the code by `make docs`.\n" + "---\n".join(map(write_document, documents))


def _spec() -> dict[str, Any]:
    spec = structural_of(JobFile)
    for name in LEFT_OUT:
        del spec["properties"][name]
    spec["properties"]["workdir"]["description"] = _WORKDIR
    return spec


def structural_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """The structural schema of a record."""
    schema = record_schema(record)
    return _structural({"$ref": schema["$ref"]}, schema["$defs"])


def _structural(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    described = {"description": one_line(schema["description"])} if "description" in schema else {}
    if "$ref" in schema:
        return _structural(parts[schema["$ref"].rpartition("/")[2]], parts) | described
    if "anyOf" in schema:
        left = [each for each in schema["anyOf"] if each != NULL]
        return _structural(left[0], parts) | described if len(left) == 1 else _open(schema)
    kinds = _kinds(schema)
    if kinds == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True} | described
    if len(kinds) != 1:
        return _open(schema)
    found = {"type": kinds.pop()} | {name: schema[name] for name in _KEPT if name in schema} | described
    if "(?" not in schema.get("pattern", "(?"):  # the API server's expressions know no looking ahead
        found["pattern"] = schema["pattern"]
    return found | _inside(schema, parts)


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The types that it takes, besides nothing."""
    given = schema.get("type", "string" if "enum" in schema else ())
    return ({given} if isinstance(given, str) else set(given)) - {"null"}


def _inside(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """What is in a list or a mapping."""
    if "items" in schema:
        return {"items": _structural(schema["items"], parts)}
    if "properties" in schema:
        fields = {name: _structural(each, parts) for name, each in schema["properties"].items()}
        return {"properties": fields} | (
            {"required": list(schema["required"])} if schema.get("required") else {}
        )
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return {"additionalProperties": _structural(values, parts) if isinstance(values, dict) else _OPEN}
    return {}


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """Several forms: their description says which."""
    forms = re.sub(r"\s+", " ", in_words(schema))
    said = schema.get("description", "")
    return _OPEN | {"description": one_line(f"{said} Written as {forms}.")}

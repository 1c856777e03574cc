"""The published JSON Schema of policy documents, for editors: one for all kinds, told apart by `kind`."""

from collections.abc import Mapping

from federator.ports import PolicyKind
from federator_policies.documents import API_VERSION, KINDS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def document_schema(kinds: Mapping[str, PolicyKind] = KINDS) -> dict[str, object]:
    """JSON Schema of one document of any of these kinds."""
    definitions: dict[str, object] = {}
    documents = []
    for name, kind in sorted(kinds.items()):
        described = kind.schema()
        own = described.pop("$defs", {})
        assert isinstance(own, dict), "msgspec writes definitions as a mapping"
        definitions |= {f"{name}.{part}": _renamed(schema, name) for part, schema in own.items()}
        documents.append(_document(name, _renamed(described, name)))
    return {
        "$schema": DIALECT,
        "title": "A policy of Federator",
        "oneOf": documents,
        "$defs": definitions,
    }


def _document(kind: str, spec: object) -> dict[str, object]:
    name = {"type": "string", "minLength": 1, "maxLength": 63}
    metadata = {
        "type": "object",
        "properties": {"name": name},
        "required": ["name"],
        "additionalProperties": False,
    }
    properties = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": kind},
        "metadata": metadata,
        "spec": spec,
    }
    return {
        "title": kind,
        "type": "object",
        "properties": properties,
        "required": ["apiVersion", "kind", "metadata"],
        "additionalProperties": False,
    }


def _renamed(schema: object, kind: str) -> object:
    """With references into this kind's own definitions."""
    if isinstance(schema, dict):
        return {
            key: f"#/$defs/{kind}.{value.rsplit('/', 1)[1]}" if key == "$ref" else _renamed(value, kind)
            for key, value in schema.items()
        }
    if isinstance(schema, list | tuple):
        return [_renamed(each, kind) for each in schema]
    return schema

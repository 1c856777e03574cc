"""The published JSON Schema of policy documents, for editors: one for all kinds, told apart by `kind`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from federator.ports import PolicyKind
from federator.wire.fields import NAME
from federator.wire.schema import DIALECT, record_schema
from federator_policies.documents import API_VERSION, KINDS


def document_schema(kinds: Mapping[str, PolicyKind] = KINDS) -> dict[str, Any]:
    """JSON Schema of one document of any of these kinds."""
    definitions: dict[str, Any] = {}
    documents = []
    for name, kind in sorted(kinds.items()):
        spec = _renamed(record_schema(kind.spec), name)
        definitions |= {f"{name}.{part}": schema for part, schema in spec.pop("$defs").items()}
        documents.append(_document(name, kind.spec, spec))
    return {"$schema": DIALECT, "title": "A policy of Federator", "oneOf": documents, "$defs": definitions}


def _document(kind: str, spec: Any, schema: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "type": "object",
        "description": "What the document is called.",
        "properties": {"name": {"type": "string", "pattern": f"^{NAME.pattern}$"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    needed = ["spec"] if any(field.required for field in msgspec.structs.fields(spec)) else []
    return {
        "title": kind,
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": metadata,
            "spec": schema,
        },
        "required": ["apiVersion", "kind", "metadata", *needed],
        "additionalProperties": False,
    }


def _renamed(schema: Any, kind: str) -> Any:
    """With references into this kind's own definitions."""
    if isinstance(schema, dict):
        return {
            key: f"#/$defs/{kind}.{value.rsplit('/', 1)[1]}" if key == "$ref" else _renamed(value, kind)
            for key, value in schema.items()
        }
    return [_renamed(each, kind) for each in schema] if isinstance(schema, list | tuple) else schema

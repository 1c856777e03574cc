"""JSON Schema of what people write, for editors and for the reference: of the records that read it, with the words that stand below each field."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.inspect import StructType, Type, type_info

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def file_schema(record: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Of a file that is one record."""
    return {"$schema": DIALECT, "title": title, **record_schema(record)}


def record_schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Of a record, as a reference into `$defs`. Each field is described."""
    schema = msgspec.json.schema(record, schema_hook=lambda _: {"$comment": "anything"})
    for kind in dict.fromkeys(_records(type_info(record))):
        part = schema["$defs"][kind.__name__]
        words = field_docs(kind)
        part["description"] = one_line(kind.__doc__ or "")
        for field in msgspec.structs.fields(kind):
            written = part["properties"][field.encode_name]
            if words.get(field.name):
                written["description"] = words[field.name]
            if written.get("default") is None or "$ref" in written:
                written.pop("default", None)  # of a record, its own fields have them
    return schema


def field_docs(record: type[msgspec.Struct]) -> dict[str, str]:
    """What stands below each field, by the field's name in the code. Python forgets it, so it is read from the source."""
    found: dict[str, str] = {}
    for kind in reversed(record.__mro__[: record.__mro__.index(msgspec.Struct)]):
        (node,) = ast.parse(inspect.getsource(kind)).body
        assert isinstance(node, ast.ClassDef)
        for field, below in pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = _text(below)
    return found


def one_line(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return one_line(str(node.value.value))
    return ""


def _records(kind: Type) -> Iterator[type[msgspec.Struct]]:
    """The records that a type is made of, itself first."""
    if isinstance(kind, StructType):
        yield kind.cls
        for field in kind.fields:
            yield from _records(field.type)
    for name in ("type", "item_type", "value_type"):
        if inner := getattr(kind, name, None):
            yield from _records(inner)
    for each in getattr(kind, "types", ()):
        yield from _records(each)

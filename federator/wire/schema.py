"""JSON Schema of what people write, for editors and for the reference: of the records that read it, with the words that stand below each field."""

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.inspect import StructType, Type, type_info

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NULL = {"type": "null"}
REFERENCE = r'"#/\$defs/([^"]+)"'
"""As it stands in JSON."""
WORDS = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "a mapping",
    "null": "nothing", "anything": "anything",
}  # fmt: skip
BOUNDS = {
    "minimum": "of at least", "exclusiveMinimum": "above", "maximum": "of at most", "exclusiveMaximum": "below", "maxLength": "of at most",
}  # fmt: skip


def file_schema(record: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Of a file that is one record."""
    return {"$schema": DIALECT, "title": title, **record_schema(record)}


def record_schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Of a record, as a reference into `$defs`. Each field is described."""
    schema = type_schema(record)
    for kind in _records(type_info(record), {}):
        if (part := schema["$defs"].get(kind.__name__)) is None:
            continue  # it is written in another way
        words = field_docs(kind)
        part["description"] = one_line(kind.__doc__ or "")
        for field in msgspec.structs.fields(kind):
            written = part["properties"][field.encode_name]
            if words.get(field.name):
                written["description"] = words[field.name]
            if written.get("default") is None or "$ref" in written:
                written.pop("default", None)  # of a record, its own fields have them
    return schema


def type_schema(kind: Any) -> dict[str, Any]:
    """Of any type, without descriptions. What people write otherwise than JSON does is as its reader's type says."""
    schema = msgspec.json.schema(kind, schema_hook=lambda _: {"$comment": "anything"})
    words = {name: part for name, part in schema.get("$defs", {}).items() if "enum" in part}
    found: dict[str, Any] = _written(schema, words)
    parts = found.pop("$defs", {})
    found["$defs"] = {}
    while wanted := set(re.findall(REFERENCE, json.dumps(found, default=str))) - found["$defs"].keys():
        found["$defs"] |= {name: part for name, part in parts.items() if name in wanted}
    return found


def _written(schema: Any, words: Mapping[str, dict[str, Any]]) -> Any:
    """With what `federator.wire.fields` says of its types, and with choices of words where they are."""
    if isinstance(schema, list | tuple):
        return [_written(each, words) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "x-written" in schema:
        return schema["x-written"] | {key: schema[key] for key in ("examples",) if key in schema}
    found = {key: _written(each, words) for key, each in schema.items()}
    for key in found.keys() & BOUNDS.keys():
        # 1e6 and 1_000_000 are one and the same to Python, which keeps the type that was annotated first: that depends on what is imported when.
        if isinstance(bound := found[key], float) and bound.is_integer():
            found[key] = int(bound)
    if (name := found.get("$ref", "").rpartition("/")[2]) in words:
        del found["$ref"]
        found["enum"] = words[name]["enum"]
    if found.pop("x-alone", False):
        found = {"anyOf": [found["items"], found]}
    return found


def in_words(
    schema: dict[str, Any], quote: str = "", see: Callable[[str], str] = lambda _: "a mapping"
) -> str:
    """What may be written, as a person says it. `see`: how a record is named, `quote`: round what is written as it stands."""
    if "anyOf" in schema:
        if schema["anyOf"][0] == schema["anyOf"][1].get("items"):
            return f"{in_words(schema['anyOf'][0], quote, see)}, or a list of such"
        kinds = [in_words(each, quote, see) for each in schema["anyOf"] if each != NULL]
        return " or ".join(dict.fromkeys(kinds))
    if words := schema.get("examples") or choices(schema):
        return _listed([f"{quote}{each}{quote}" for each in words])
    if "$ref" in schema:
        return see(schema["$ref"].rpartition("/")[2])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"a list of {_many(in_words(schema['items'], quote, see))}"
    if kind == "object" and (values := schema.get("additionalProperties")):
        return f"a mapping to {_many(in_words(values, quote, see))}"
    return " or ".join(WORDS[each] for each in ([kind] if isinstance(kind, str) else kind)) + _range(schema)


def _many(words: str) -> str:
    return re.sub(r"\ba (text|number|whole number|mapping|list)", r"\1s", words)


def _range(schema: dict[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {_number(schema['minimum'])} to {_number(schema['maximum'])}"
    said = [f" {words} {_number(schema[key])}" for key, words in BOUNDS.items() if key in schema]
    return " and".join(said) + (" characters" if "maxLength" in schema else "")


def _number(bound: float) -> str:
    return str(int(bound) if float(bound).is_integer() else bound)


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def choices(schema: dict[str, Any]) -> list[str]:
    """The words that may stand there, where it is one of a few."""
    found = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [*map(str, found), *(word for each in schema.get("anyOf", ()) for word in choices(each))]


def example_of(schema: dict[str, Any]) -> str:
    """One value of it."""
    return str([*schema.get("examples", ()), *choices(schema), "…"][0])


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


def _records(kind: Type, found: dict[type[msgspec.Struct], None]) -> Iterable[type[msgspec.Struct]]:
    """The records that a type is made of, besides those that were found before."""
    if isinstance(kind, StructType) and kind.cls not in found:
        found[kind.cls] = None
        for field in kind.fields:
            _records(field.type, found)
    inner = [getattr(kind, name, None) for name in ("type", "item_type", "value_type")]
    for each in [*inner, *getattr(kind, "types", ())]:
        if each is not None:
            _records(each, found)
    return found

"""A decoded mapping into a record, with an error that names the field and the remedy.

Settings of providers and specs of policies are plain records whose fields say it all; msgspec decodes and checks them. What it
says of a mistake is turned here into the sentence that every other error has: where, what, and what would be right.
"""

import re
from typing import TypeVar

import msgspec
from msgspec.inspect import (
    DictType,
    EnumType,
    ListType,
    LiteralType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from federator.kernel.errors import Invalid
from federator.wire.nearest import nearest

T = TypeVar("T")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<want>[^`]*)`, got `(?P<got>[^`]*)`")
_BOUND = re.compile(r"Expected `(?P<want>[a-z]+)` (?P<length>of length )?(?P<than>[<>]=?) (?P<limit>\S+)")
_CHOICE = re.compile(r"Invalid enum value (?P<got>.*)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(?:\d+|\.\.\.)\]")
_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_BOUNDS = {">=": "of at least", ">": "above", "<=": "of at most", "<": "below"}


def decode(value: object, into: type[T], path: str) -> T:
    """`value` as a record of type `into`. Raises `Invalid` with a field below `path`."""
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), into, path) from None


def _invalid(complaint: str, into: type, path: str) -> Invalid:
    what, at, place = complaint.rpartition(" - at `$")
    what, below = (what, place.removesuffix("`")) if at else (complaint, "")
    if unknown := _UNKNOWN.fullmatch(what):
        name = unknown["name"]
        known = _names_at(type_info(into), below)
        near = nearest(name, known)
        remedy = f"did you mean {near}?" if near else f"known are {', '.join(known)}" if known else None
        return Invalid(f"there is no field {name[:80]!r}", field=f"{path}{below}.{name[:80]}", remedy=remedy)
    if missing := _MISSING.fullmatch(what):
        return Invalid("is missing", field=f"{path}{below}.{missing['name']}", remedy="write it")
    if expected := _EXPECTED.fullmatch(what):
        wanted = [word.strip() for word in expected["want"].split("|") if word.strip() != "null"]
        want = " or ".join(_WORDS.get(word, word) for word in wanted)
        got = _WORDS.get(expected["got"], expected["got"])
        names = _names_at(type_info(into), below) if wanted == ["object"] else []
        holds = f"known in it are {', '.join(names)}" if names else None
        return Invalid(f"must be {want}, not {got}", field=f"{path}{below}", remedy=holds)
    if bound := _BOUND.fullmatch(what):
        length = " of a length" if bound["length"] else ""
        want = f"{_WORDS.get(bound['want'], bound['want'])}{length} {_BOUNDS[bound['than']]} {bound['limit'].removesuffix('.0')}"
        return Invalid(f"must be {want}", field=f"{path}{below}")
    if choice := _CHOICE.fullmatch(what):
        kind = _type_at(type_info(into), below)
        values = _values_of(kind)
        remedy = f"write {', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else None
        return Invalid(f"is none of its values: {choice['got'][:80]}", field=f"{path}{below}", remedy=remedy)
    return Invalid(what, field=f"{path}{below}")


def _names_at(kind: Type, below: str) -> list[str]:
    """The field names of the record that `below` leads to."""
    found = _type_at(kind, below)
    return [each.encode_name for each in found.fields] if isinstance(found, StructType) else []


def _type_at(kind: Type, below: str) -> Type | None:
    """What is expected where `below` leads to; None where that depends on what is written there."""
    for step in _STEP.finditer(below):
        kind = _record_in(kind)
        if isinstance(kind, StructType):
            inner = [each.type for each in kind.fields if each.encode_name == step[1]]
            if not inner:  # one of several kinds of records, and not the first of them
                return None
            kind = inner[0]
        elif isinstance(kind, VarTupleType | ListType):
            kind = kind.item_type
        elif isinstance(kind, DictType):
            kind = kind.value_type
    return _record_in(kind)


def _values_of(kind: Type | None) -> list[str]:
    """What may be written there, where it is one of a few words."""
    if isinstance(kind, EnumType):
        return [str(each.value) for each in kind.cls]
    return [str(each) for each in kind.values] if isinstance(kind, LiteralType) else []


def _record_in(kind: Type) -> Type:
    """Of `Record | None`, the record; also of a choice of values."""
    if isinstance(kind, UnionType):
        inner = [
            each
            for each in kind.types
            if isinstance(each, StructType | VarTupleType | ListType | DictType | EnumType | LiteralType)
        ]
        return inner[0] if inner else kind
    return kind

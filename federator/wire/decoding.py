"""A decoded mapping into a record, with an error that names the field and the remedy.

Files, settings, requests and specs of policies are records whose fields say it all. They are walked here, so that each fault is told where it is; what a field holds is
read as its type says (`federator.wire.fields.written`), or else converted by msgspec. What it should have been is told in the words of its JSON Schema.
"""

from collections.abc import Iterable
from functools import cache, partial, reduce
from math import isfinite
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from federator.kernel.errors import Invalid
from federator.wire.fields import Read, shown
from federator.wire.nearest import nearest
from federator.wire.schema import choices, example_of, in_words, type_schema

T = TypeVar("T")
LONGEST_KEY = 80
"""Characters of a key that a path repeats."""
MOST_ENTRIES = 10**6
"""Of a list that says nothing else."""


class _Slot(NamedTuple):
    """A field of a record: its name in the code, its type, how it is read, and whether null is a value there."""

    name: str
    kind: Any
    read: Read
    nullable: bool
    required: bool


def decode(value: object, into: type[T], path: str) -> T:
    """`value` as a record, or another type, `into`. Raises `Invalid`, or what the types of fields raise, with a field at or below `path`."""
    read: T = _reader(into)(value, path)
    return read


def _reader(kind: Any) -> Read:
    """How a value of that type is read."""
    bare, told = _bare(kind)
    args, origin = get_args(bare), get_origin(bare)
    if "read" in told:
        read: Read = told["read"]
        return read
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return _record(bare)
    if origin is tuple:
        return partial(_list, kind, _reader(args[0]))
    if origin is dict:
        return partial(_mapping, kind, _reader(args[0]), _reader(args[1]))
    if origin in (Union, UnionType):
        return _union(args)
    return partial(_plain, kind, kind)


def _bare(kind: Any) -> tuple[Any, dict[str, Any]]:
    """A type without its annotations, and what they say to the reader."""
    if get_origin(kind) is not Annotated:
        return kind, {}
    told: dict[str, Any] = {}
    for meta in kind.__metadata__:
        told |= {"least": meta.min_length or 0, "most": meta.max_length or MOST_ENTRIES} | (meta.extra or {})
    return get_args(kind)[0], told


@cache
def _record(record: type[msgspec.Struct]) -> Read:
    slots = {
        each.encode_name: _Slot(
            each.name, each.type, _reader(each.type), _takes_nothing(each.type), each.required
        )
        for each in msgspec.structs.fields(record)
    }

    tag = record.__struct_config__.tag_field

    def read(value: object, path: str) -> msgspec.Struct:
        if not isinstance(value, dict):
            raise _unlike(record, value, path, slots)
        given = {}
        for key, entry in value.items():
            if key == tag:
                continue
            if key not in slots:
                raise _unknown(key, path, record)
            if entry is not None or slots[key].nullable:
                given[slots[key].name] = slots[key].read(entry, f"{path}.{key}")
        for key, slot in slots.items():
            if slot.required and slot.name not in given:
                example = example_of(type_schema(slot.kind))
                raise Invalid(
                    "is missing", field=f"{path}.{key}", remedy=f"write for example {key}: {example}"
                )
        return record(**given)

    return read


def _unknown(key: object, path: str, record: type[msgspec.Struct]) -> Invalid:
    """A field that nobody acts on; with what other systems' name for it is here, or the nearest known name."""
    if not isinstance(key, str):
        return Invalid(f"the key {shown(key)} is not a text", field=path, remedy=f'quote it: "{shown(key)}"')
    known = [each.encode_name for each in msgspec.structs.fields(record)]
    near = getattr(record, "elsewhere", {}).get(key) or nearest(key, known)
    remedy = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
    name = key[:LONGEST_KEY]
    return Invalid(f"there is no field {name!r}", field=f"{path}.{name}", remedy=remedy)


def _list(kind: Any, read: Read, value: object, path: str) -> tuple[object, ...]:
    told = _bare(kind)[1]
    if told.get("alone") and not isinstance(value, list | tuple):
        value = (value,)
    if not isinstance(value, list | tuple):
        raise _unlike(kind, value, path)
    if len(value) < (least := told.get("least", 0)):
        raise Invalid(f"has {len(value)} entries", field=path, remedy=f"write at least {least}")
    if len(value) > (most := told.get("most", MOST_ENTRIES)):
        raise Invalid(f"has {len(value)} entries; at most {most} are taken", field=path)
    return tuple(read(entry, f"{path}[{index}]") for index, entry in enumerate(value))


def _mapping(kind: Any, read_key: Read, read: Read, value: object, path: str) -> dict[object, object]:
    if not isinstance(value, dict):
        raise _unlike(kind, value, path)
    nothing = _takes_nothing(get_args(_bare(kind)[0])[1])
    found: dict[object, object] = {}
    for key, entry in value.items():
        if entry is not None or nothing:
            where = f"{path}.{str(key)[:LONGEST_KEY]}"
            name = read_key(key, where)
            if name in found:
                raise Invalid(f"{shown(name)} is listed twice", field=where, remedy="keep one of them")
            found[name] = read(entry, where)
    return found


def _takes_nothing(kind: Any) -> bool:
    """Whether null is a value there; elsewhere it is as if nothing had been written."""
    return kind in (object, Any) or NoneType in get_args(_bare(kind)[0])


def _union(kinds: tuple[Any, ...]) -> Read:
    """Of several types the one that the value looks like: a mapping, a list, or a word."""
    some = tuple(each for each in kinds if each not in (NoneType, msgspec.UnsetType))
    readers = {_shape(each): _reader(each) for each in some}
    if any(_bare(each)[1].get("alone") for each in some):
        readers.setdefault("word", readers["list"])
    words = tuple(each for each in some if _shape(each) == "word")
    if len(records := [each for each in some if _shape(each) == "mapping"]) > 1:
        readers["mapping"] = partial(_tagged, {each.__struct_config__.tag: each for each in records})
    if len(some) > 1 and words and not any("read" in _bare(each)[1] for each in words):
        readers["word"] = partial(_plain, reduce(or_, words), reduce(or_, some))
    only = readers[_shape(some[0])] if len(some) == 1 else None

    def read(value: object, path: str) -> object:
        if value is None and NoneType in kinds:
            return None
        if only is not None:
            return only(value, path)
        shape = (
            "mapping" if isinstance(value, dict) else "list" if isinstance(value, list | tuple) else "word"
        )
        if shape not in readers:
            raise _unlike(reduce(or_, some), value, path)
        return readers[shape](value, path)

    return read


def _tagged(records: dict[str, type[msgspec.Struct]], value: Any, path: str) -> object:
    """One of several records, which its tag tells."""
    field = next(iter(records.values())).__struct_config__.tag_field
    tag = value.get(field)
    if not isinstance(tag, str) or tag not in records:
        remedy = f"write {', '.join(records)}"
        raise Invalid(f"cannot be {shown(tag)}", field=f"{path}.{field}", remedy=remedy)
    return _record(records[tag])(value, path)


def _shape(kind: Any) -> str:
    bare, told = _bare(kind)
    if "read" in told:
        return "word"
    if (isinstance(bare, type) and issubclass(bare, msgspec.Struct)) or get_origin(bare) is dict:
        return "mapping"
    return "list" if get_origin(bare) is tuple else "word"


def _plain(kind: Any, whole: Any, value: object, path: str) -> object:
    """What msgspec converts by itself; `whole`: all that may stand there."""
    try:
        found: object = msgspec.convert(value, kind)
    except (ValueError, OverflowError):  # msgspec's own is one; so is a text that is not Unicode
        raise _unlike(whole, value, path) from None
    if isinstance(found, float) and not isfinite(found):
        raise _unlike(whole, value, path)
    return found


def _unlike(kind: Any, value: object, path: str, known: Iterable[str] = ()) -> Invalid:
    """The value is not of that type; `known`: what is in a mapping of it."""
    schema = type_schema(kind)
    near = nearest(value, choices(schema)) if isinstance(value, str) else None
    remedy = f"{f'did you mean {near}? ' if near else ''}write {in_words(schema)}"
    return Invalid(
        f"cannot be {shown(value)}", field=path, remedy=f"{remedy} of {', '.join(known)}" if known else remedy
    )

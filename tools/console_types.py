"""Types of what the API answers, as TypeScript reads them: the console's modules are checked by them, and no browser is sent them.

From the records themselves and not from the OpenAPI document, which does not say which fields an answer leaves out: all are there but those of records
that omit their defaults, and those that may be unset.
"""

import json
from typing import Any, get_args

import msgspec
from msgspec import inspect

from federator.api.routes import ROUTES
from federator.wire.changes import Mark, RentLine, SiteLine, Topic
from federator.wire.http import BudgetRow, LeaseRow, Problem, QueueRow

LIVE: dict[Topic, type[msgspec.Struct]] = dict.fromkeys(get_args(Topic), Mark) | {
    "sites": SiteLine,
    "queues": QueueRow,
    "leases": LeaseRow,
    "budgets": BudgetRow,
    "rent": RentLine,
}
"""The rows of `GET /v1/changes` by topic."""
PLAIN: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any",
    inspect.RawType: "any",
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BytesType: "string",
    inspect.DateTimeType: "string",
}


def console_types() -> str:
    """`api.d.ts`: every record that an answer has, what each path answers, and the rows of each topic."""
    structs: dict[str, inspect.StructType] = {}
    paths = {
        method: [
            f'    "{route.path}": {_written(inspect.type_info(route.answer), structs)};'
            for route in ROUTES
            if route.method == method and route.answer is not None
        ]
        for method in ("GET", "POST")
    }
    rows = [f"    {topic}: {_written(inspect.type_info(kind), structs)};" for topic, kind in LIVE.items()]
    for kind in (Problem, *(route.answer for route in ROUTES if route.answer is not None)):
        _written(inspect.type_info(kind), structs)
    records = [line for name in sorted(structs) for line in _record(name, structs)]
    return "\n".join([
        "// Written from the code by tools.generate_docs, and checked against it by `make lint`. For development: no browser loads it.",
        "declare namespace Api {",
        *records,
        "  /** What GET answers, by path. */",
        "  interface Answers {",
        *paths["GET"],
        "  }",
        "  /** What POST answers, by path. */",
        "  interface Posted {",
        *paths["POST"],
        "  }",
        "  /** Rows of GET /v1/changes, by topic. */",
        "  interface Rows {",
        *rows,
        "  }",
        "}",
        "",
    ])  # fmt: skip


def _record(name: str, structs: dict[str, inspect.StructType]) -> list[str]:
    info = structs[name]
    thin = info.cls.__struct_config__.omit_defaults
    lines = [f"  interface {name} {{"]
    if info.tag_field is not None:
        lines.append(f"    {info.tag_field}: {json.dumps(info.tag)};")
    for field in info.fields:
        may_lack = (thin and not field.required) or _may_be_unset(field.type)
        key = field.encode_name if field.encode_name.isidentifier() else json.dumps(field.encode_name)
        lines.append(f"    {key}{'?' if may_lack else ''}: {_written(field.type, structs)};")
    return [*lines, "  }"]


def _may_be_unset(info: inspect.Type) -> bool:
    return isinstance(info, inspect.UnionType) and any(_is_unset(each) for each in info.types)


def _is_unset(info: inspect.Type) -> bool:
    return isinstance(info, inspect.CustomType) and info.cls is msgspec.UnsetType


def _written(info: inspect.Type, structs: dict[str, inspect.StructType]) -> str:
    """The type in TypeScript; records that it names are put into `structs`, and theirs."""
    match info:
        case inspect.Metadata(type=of):
            return _written(of, structs)
        case inspect.StructType(cls=cls):
            return _name(info, structs, cls)
        case inspect.UnionType(types=types):
            return " | ".join(dict.fromkeys(_written(each, structs) for each in types if not _is_unset(each)))
        case inspect.LiteralType() | inspect.EnumType():
            values = (
                info.values if isinstance(info, inspect.LiteralType) else [each.value for each in info.cls]
            )
            return " | ".join(json.dumps(each) for each in values)
        case inspect.TupleType(item_types=items):
            return f"[{', '.join(_written(each, structs) for each in items)}]"
        case inspect.DictType(value_type=value):
            return f"Record<string, {_written(value, structs)}>"
        case (
            inspect.ListType(item_type=item)
            | inspect.VarTupleType(item_type=item)
            | inspect.SetType(item_type=item)
            | inspect.FrozenSetType(item_type=item)
        ):
            return f"Array<{_written(item, structs)}>"
    return PLAIN.get(type(info), "any")


def _name(info: inspect.StructType, structs: dict[str, inspect.StructType], cls: Any) -> str:
    name: str = cls.__name__
    if name in structs and structs[name].cls is not cls:
        name = f"{cls.__module__.rpartition('.')[2].title()}{name}"
    if name not in structs:
        structs[name] = info
        for field in info.fields:
            _written(field.type, structs)
    return name

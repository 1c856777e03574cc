"""Records for readers: each field with the docstring below it, which Python itself forgets and only the source still has."""

import ast
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

NOTE = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"


class Field(NamedTuple):
    """A field: the name by which it is written, its annotation as in the source, its default."""

    name: str
    annotation: str
    required: bool
    default: Any
    doc: str


class Record(NamedTuple):
    """A class with its docstring and fields, in the order of its source."""

    name: str
    doc: str
    fields: tuple[Field, ...]


def records(module: ModuleType) -> dict[str, Record]:
    """The msgspec structs of a module by name, in the order of its source."""
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        kind = getattr(module, node.name) if isinstance(node, ast.ClassDef) else None
        if isinstance(node, ast.ClassDef) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            fields = tuple(_fields(node, kind))
            found[node.name] = Record(node.name, one_line(ast.get_docstring(node) or ""), fields)
    return found


def one_line(text: str) -> str:
    """Text as it can stand in a row of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def page(parts: Iterable[str]) -> str:
    """A page of Markdown from its parts."""
    return "\n\n".join([NOTE, *parts]) + "\n"


def _fields(node: ast.ClassDef, kind: type[msgspec.Struct]) -> list[Field]:
    known = {each.name: each for each in msgspec.structs.fields(kind)}
    found = []
    for index, statement in enumerate(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = known[statement.target.id]
            below = node.body[index + 1] if index + 1 < len(node.body) else None
            default = field.default_factory() if callable(field.default_factory) else field.default
            annotation = ast.unparse(statement.annotation)
            found.append(Field(field.encode_name, annotation, field.required, default, _text(below)))
    return found


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return one_line(str(node.value.value))
    return ""

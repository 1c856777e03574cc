"""Pages of Markdown, and tables of the fields of records, from their JSON Schema: what editors are told and what the reference says is the same."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from federator.wire.schema import REFERENCE, in_words
from federator.wire.schema import one_line as plain_line

NOTE = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"
Schema = dict[str, Any]


def one_line(text: str) -> str:
    """Text as it can stand in a row of a table."""
    return plain_line(text).replace("|", "\\|")


def page(parts: Iterable[str]) -> str:
    """A page of Markdown from its parts."""
    return "\n\n".join([NOTE, *parts]) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sections(schema: Schema, level: str = "##", of: str = "") -> list[str]:
    """A table of the record that a schema is of; then a heading, words and a table for each record that it is made of, by where it is written. `of`: what stands before that."""
    headings = {name: f"{of}`{path}`" for name, path in paths(schema).items()}

    def see(name: str) -> str:
        if name not in headings:
            return "such a mapping"
        return f"[{headings[name]}](#{re.sub(r'[^a-z0-9 _-]', '', headings[name].lower()).replace(' ', '-')})"

    text = [fields(schema, _name(schema), see)]
    for name, heading in headings.items():
        text += [
            f"{level} {heading}",
            one_line(schema["$defs"][name]["description"]),
            fields(schema, name, see),
        ]
    return text


def paths(schema: Schema) -> dict[str, str]:
    """Of each record that a schema's is made of, where it is first written; in the order in which they are met."""
    found: dict[str, str] = {}

    def look(name: str, path: str) -> None:
        for key, field in schema["$defs"][name]["properties"].items():
            for inner in re.findall(REFERENCE, json.dumps(field)):
                if inner not in found and inner != _name(schema):
                    found[inner] = f"{path}{key}"
                    look(inner, f"{path}{key}.")

    look(_name(schema), "")
    return found


def fields(schema: Schema, name: str, see: Callable[[str], str]) -> str:
    """The fields of one record. `see`: how another is named."""
    part = schema["$defs"][name]
    rows = []
    for key, field in part["properties"].items():
        inner = next(iter(re.findall(REFERENCE, json.dumps(field))), "")
        says = field.get("description") or schema["$defs"].get(inner, {}).get("description")
        if not says and field.keys() == {"enum"}:  # it only tells the kinds of records apart
            says = "Tells its kind."
        if not says:
            raise SystemExit(f"{name}.{key} has no words: write a docstring below it")
        words = in_words(field, "`", see).removeprefix("a ")
        left_out = "needed" if key in part.get("required", ()) else _default(field.get("default"))
        rows.append((f"`{key}`", one_line(words), left_out, one_line(says)))
    return table(("key", "written", "left out", "meaning"), rows)


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "").rpartition("/")[2])


def _default(value: object) -> str:
    if value is None or value in ([], (), {}, ""):
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{json.dumps(value).strip(chr(34))}`"

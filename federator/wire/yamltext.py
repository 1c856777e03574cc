"""YAML of people's files into plain values: version 1.2 scalars, and the line of everything.

Built from the parser's events and not with a loader, because a loader would bring back what a file from outside must not
have: YAML 1.1 words (`on` read as true, `mode: off` as false, `12:30` as 750), tags that make objects, aliases that swell a
kilobyte into a gigabyte, and keys given twice of which one is silently lost.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from federator.kernel.errors import Invalid, TooLarge

MAX_BYTES = 2**20
MAX_DEPTH = 32
MAX_VALUES = 100_000
"""Values, keys and ends of lists and mappings in one text: each costs some microseconds, however short it is."""
MAX_PATH = 500
"""Characters of a path whose line is kept: keys may be long, and each is part of the paths of all that is below it."""
TABS = "indent with blanks, not with tabs"
ONE_COLUMN = "begin the keys of one mapping, and the dashes of one list, in one column"
REMEDIES = (
    (
        "mapping values are not allowed",
        "quote a value that has ': ' in it, and begin the keys of one mapping in one column",
    ),
    ("\\t", TABS),
    ("tab character", TABS),
    ("end of stream", "close the quote or the bracket"),
    ("expected ',' or", "close the bracket, or write a comma between two entries"),
    ("could not find expected ':'", "write 'key: value', with a blank after the colon"),
    ("cannot start any token", "quote a value that begins with this character"),
    ("expected <block end>", ONE_COLUMN),
    ("expected key", ONE_COLUMN),
    ("expected '-'", ONE_COLUMN),
    ("escape", "write the text in single quotes, or double the backslash"),
)
"""By a part of what the parser says."""
ANY_REMEDY = "look at the quotes, brackets and indentation there"
_INT = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C is twenty times as fast; where it is missing, a thread is kept busy for longer."""


_STR_TAG = "tag:yaml.org,2002:str"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes each text that YAML 1.1 or 1.2 would read as something else; writes no anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML asks of each value
        """Whether a value that comes again is written again."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Several lines as they are, below a `|`, where YAML can have them so."""
    return dumper.represent_scalar(_STR_TAG, text, style="|" if "\n" in text else None)


class _Numbers:
    """What the reader takes for a number, in the form in which PyYAML asks."""

    def match(self, text: str) -> bool:
        """Whether the whole text is one."""
        return bool(_INT.fullmatch(text) or _FLOAT.fullmatch(text))


_Dumper.add_representer(str, _text)
_Dumper.add_implicit_resolver("number", _Numbers(), list("-+.0123456789"))


class Document(NamedTuple):
    """One document of a file. `lines` has the line (from 1) of every value, under paths such as `$.resources.gpus`."""

    value: object
    lines: dict[str, int]


class _Open(NamedTuple):
    """A mapping or sequence that is being read."""

    path: str
    into: dict[object, object] | list[object]
    pending: list[object]
    """The key that waits for its value: none or one."""


def read_documents(text: str) -> list[Document]:
    """All documents of a YAML text. Raises `Invalid` with the line, or `TooLarge`."""
    if len(text) > MAX_BYTES:
        raise TooLarge(f"the file has {len(text)} characters; at most {MAX_BYTES} are read")
    documents: list[Document] = []
    builder = _Builder()
    for event in _events(text):
        if isinstance(event, DocumentStartEvent):
            builder = _Builder()
        elif isinstance(event, DocumentEndEvent):
            documents.append(Document(builder.value, builder.lines))
        else:
            builder.take(event)
    return documents


def read_document(text: str) -> Document:
    """The one document of a YAML text; empty text is an empty mapping. Raises `Invalid` with the line."""
    documents = read_documents(text)
    if len(documents) > 1:
        raise Invalid(
            f"the file has {len(documents)} documents; exactly one is expected",
            remedy="remove the lines '---'",
        )
    return documents[0] if documents else Document({}, {"$": 1})


def write_document(value: object, *, ascii_only: bool = False) -> str:
    """A value of plain lists, mappings, texts, finite numbers, truth values and None as YAML that `read_document` reads back as the same. `ascii_only`: other characters are escaped."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, allow_unicode=not ascii_only
    )
    return text


def _events(text: str) -> Iterator[object]:
    """The parser's events; its complaints become `Invalid`."""
    count = 0
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            count += 1
            if count > MAX_VALUES:
                raise TooLarge(
                    f"line {_line(event)}: the file has more than {MAX_VALUES} values",
                    remedy="write several files",
                )
            yield event
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = error.problem or error.context or ""
        begun = error.context_mark
        if begun is not None and mark is not None and begun.line != mark.line:
            problem = f"{problem}, in what begins in line {begun.line + 1}"
        at = (
            text.splitlines()[mark.line][mark.column :] if mark is not None and "start any" in problem else ""
        )
        remedy = TABS if at.startswith("\t") else _remedy(problem)
        raise Invalid(f"{where}this is not YAML: {problem}", remedy=remedy) from None
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise Invalid(
            f"this is not YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from None


def _remedy(problem: str) -> str:
    """What most often is behind a complaint of the parser."""
    return next((remedy for sign, remedy in REMEDIES if sign in problem), ANY_REMEDY)


class _Builder:
    """Folds events into one value. A stack of its own, so that nesting costs no recursion."""

    def __init__(self) -> None:
        self.value: object = {}
        self.lines: dict[str, int] = {"$": 1}
        self._open: list[_Open] = []

    def take(self, event: object) -> None:
        """One event further."""
        if isinstance(event, ScalarEvent):
            self._put(_scalar(event), _line(event))
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self._begin(event)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._open.pop()
        elif isinstance(event, AliasEvent):
            raise Invalid(
                f"line {_line(event)}: aliases such as *{event.anchor} are not taken",
                remedy="write the value out",
            )

    def _begin(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        line = _line(event)
        if len(self._open) >= MAX_DEPTH:
            raise Invalid(f"line {line}: nested more than {MAX_DEPTH} deep")
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise Invalid(
                f"line {line}: tags such as {event.tag} are not taken", remedy="write a plain value"
            )
        into: dict[object, object] | list[object] = {} if isinstance(event, MappingStartEvent) else []
        self._open.append(_Open(self._put(into, line), into, []))

    def _put(self, value: object, line: int) -> str:
        """Hand a value to whatever is open; answers its path."""
        if not self._open:
            self.value, self.lines["$"] = value, line
            return "$"
        here = self._open[-1]
        if isinstance(here.into, list):
            path = _below(here.path, f"[{len(here.into)}]")
            here.into.append(value)
        elif not here.pending:
            return self._key(here, value, line)
        else:
            key = here.pending.pop()
            path = _below(here.path, f".{key}")
            here.into[key] = value
        if path:
            self.lines[path] = line
        return path

    def _key(self, here: _Open, key: object, line: int) -> str:
        assert isinstance(here.into, dict)
        if isinstance(key, dict | list):
            raise Invalid(f"line {line}: a key must be a word", remedy="quote a text that begins with { or [")
        if key in here.into:
            raise Invalid(
                f"line {line}: the key {key!r} is given twice",
                field=f"{here.path}.{key}",
                remedy="keep one of them",
            )
        here.pending.append(key)
        path = _below(here.path, f".{key}")
        if path:
            self.lines[path] = line
        return here.path


def _below(path: str, step: str) -> str:
    """A path one step further; empty, as all below it, where it gets too long."""
    return path + step if path and len(path) + len(step) <= MAX_PATH else ""


def _line(event: object) -> int:
    return int(event.start_mark.line) + 1  # type: ignore[attr-defined]


def _scalar(event: ScalarEvent) -> object:
    """A scalar by YAML 1.2's core schema; a time stays the text that it is."""
    text = str(event.value)
    if event.tag not in (None, "!", _STR_TAG):
        raise Invalid(
            f"line {_line(event)}: tags such as {event.tag} are not taken", remedy="write a plain value"
        )
    if event.tag is not None or not event.implicit[0]:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text)
    return text

"""JSON that others have written, read in one place: whatever is wrong with it is one error.

The decoder itself raises three: its own, another for bytes that are no text, and a third for what is nested too deep. Who expected one of them was ended by the others.
Documents that people write are read by `decode_json`, which takes no key twice: of two readers of such a document one may go by the first, and one by the last.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.threads import one_at_a_time

T = TypeVar("T")
NAMED_BYTES = 2**16
"""In what is longer, the key that is written twice is not looked for."""
DEEPEST = 500
"""So many levels can be read, compared and written from wherever the code is by then: the decoder ends near 1000, less those of the calls around it."""
_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]')
"""Texts, which may hold brackets, and brackets. A text that does not end is taken as well, or it would be read again from each quote inside it."""


class Reader(Generic[T]):
    """A decoder for one kind of record. `kind` may be anything that msgspec decodes into."""

    def __init__(self, kind: Any) -> None:
        self._decoder = _decoder(kind)

    def decode(self, data: bytes | str) -> T:
        """The record. Raises `msgspec.DecodeError`, whatever is wrong."""
        value: T = _decoded(self._decoder.decode, data)
        return value

    def decode_lines(self, data: bytes) -> list[T]:
        """One of each line. Raises `msgspec.DecodeError`, whatever is wrong."""
        return _decoded(self._decoder.decode_lines, data)


def read(data: bytes | str, kind: type[T]) -> T:
    """One record. Raises `msgspec.DecodeError`, whatever is wrong."""
    value: T = _decoded(_decoder(kind).decode, data)  # type: ignore[arg-type] # every type has a hash
    return value


@cache
@one_at_a_time
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """In one thread at a time: while msgspec finds out what is in a record, another thread that decodes one of that kind ends the process with a segmentation fault (seen with 0.22.0)."""
    return msgspec.json.Decoder(kind)


def _decoded(decode: Callable[[Any], T], data: bytes | str) -> T:
    try:
        return decode(data)
    except UnicodeError:
        raise msgspec.DecodeError("JSON is malformed: it is not UTF-8") from None
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None


def cut(data: bytes, deepest: int = DEEPEST) -> bytes:
    """JSON with a text in place of each list and mapping that is nested deeper: what lies there is wrong anyway, and the rest can be read."""
    if data.count(b"[") + data.count(b"{") <= deepest:
        return data
    parts: list[bytes] = []
    depth = since = 0
    for mark in _MARKS.finditer(data):
        sign = data[mark.start()]
        if sign in b"[{":
            if depth == deepest:
                parts += (data[since : mark.start()], b'"nested too deeply"')
            depth += 1
        elif sign in b"]}":
            depth -= 1
            if depth == deepest:
                since = mark.end()
    return b"".join((*parts, data[since:])) if parts else data


def decode_json(data: bytes) -> object:
    """A document that somebody has written. Raises `Invalid` that says where it breaks off, or which key is there twice."""
    try:
        value = read(data, object)
    except msgspec.DecodeError as error:
        raise Invalid(f"this is not JSON: {error}", field="$") from None
    if _pairs(data) != msgspec.json.encode(value).count(b":"):
        twice = _twice(data) if len(data) <= NAMED_BYTES else ""
        raise Invalid(
            f"a key is given twice{twice and f': {twice[:80]!r}'}", field="$", remedy="write it once"
        )
    return value


def _pairs(data: bytes) -> int:
    """How many colons there are: one for each key, and those in texts. A value that a second one has replaced took at least one with it."""
    escapes = data.replace(b"\\\\", b"") if b"\\" in data else b""
    return data.count(b":") + escapes.count(b"\\u003a") + escapes.count(b"\\u003A")


def _twice(data: bytes) -> str:
    """The first key that its object has twice."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        found.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    json.loads(data, object_pairs_hook=look)
    return found[0]

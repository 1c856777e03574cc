"""Values as people write them: what reads each of them, with an error that names the field and the remedy, and types that records are made of.

Quantities are texts with units, lists of one may be a word, and names have rules; here each of these gets the sentence that helps. `written` makes a type of a reader,
with the JSON Schema that editors are told; `federator.wire.decoding` reads records of such types. Every reader raises `Invalid` and nothing else, whatever it is given.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from federator.kernel.errors import Invalid
from federator.kernel.quantities import (
    format_duration,
    parse_duration_s,
    parse_instant,
    parse_size_bytes,
    parse_usd,
)
from federator.model.arrays import Indices, Run
from federator.model.identity import PERSON
from federator.wire.nearest import nearest

T = TypeVar("T")
Read = Callable[[Any, str], Any]
"""Reads what is written at a path. Raises `Invalid`."""
MAX_TEXT = 64 * 1024
MAX_WORDS = 1000
MAX_USD = 1e9
MAX_PATIENCE_S = 7 * 86400.0
MAX_INTERLEAVED = 100_000
"""Tasks of an array whose ranges overlap, as in `0-10:2,1-11:2`."""
MAX_ARRAY_INDEX = 9_999_999
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_INDICES = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_JOB_ID = re.compile(r"job-[0-9a-hjkmnp-tv-z]{26}")


def mapping(value: object, path: str) -> Mapping[str, object]:
    """A mapping with text keys; entries without a value are left out, as if they had not been written."""
    if not isinstance(value, dict):
        raise Invalid(f"{shown(value)} is not a mapping", field=path, remedy="write 'key: value' pairs")
    for key in value:
        if not isinstance(key, str):
            raise Invalid(
                f"the key {shown(key)} is not a text", field=path, remedy=f'quote it: "{shown(key)}"'
            )
        text(key, path)
    return {key: entry for key, entry in value.items() if entry is not None}


def known_only(fields: Mapping[str, object], path: str, known: tuple[str, ...]) -> None:
    """Refuse fields that nobody acts on, with the nearest known name."""
    for name in fields:
        if name not in known:
            near = nearest(name, known)
            remedy = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
            raise Invalid(f"there is no field {name[:80]!r}", field=f"{path}.{name[:80]}", remedy=remedy)


def text(value: object, path: str, *, limit: int = MAX_TEXT) -> str:
    """A text that is not empty, not too long, and can be written anywhere."""
    if not isinstance(value, str):
        plain_one = not isinstance(value, dict | list | tuple)
        remedy = f"quote it: '{shown(value)}'" if plain_one else "write one text, in quotes"
        raise Invalid(f"{shown(value)} is not a text", field=path, remedy=remedy)
    if not value.strip():
        raise Invalid("is empty", field=path, remedy="write a value, or leave the field out")
    return plain(value, path, limit=limit)


def plain(value: str, path: str, *, limit: int = MAX_TEXT) -> str:
    """A text that may be empty but has nothing that a file, an environment or JSON cannot hold."""
    if len(value) > limit:
        raise Invalid(f"has {len(value)} characters; at most {limit} are taken", field=path)
    if "\0" in value or (not value.isascii() and _HALF_PAIR.search(value)):
        raise Invalid(
            "has a character that no program could be given (NUL or half a surrogate pair)", field=path
        )
    return value


def name(value: object, path: str) -> str:
    """A name: letters, digits, '.', '_' and '-', at most 63, and not one that could be taken for an id."""
    word = text(value, path)
    if not NAME.fullmatch(word):
        raise Invalid(
            f"{word[:80]!r} is not a name", field=path, remedy="use up to 63 letters, digits, '.', '_' or '-'"
        )
    if _JOB_ID.fullmatch(word):
        raise Invalid(f"{word!r} looks like the id of a job", field=path, remedy="choose another name")
    return word


def is_job_id(word: str) -> bool:
    """Whether it is the id of a job, or of an array."""
    return bool(_JOB_ID.fullmatch(word))


def name_or_id(value: object, path: str) -> str:
    """What names a job: its name or its id."""
    word = text(value, path)
    return word if is_job_id(word) else name(word, path)


def queue(value: object, path: str) -> str:
    """A path in the tree of queues, such as `research/vision`."""
    word = text(value, path, limit=200)
    if not all(NAME.fullmatch(part) for part in word.split("/")):
        raise Invalid(
            f"{word!r} is not the path of a queue",
            field=path,
            remedy="write names with '/' between, such as research/vision",
        )
    return word


def pairs(value: object, path: str, *, limit: int) -> dict[str, str]:
    """A mapping of words to words; numbers and truth values are written out as YAML has them."""
    fields = mapping(value, path)
    if len(fields) > limit:
        raise Invalid(f"has {len(fields)} entries; at most {limit} are taken", field=path)
    return {key: _written(entry, f"{path}.{key}") for key, entry in fields.items()}


def persons(value: object, path: str, *, limit: int, remedy: str) -> dict[str, str]:
    """A mapping of words to names of persons."""
    named = pairs(value, path, limit=limit)
    for key, person in named.items():
        if not PERSON.fullmatch(person):
            raise Invalid(
                f"{person[:80]!r} is not a name of a user of the federation",
                field=f"{path}.{key}",
                remedy=remedy,
            )
    return named


def _written(value: object, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return plain(value, path)
    if isinstance(value, int | float):
        return str(number(value, path))
    raise Invalid(f"{shown(value)} is not a text", field=path, remedy="quote it")


def one_of(value: object, path: str, choices: tuple[str, ...]) -> str:
    """One of a closed list of words."""
    if not isinstance(value, str) or value not in choices:
        near = nearest(value, choices) if isinstance(value, str) else None
        among = f"write one of {', '.join(choices)}"
        remedy = f"did you mean {near}? {among}" if near else among
        raise Invalid(f"{shown(value)} is not known here", field=path, remedy=remedy)
    return value


def whole(value: object, path: str, *, low: int, high: int) -> int:
    """A whole number between two limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(
            f"{shown(value)} is not a whole number", field=path, remedy=f"write one from {low} to {high}"
        )
    if not low <= value <= high:
        raise Invalid(
            f"{shown(value)} is out of range",
            field=path,
            remedy=f"write a whole number from {low} to {high}",
        )
    return value


def number(value: object, path: str, *, low: float = -1e15, high: float = 1e15) -> float | int:
    """A finite number between two limits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(
            f"{shown(value)} is not a number", field=path, remedy=f"write one from {low:g} to {high:g}"
        )
    if not (isinstance(value, int) or isfinite(value)) or not low <= value <= high:
        raise Invalid(
            f"{shown(value)} is out of range", field=path, remedy=f"write a number from {low:g} to {high:g}"
        )
    return value


def duration_s(value: object, path: str, *, low_s: float = 0.001, high_s: float = inf) -> float:
    """`90s`, `1h30m` into seconds between two limits. A bare number is refused: nobody can tell its unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Invalid(
            f"{shown(value)} has no unit",
            field=path,
            remedy="write a number and a unit (s, m, h, d, w), for example 90s or 1h30m",
        )
    seconds = _parsed(parse_duration_s, text(value, path, limit=100), path)
    if seconds < low_s:
        raise Invalid(f"{value!r} is too short", field=path, remedy=f"write at least {low_s:g}s")
    if seconds > high_s:
        raise Invalid(f"{value!r} is too long", field=path, remedy=f"write at most {format_duration(high_s)}")
    return seconds


def size_mib(value: object, path: str, *, high_mib: int) -> int:
    """`256GiB` into MiB, rounded up, more than nothing and at most `high_mib`."""
    return -(-size_bytes(value, path, high_mib=high_mib) // 2**20)


def size_bytes(value: object, path: str, *, high_mib: int, low_bytes: int = 1) -> int:
    """`256GiB` into bytes, at least `low_bytes` and at most `high_mib` (MiB)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Invalid(
            f"{shown(value)} has no unit",
            field=path,
            remedy="write a number and a unit (MiB, GiB, GB, …), for example 64GiB",
        )
    count = _parsed(parse_size_bytes, text(value, path, limit=100), path)
    if not low_bytes <= count <= high_mib * 2**20:
        least = "more than 0" if low_bytes == 1 else f"at least {low_bytes} B"
        raise Invalid(
            f"{value!r} is out of range", field=path, remedy=f"write {least} and at most {high_mib} MiB"
        )
    return count


def money_usd(value: object, path: str) -> float:
    """`40 USD`, `$40` or 40 into dollars."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(number(value, path, low=0, high=MAX_USD))
    usd = _parsed(parse_usd, text(value, path, limit=100), path)
    if not usd <= MAX_USD:
        raise Invalid(f"{value!r} is out of range", field=path, remedy=f"write at most {MAX_USD:.0f} USD")
    return usd


def instant(value: object, path: str) -> float:
    """An instant with its zone, in seconds since the epoch."""
    return _parsed(parse_instant, text(value, path, limit=100), path)


def deadline(value: object, path: str) -> float:
    """An instant, as `instant`; who writes a duration is told where that goes."""
    given = text(value, path, limit=100)
    try:
        parse_duration_s(given)
    except ValueError:
        return instant(given, path)
    raise Invalid(
        f"{given!r} is a duration, not an instant", field=path, remedy=f"write finish_within: {given}"
    )


def instant_at(value: object, path: str, *, now: float) -> float:
    """An instant after `now`, in seconds since the epoch."""
    at = instant(value, path)
    if at <= now:
        raise Invalid(
            f"{value} is in the past", field=path, remedy="write a time in the future, or finish_within: 12h"
        )
    return at


def moment_at(value: object, path: str, *, now: float) -> float:
    """A duration from now, such as `10m`, or an instant after now; in seconds since the epoch."""
    written = text(value, path, limit=100)
    if written[:1].isdigit() and "-" not in written:
        return now + duration_s(written, path)
    return instant_at(written, path, now=now)


def array(value: object, path: str) -> tuple[Indices, int | None]:
    """Indices, and how many tasks may run at once where it is said, as in `0-99%4`."""
    if not isinstance(value, str) or "%" not in value:
        return indices(value, path), None
    spans, _, most = text(value, path, limit=10_000).rpartition("%")
    if not re.fullmatch(r"[1-9]\d{0,6}", most.strip()):
        remedy = "write how many tasks may run at once after it, as in 0-99%4"
        raise Invalid(f"{most[:80]!r} is not a number of tasks", field=path, remedy=remedy)
    return indices(spans, path), int(most)


def indices(value: object, path: str) -> Indices:
    """`0-99`, `0-9,20`, every fifth of `0-99:5`, or one index, in growing order."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(whole(value, path, low=0, high=MAX_ARRAY_INDEX))
    written = text(value, path, limit=10_000)
    spans = sorted((_span(part.strip(), path) for part in written.split(",")), key=lambda span: span[0])
    if all(before[-1] < after[0] for before, after in pairwise(spans)):
        return Indices(Run(span[0], len(span), span.step) for span in spans)
    tasks = sum(map(len, spans))
    if tasks > MAX_INTERLEAVED:
        remedy = "write ranges of which none begins before another ends"
        raise Invalid(f"has {tasks} tasks in ranges that overlap", field=path, remedy=remedy)
    found = sorted({index for span in spans for index in span})
    if len(found) != tasks:
        raise Invalid("lists an index twice", field=path, remedy="write each index once")
    return Indices.of(found)


def _span(part: str, path: str) -> range:
    match = _INDICES.fullmatch(part)
    first, last, step = (int(match[1]), int(match[2] or match[1]), int(match[3] or 1)) if match else (1, 0, 1)
    if first > last or last > MAX_ARRAY_INDEX or not step:
        remedy = f"write indices up to {MAX_ARRAY_INDEX} such as 0-99, 0-9,20 or 0-99:5"
        raise Invalid(f"{part[:80]!r} is not a range of indices", field=path, remedy=remedy)
    return range(first, last + 1, step)


def _parsed(parse: Callable[[str], T], value: str, path: str) -> T:
    try:
        return parse(value)
    except (ValueError, OverflowError) as error:
        raise Invalid(str(error), field=path) from None


def shown(value: object) -> str:
    """A value for an error message, of bounded length; a huge number or a deep structure is not spelled out."""
    if isinstance(value, dict | list | tuple):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    if isinstance(value, int) and value.bit_length() > 256:
        return "a huge number"
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return "a broken text"
    return repr(value) if not isinstance(value, str) else f"'{value[:80]}'"


def written(read: Read, *examples: str, **schema: Any) -> Meta:
    """Of a type, how people write its values: what reads them, examples, and the JSON Schema of what is written."""
    given = {"type": "string", **schema} | ({"examples": list(examples)} if examples else {})
    return Meta(extra={"read": read}, extra_json_schema={"x-written": given})


def short(limit: int, *examples: str) -> Meta:
    """Of a text with so many characters at most."""
    return written(partial(text, limit=limit), *examples, minLength=1, maxLength=limit)


def duration(*examples: str, low_s: float = 0.001, high_s: float = inf) -> Meta:
    """Of seconds between two limits."""
    read = partial(duration_s, low_s=low_s, high_s=high_s)
    return written(read, *examples, pattern=r"^\s*(\d+(\.\d+)?(ms|s|m|h|d|w) *)+\s*$")


def size(*examples: str, high_mib: int, read: Callable[..., int] = size_mib) -> Meta:
    """Of MiB, rounded up, or as `read` has it."""
    pattern = r"^\s*\d+(\.\d+)?\s*([KMGT]i?B|[KMGT]|B)\s*$"
    return written(partial(read, high_mib=high_mib), *examples, pattern=pattern)


def alone(most: int = MAX_WORDS) -> Meta:
    """Of a list with so many entries at most: one entry may stand alone."""
    return Meta(max_length=most, extra={"alone": True}, extra_json_schema={"x-alone": True})


PAIRS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
"""The schema of what `pairs` reads."""
Labels = Annotated[dict[str, str], written(partial(pairs, limit=100), "{rack: r1}", **PAIRS)]
PoolLabels = Annotated[dict[str, str], written(partial(pairs, limit=16), "{rack: r1}", **PAIRS)]
"""As many as a report may have of a pool."""
Text = Annotated[str, written(text, minLength=1)]
FilePath = Annotated[Path, written(lambda value, path: Path(text(value, path, limit=1000)), minLength=1)]
Name = Annotated[str, written(name, pattern=f"^{NAME.pattern}$")]
NameOrId = Annotated[str, written(name_or_id, pattern=f"^{NAME.pattern}$")]
QueuePath = Annotated[str, written(queue, pattern=f"^{NAME.pattern}(/{NAME.pattern})*$")]
Duration = Annotated[float, duration("4h", "90s")]
Patience = Annotated[float, duration("30m", low_s=0.0, high_s=MAX_PATIENCE_S)]
_INSTANT = r"^\s*\d{4}.*[Tt ].*([Zz]|[+-]\d{2}(:?\d{2}){0,2}(\.\d+)?)\s*$"
Instant = Annotated[float, written(instant, "2026-12-01T08:00:00Z", pattern=_INSTANT)]
Deadline = Annotated[float, written(deadline, "2026-12-01T08:00:00Z", pattern=_INSTANT)]
Array = Annotated[
    tuple[Sequence[int], int | None],
    written(array, "0-99", "0-9,20", "0-99:5", "0-99%4", type=["string", "integer"]),
]
MONEY = r"\s*\$?\s*\d+(\.\d+)?\s*(USD)?\s*"
AMOUNT: dict[str, Any] = {"type": ["string", "number"], "minimum": 0, "maximum": MAX_USD}
Money = Annotated[float, written(money_usd, "40 USD", "$40", "40", **AMOUNT, pattern=f"^{MONEY}$")]

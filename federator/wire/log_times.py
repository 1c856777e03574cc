"""When the bytes of a log were written, as it is said between agent, dispatcher and client.

Agents look at growing files a few times a second, and say with each chunk which of its bytes were there when. A log itself stays what the job has written: times in
its lines would change every offset, and no program could read it any more.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

TIMES_HEADER = "X-Federator-Times"
"""Beside a chunk of a log: `OFFSET=AT` of its bytes, joined by commas. Dispatchers from before it ignore it."""
MOST_TIMES = 100
"""Most of them beside one chunk."""


class LogTime(NamedTuple):
    """The bytes of a log from `offset` on, up to the next one, were there at `at` (seconds since the epoch)."""

    offset: int
    at: float


class LogPart(msgspec.Struct, frozen=True):
    """A line of an answer with times: bytes of a log at their offset. `at`: when they were there; None: not recorded."""

    offset: int
    data: bytes
    at: float | None = None


def within(times: Sequence[LogTime], begin: int, end: int) -> list[LogTime]:
    """Those of the bytes from `begin` to `end`."""
    before = [LogTime(begin, each.at) for each in times if each.offset <= begin][-1:]
    inside = [each for each in times if begin < each.offset < end]
    return before + inside if begin < end else []


def times_text(times: Iterable[LogTime]) -> str:
    """As the header has them: of too many, the last."""
    return ",".join(f"{each.offset}={each.at:.3f}" for each in list(times)[-MOST_TIMES:])


def read_times(text: str) -> list[LogTime]:
    """What the header says, in the order of the offsets; what cannot be read is left out, because the bytes beside it are worth more."""
    found = []
    for part in text.split(",", MOST_TIMES)[:MOST_TIMES]:
        offset, equals, at = part.partition("=")
        if equals and offset.isdecimal() and len(offset) < 16 and _is_number(at):
            found.append(LogTime(int(offset), float(at)))
    return sorted(found)


def _is_number(text: str) -> bool:
    try:
        return len(text) < 32 and math.isfinite(float(text))
    except ValueError:
        return False

"""Identifiers: time-ordered, random, and readable.

A store with ordered keys writes time-ordered rows several times faster than random ones, and a list of ids is then in
the order of submission for free. 48 bits of milliseconds and 80 random bits in Crockford's base 32, as the ULID
specification has it, in lower case behind a short prefix that says what the id names.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from federator.kernel.clock import Clock

JOB_ID = re.compile(r"\bjob-[0-9a-hjkmnp-tv-z]{26}\b")
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
RANDOM_BITS = 80
LENGTH = 26
_PAIRS = tuple(first + second for first in ALPHABET for second in ALPHABET)


@dataclass
class IdSource:
    """Makes ids from a clock and a source of random bits; two ids of one source always differ and never go back in order."""

    clock: Clock
    random_bits: Callable[[int], int] = secrets.randbits
    _last: int = 0

    def new(self, prefix: str) -> str:
        """A fresh id such as `job-01jd3v…`; later calls sort after earlier ones."""
        value = (int(self.clock.now() * 1000) << RANDOM_BITS) | self.random_bits(RANDOM_BITS)
        if value <= self._last:
            value = self._last + 1
        self._last = value
        return f"{prefix}-{_encode(value)}"

    def continue_after(self, value: int) -> None:
        """Ids made from now on sort after that value, whatever the clock says."""
        self._last = max(self._last, value)

    def bound(self, within_s: float) -> int:
        """A value that all ids made in the next so many seconds sort before, unless the clock is set forward meanwhile."""
        made = self._last + (1 << RANDOM_BITS)
        return max(made, int((self.clock.now() + within_s) * 1000) << RANDOM_BITS)

    def pass_over(self, count: int) -> None:
        """Leave the next so many ids after the last one to what is named by `following`."""
        self._last += count


def following(name: str, count: int) -> str:
    """The id that comes so many after another."""
    return f"{name.rpartition('-')[0]}-{_encode(value_of(name) + count)}"


def earliest(prefix: str, at: float) -> str:
    """The id that all ids made at that time or later sort after, or are; `at` in seconds since the epoch."""
    return f"{prefix}-{_encode(max(0, int(at * 1000)) << RANDOM_BITS)}"


def value_of(name: str) -> int:
    """The 128 bits of an id. Raises ValueError for what is none."""
    digits = name.rpartition("-")[2]
    if len(digits) != LENGTH:
        raise ValueError(f"{name!r} is not an id")
    value = 0
    for digit in digits:
        value = value << 5 | ALPHABET.index(digit)
    return value & ((1 << 128) - 1)


def made_at(name: str) -> float:
    """When an id was made, in seconds since the epoch, to the millisecond. Raises ValueError for what is no id."""
    return (value_of(name) >> RANDOM_BITS) / 1000


def _encode(value: int) -> str:
    """Two digits at a time: a submission takes three ids."""
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(5 * LENGTH - 10, -1, -10)])


def content_hash(data: bytes) -> str:
    """The name of some bytes: SHA-256 in hex. Specs, blobs and set-up scripts are stored under it."""
    return hashlib.sha256(data).hexdigest()

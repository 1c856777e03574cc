"""Which of two versions is older, by the numbers that they begin with: `0.2.0rc1` counts as `0.2.0`."""

import re
from typing import Literal

Compared = Literal["", "older", "newer"]
_NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}")


def compared(version: str, other: str) -> Compared:
    """How `version` is beside `other`; empty: the same, or one of them is not a version."""
    mine, theirs = _release(version), _release(other)
    if not mine or not theirs or mine == theirs:
        return ""
    return "older" if mine < theirs else "newer"


def _release(version: str) -> tuple[int, ...]:
    """Its numbers, without zeros at the end."""
    found = _NUMBERS.match(version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)

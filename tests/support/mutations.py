"""Inputs that nobody writes, made of those that somebody does: a piece of the structure is doubled, widened, deepened, swapped or blown up.

Changing bytes makes text that no parser takes; changing what was parsed makes what a decoder has to judge.
"""

import random
from collections.abc import Iterator

WORDS = (
    "", " ", "\0", "\ud800", "\u202e", "é" * 50, "x" * 70_000, "a" + "_" * 60 + "!", "9" * 400, "-1", "1e999", "nan", "0x" + "f" * 300,
    "1h" * 3000, "*/5 * * * *", "A100:1..8", "s3://b/k", "../../etc/passwd", "sha256:" + "0" * 64, "{}", "[" * 50, "&a *a", "%2e", "job-" + "0" * 26,
)  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.1, -0.0, 1e308, float("inf"), float("nan"))
WIDE = 2000
DEEP = 200


def mutated(value: object, chance: random.Random) -> object:
    """The value with one to three pieces changed."""
    for _ in range(chance.randint(1, 3)):
        places = list(_places(value, ()))
        value = _changed(value, chance.choice(places), chance)
    return value


def _places(value: object, path: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    yield path
    if len(path) < 8:
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, each in list(inner)[:50]:
            yield from _places(each, (*path, key))


def _changed(value: object, path: tuple[object, ...], chance: random.Random) -> object:
    if not path:
        return _piece(value, chance)
    if isinstance(value, dict):
        return {
            key: _changed(each, path[1:], chance) if key == path[0] else each for key, each in value.items()
        }
    assert isinstance(value, list)
    return [_changed(each, path[1:], chance) if at == path[0] else each for at, each in enumerate(value)]


def _piece(value: object, chance: random.Random) -> object:
    kind = chance.randrange(8)
    if kind < 3:
        return chance.choice((WORDS, NUMBERS, ([], {}, None, True, False))[kind])
    if kind == 3:
        return [value] * chance.choice((2, 50, WIDE))
    if kind == 4:
        for _ in range(chance.choice((1, 10, DEEP))):
            value = [value] if chance.random() < 0.5 else {"a": value}
        return value
    if kind == 5 and isinstance(value, dict):
        return {
            **value,
            chance.choice(WORDS): value,
            **{f"k{n}": n for n in range(chance.choice((1, 100, WIDE)))},
        }
    if kind == 6 and isinstance(value, dict) and value:
        left = chance.choice(sorted(value, key=str))
        return {key: each for key, each in value.items() if key != left}
    if isinstance(value, str):
        at = chance.randint(0, len(value))
        return (
            value[:at] + chance.choice(WORDS) + value[at:] if kind == 7 else value * chance.choice((2, 100))
        )
    return value

"""Whose work a site file means, as it is written: in lists, and as the keys of what it has for each.

A name is a queue with all below it, `owner:NAME`, `team:NAME`, or `*`; `federator.model.whose` says what work that is. Of several keys that mean a job the nearest
to it wins: its owner, then its team, then the longest queue, then `*`.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from federator.kernel.errors import Invalid
from federator.model.identity import PERSON
from federator.model.queues import upwards
from federator.model.whose import EVERYBODY, OWNER, QUEUE, TEAM, Whose
from federator.wire import fields

T = TypeVar("T")


def said_of(said: Mapping[str, T], whose: Whose) -> T | None:
    """What is said of that work; None: nothing."""
    names = (f"{OWNER}{whose.owner}", f"{TEAM}{whose.team}", *upwards(whose.queue), EVERYBODY)
    return next((said[name] for name in names if name in said), None)


def name(value: object, path: str) -> str:
    """One name: `research`, `queue:research`, `owner:ada`, `team:vision` or `*`. Raises `Invalid`."""
    text = fields.text(value, path, limit=300)
    if text == EVERYBODY:
        return text
    if text.startswith(TEAM):
        return TEAM + fields.name(text.removeprefix(TEAM), path)
    if text.startswith(OWNER):
        if PERSON.fullmatch(text.removeprefix(OWNER)):
            return text
    elif ":" not in text or text.startswith(QUEUE):
        return fields.queue(text.removeprefix(QUEUE), path)
    remedy = "write the path of a queue, 'owner:NAME', 'team:NAME', or '*' for everybody"
    raise Invalid(f"{text[:80]!r} is not a queue, an owner or a team", field=path, remedy=remedy)


def names(value: object, path: str) -> tuple[str, ...]:
    """A list of them; one alone is a list of one. Raises `Invalid`."""
    return fields.words(value, path, name)


def read(value: object, path: str, each: Callable[[object, str], T]) -> dict[str, T]:
    """A mapping by such names; of queues `research/*` and `research` are one. Raises `Invalid`."""
    found: dict[str, T] = {}
    for key, given in fields.mapping(value, path).items():
        where = f"{path}.{key}"
        named = name(key.removesuffix("/*"), where)
        if named in found:
            raise Invalid(f"{named!r} is listed twice", field=where, remedy="leave one of them out")
        found[named] = each(given, where)
    return found

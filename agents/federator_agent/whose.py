"""Whose work a site file means, as it is written: in lists, and as the keys of what it has for each.

A name is a queue with all below it, `owner:NAME`, `team:NAME`, or `*`; `federator.model.whose` says what work that is. Of several keys that mean a job the nearest
to it wins: its owner, then its team, then the longest queue, then `*`.
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

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


def _key(value: object, path: str) -> str:
    """Of queues `research/*` and `research` are one."""
    return name(value.removesuffix("/*") if isinstance(value, str) else value, path)


Named = Annotated[str, fields.written(name, "research", "team:vision", "owner:ada", "*")]
Names = Annotated[tuple[Named, ...], fields.alone()]
Key = Annotated[str, fields.written(_key, "research/*", "team:vision", "owner:ada", "*")]
"""Of a mapping by such names."""

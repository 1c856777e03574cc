"""Whose work a site means: the words by which its file names it, and whether a job's is among it.

One vocabulary wherever a site file names work: what it lends to, whom it trusts, who gets a secret, an address, an account. Planner, checker and agent ask here, so that
they mean the same. A job runs under one team at most: that of the right by which it was admitted. So one name is one answer, however many teams its owner is in.
"""

from collections.abc import Iterable
from typing import NamedTuple

from federator.model.queues import under

EVERYBODY, OWNER, QUEUE, TEAM = "*", "owner:", "queue:", "team:"
"""A queue stands for all below it, and may be written without its prefix."""


class Whose(NamedTuple):
    """Of one job: its queue, who submitted it, and the team under which it was admitted; empty: none, or not said."""

    queue: str
    owner: str = ""
    team: str = ""

    @property
    def shown(self) -> str:
        """In words, such as `queue research/vision, owner ada, team vision`."""
        named = ("queue", self.queue), ("owner", self.owner), ("team", self.team)
        return ", ".join(f"{what} {name}" for what, name in named if name) or "work without an owner"


def is_among(names: Iterable[str], whose: Whose) -> bool:
    """Whether one of the names means that work. No names mean nobody's."""
    return any(_means(name, whose) for name in names)


def _means(name: str, whose: Whose) -> bool:
    if name == EVERYBODY:
        return True
    if name.startswith(OWNER):
        return bool(whose.owner) and name.removeprefix(OWNER) == whose.owner
    if name.startswith(TEAM):
        return bool(whose.team) and name.removeprefix(TEAM) == whose.team
    path = name.removeprefix(QUEUE)
    return under(whose.queue, path)


def queues_of(names: Iterable[str]) -> tuple[str, ...]:
    """The queues among the names."""
    return tuple(name.removeprefix(QUEUE) for name in names if _is_queue(name))


def in_words(names: Iterable[str]) -> str:
    """The names for people, such as `queue research, team vision`."""
    return ", ".join(map(_word, names)) or "nobody"


def _word(name: str) -> str:
    if name == EVERYBODY:
        return "everybody"
    return f"queue {name.removeprefix(QUEUE)}" if _is_queue(name) else name.replace(":", " ", 1)


def _is_queue(name: str) -> bool:
    return not name.startswith((EVERYBODY, OWNER, TEAM))

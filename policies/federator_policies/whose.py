"""Whose jobs a policy is about, said the same way in every kind."""

import msgspec

from federator.model.rules import Scope
from federator.wire.fields import queue


class Who(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose jobs; what is not said admits all."""

    queues: tuple[str, ...] = ()
    """These queues and all below them."""
    owners: tuple[str, ...] = ()
    """The people behind the jobs."""
    labels: dict[str, str] = {}
    """All of them must match."""


def scope_of(who: Who, path: str) -> Scope:
    """As a rule has it. Raises `Invalid` for what is no path of a queue."""
    for index, name in enumerate(who.queues):
        queue(name, f"{path}.queues[{index}]")
    return Scope(queues=who.queues, owners=who.owners, labels=who.labels)

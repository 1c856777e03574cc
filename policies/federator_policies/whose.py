"""Whose jobs a policy is about, and who is meant by name, said the same way in every kind."""

import msgspec

from federator.kernel.errors import Invalid
from federator.model.identity import PERSON
from federator.model.rights import EVERYBODY
from federator.model.rules import Scope
from federator.wire.fields import QueuePath, text

MAX_PEOPLE = 10_000
MAX_GROUP_LETTERS = 200


class Who(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose jobs; what is not said admits all."""

    queues: tuple[QueuePath, ...] = ()
    """These queues and all below them."""
    owners: tuple[str, ...] = ()
    """The people behind the jobs."""
    labels: dict[str, str] = {}
    """All of them must match."""


def scope_of(who: Who) -> Scope:
    """As a rule has it."""
    return Scope(queues=who.queues, owners=who.owners, labels=who.labels)


def read_users(names: tuple[str, ...], path: str, *, everybody: bool = False) -> tuple[str, ...]:
    """People and service accounts; with `everybody`, `*` may stand for all of them. Raises `Invalid`."""
    for number, name in enumerate(_few(names, path)):
        if not (PERSON.fullmatch(name) or (everybody and name == EVERYBODY)):
            raise Invalid(
                f"{name[:80]!r} is not a name of a user",
                field=f"{path}[{number}]",
                remedy="up to 63 of letters, digits, '.', '_', '@' and '-'",
            )
    return tuple(dict.fromkeys(names))


def read_groups(names: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Groups as the sign-in provider calls them. Raises `Invalid`."""
    for number, name in enumerate(_few(names, path)):
        text(name, f"{path}[{number}]", limit=MAX_GROUP_LETTERS)
    return tuple(dict.fromkeys(names))


def _few(names: tuple[str, ...], path: str) -> tuple[str, ...]:
    if len(names) > MAX_PEOPLE:
        raise Invalid(
            f"has {len(names)} names; at most {MAX_PEOPLE} are taken",
            field=path,
            remedy="name a group instead",
        )
    return names

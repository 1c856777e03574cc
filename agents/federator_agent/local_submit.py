"""`local_submit` of the site file: at which socket people of this host submit while the site is cut off, and who they are."""

from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.identity import PERSON
from federator.wire import fields

MAX_USERS = 1000


def _users(value: object, path: str) -> dict[str, str]:
    users = fields.pairs(value, path, limit=MAX_USERS)
    for user, person in users.items():
        if not PERSON.fullmatch(person):
            raise Invalid(
                f"{person[:80]!r} is not a name of a user of the federation",
                field=f"{path}.{user}",
                remedy="up to 63 of letters, digits, '.', '_', '@' and '-'",
            )
    return users


class LocalSubmit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who of this host may submit to the agent itself, while the dispatcher cannot be reached and an `Allotment` lets them."""

    users: Annotated[dict[str, str], fields.written(_users, "{ada: ada}", **fields.PAIRS)]
    """By the name of a user of this host, whose jobs his are: the person's name in the federation."""
    socket: fields.FilePath | None = None
    """Where the agent listens; who is not in `users` is refused. Left out: `/run/federator-agent/local.sock`."""

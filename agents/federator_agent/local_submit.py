"""`local_submit` of the site file: at which socket people of this host submit while the site is cut off, and who they are."""

from functools import partial
from typing import Annotated

import msgspec

from federator.wire import fields

_users = partial(fields.persons, limit=1000, remedy="up to 63 of letters, digits, '.', '_', '@' and '-'")


class LocalSubmit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who of this host may submit to the agent itself, while the dispatcher cannot be reached and an `Allotment` lets them."""

    users: Annotated[dict[str, str], fields.written(_users, "{ada: ada}", **fields.PAIRS)]
    """By the name of a user of this host, whose jobs his are: the person's name in the federation."""
    socket: fields.FilePath | None = None
    """Where the agent listens; who is not in `users` is refused. Left out: `/run/federator-agent/local.sock`."""

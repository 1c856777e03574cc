"""What a line of the route table says."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from federator.api.exchange import JSON, Call
from federator.model.identity import Role
from federator.model.rights import Relation

Handler = Callable[[Call], Awaitable[object]]


class Gate(StrEnum):
    """Who is let in."""

    OPEN = "open"
    """Everyone, also before the dispatcher is ready."""
    PERSON = "person"
    """A bearer token, with one of the route's roles if it names any. An admin may do everything."""
    JOB = "job"
    """A bearer token, of somebody who stands to the job in one of the ways that the route allows."""
    AGENT = "agent"
    """An agent that joins or opens its link: the handler checks its token or key."""
    SESSION = "session"
    """An agent, by the ticket of its live session."""


@dataclass(frozen=True)
class Route:
    """One route. `answer` is what a handler's record is of; a handler that answers a stream names its `content`."""

    method: str
    path: str
    handler: Handler
    gate: Gate
    summary: str
    roles: tuple[Role, ...] = ()
    allows: frozenset[Relation] = frozenset()
    """Of the gate JOB: how one must stand to the job, in one of these ways at least."""
    query: type[msgspec.Struct] | None = None
    body: Any = None
    """The type of the JSON body; `bytes` where it is none; None for no body."""
    takes: tuple[str, ...] = (JSON,)
    answer: Any = None
    content: str = JSON
    status: int = 200
    cost: int = 0
    """Of what one person may ask for at once, see `federator.api.rates`."""

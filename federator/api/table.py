"""What a line of the route table says."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from federator.api.exchange import JSON, Call
from federator.model.identity import Role

Handler = Callable[[Call], Awaitable[object]]


class Gate(StrEnum):
    """Who is let in."""

    OPEN = "open"
    """Everyone, also before the dispatcher is ready."""
    PERSON = "person"
    """A bearer token, with one of the route's roles if it names any. An admin may do everything."""
    OWNER = "owner"
    """The job's owner, or the roles platform and admin."""
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
    query: type[msgspec.Struct] | None = None
    body: Any = None
    """The type of the JSON body; `bytes` where it is none; None for no body."""
    takes: tuple[str, ...] = (JSON,)
    answer: Any = None
    content: str = JSON
    status: int = 200

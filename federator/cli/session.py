"""Talking to the dispatcher from a verb: the options that every verb takes, and one event loop per command."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Group, Parameter

from federator.cli.settings import read_settings
from federator.kernel.errors import FederatorError

if TYPE_CHECKING:
    from federator.client import Client

T = TypeVar("T")
CONNECTION = Group("Connection", sort_key=90)
PATIENCE_S = 5.0
"""How long a verb waits for a dispatcher that does not answer: long enough for a restart, short enough for a mistake."""
LONG_PATIENCE_S = 600.0
"""For verbs that follow a job: as long as it may take to restart or move a dispatcher."""


@Parameter(name="*", group=CONNECTION)
@dataclass(frozen=True, kw_only=True)
class Connection:
    """Options that say which dispatcher is asked, and as whom."""

    server: Annotated[
        str | None,
        Parameter(help="Address of the dispatcher; else $FEDERATOR_SERVER, config.yaml, or the local one."),
    ] = None
    token: Annotated[
        str | None,
        Parameter(help="Bearer token; else $FEDERATOR_TOKEN, config.yaml, or the local dispatcher's."),
    ] = None
    ca: Annotated[
        str | None,
        Parameter(
            help="PEM file of the authority behind the dispatcher's certificate; else $FEDERATOR_CA, config.yaml, or the local dispatcher's."
        ),
    ] = None


HERE = Connection()


def open_client(connection: Connection) -> "Client":
    """A client for these options."""
    from federator.client import Client

    settings = read_settings(connection.server, connection.token, ca=connection.ca)
    return Client(
        settings.server,
        settings.token,
        patience_s=PATIENCE_S,
        on_wait=_Waiting().tell,
        ca=settings.ca,
        proxy=settings.proxy,
    )


def ask(connection: Connection, verb: "Callable[[Client], Awaitable[T]]") -> tuple[T, float]:
    """Run one verb to its end; answers the result and the dispatcher's time."""

    async def go() -> tuple[T, float]:
        async with open_client(connection) as client:
            return await verb(client), client.now()

    return asyncio.run(go())


class _Waiting:
    """Tells a person, once per command, that the dispatcher is being waited for."""

    def __init__(self) -> None:
        self._told = False

    def tell(self, error: FederatorError) -> None:
        if not self._told and sys.stderr.isatty():
            self._told = True
            print(f"waiting: {error.message}", file=sys.stderr)

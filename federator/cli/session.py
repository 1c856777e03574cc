"""Talking to the dispatcher from a verb: the options that every verb takes, and the client that they make.

A verb that asks and waits for the answer blocks (`ask`), and starts without an event loop; one that follows several things at a time has `open_client`.
"""

import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from federator.cli.phrases import plain
from federator.kernel.errors import FederatorError
from federator.kernel.quantities import format_duration

if TYPE_CHECKING:
    from federator.client import AsyncClient, Verbs
    from federator.client.progress import Tell

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


JobName = Annotated[
    str,
    Parameter(
        help="Id of a job, or a name: then the newest job of that name, your own first; 'sweep[3]' is a task of an array."
    ),
]
HERE = Connection()


def open_client(
    connection: Connection, *, long_patience: bool = False, progress: "Tell | None" = None
) -> "AsyncClient":
    """A client for these options; with `long_patience` one that goes on trying where nobody answers, and says so."""
    with _without_authorities():
        from federator.client import AsyncClient
    from federator.client.credentials import SignIns
    from federator.client.settings import read_settings

    settings = read_settings(connection.server, connection.token, ca=connection.ca)
    return AsyncClient(
        settings.server,
        partial(SignIns(os.environ).bearer, settings.server) if settings.signed_in else settings.token,
        patience_s=LONG_PATIENCE_S if long_patience else PATIENCE_S,
        on_wait=_Waiting(long=long_patience).tell,
        progress=progress,
        ca=settings.ca,
        proxy=settings.proxy,
    )


@contextmanager
def _without_authorities() -> Iterator[None]:
    """aiohttp reads the authorities that this machine knows, twice, as it is imported, which takes longer than the rest of it. `Way` has its own, read where TLS is used."""
    given = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    os.environ.update(dict.fromkeys(given, os.devnull))
    try:
        yield
    finally:
        for name, value in given.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def ask(
    connection: Connection, verb: "Callable[[Verbs], Coroutine[Any, Any, T]]", *, follows: bool = False
) -> tuple[T, float]:
    """Run one verb to its end; answers the result and the dispatcher's time. One that `follows` a job has long patience, and shows by itself how far it is."""
    from federator.client.blocking import finish
    from federator.client.sync import Client

    with Client(
        connection.server,
        connection.token,
        ca=connection.ca,
        patience_s=LONG_PATIENCE_S if follows else PATIENCE_S,
        on_wait=_Waiting(long=follows).tell,
        progress=sys.stderr.isatty() and not follows,
    ) as client:
        return finish(verb(client.verbs)), client.now()


class _Waiting:
    """Tells a person, once per command, that the dispatcher is being waited for; where that may take long, also where it is read later."""

    def __init__(self, *, long: bool) -> None:
        self._told = False
        self._long = long

    def tell(self, error: FederatorError) -> None:
        if self._told or not (self._long or sys.stderr.isatty()):
            return
        self._told = True
        goes_on = f"; trying again for up to {format_duration(LONG_PATIENCE_S)}" if self._long else ""
        print(f"waiting: {plain(error.message)}{goes_on}", file=sys.stderr, flush=True)

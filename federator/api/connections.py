"""Who may be connected, and for how long: limits in all, for strangers, for each address and for each who has signed in.

A connection is a stranger's until a request on it shows a valid credential, or an agent's link its key. Strangers have a part of all places; a new one
displaces the one that has been there longest, so that a flood of idle connections displaces itself and whoever signs in meanwhile keeps the
place. Those who have signed in are limited each. Nothing here knows HTTP: the times and counts are decided here, `listening` does the rest.
"""

import asyncio
import ipaddress
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from federator.api.tally import Tally
from federator.settings import ConnectionSettings
from federator.telemetry import METRICS, get_logger

RESERVED = 512
"""Descriptors kept for the store, blobs, logs and children; of few, a quarter."""
LEAST = 16

log = get_logger("connections")


@dataclass(frozen=True)
class ConnectionLimit:
    """How many connections there may be."""

    most: int
    strangers: int
    each_address: int
    each_caller: int


def places(settings: ConnectionSettings, descriptors: int) -> ConnectionLimit:
    """What the settings say, and what follows from the number of files that the process may open where they are silent."""
    most = settings.most or max(LEAST, descriptors - min(RESERVED, descriptors // 4))
    eighth = max(LEAST, most // 8)
    return ConnectionLimit(
        most,
        strangers=settings.strangers or max(LEAST, most // 2),
        each_address=settings.strangers_each or eighth,
        each_caller=settings.each or eighth,
    )


class Connection(asyncio.Protocol):
    """One connection, between its transport and the protocol that speaks HTTP."""

    def __init__(self, connections: "Connections", inner: asyncio.Protocol, address: str) -> None:
        self.connections = connections
        self.address = address
        self.caller = ""
        """Who has signed in; empty: a stranger."""
        self.due_s = math.inf
        """By the loop's clock: when it is closed, unless something happens before."""
        self.busy = False
        """A request is being answered."""
        self.allowance = math.inf
        """Bytes that may still come, until they are known."""
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None
        """The handshake, as long as there is no transport."""
        self.still: Callable[[], bool] = lambda: True
        """Whether the credential is still good."""
        self._inner = inner
        self.reading = False
        """Part of a request has come."""
        self._unsent = 0

    def begin(self) -> None:
        """A request has come, headers and all."""
        self.busy = True
        self.due_s = math.inf

    def end(self) -> None:
        """It has been answered; the next may come."""
        self.busy = self.reading = False
        self.due_s = self.connections.now() + self.connections.settings.idle_s

    def signed_in(self, caller: str, still: Callable[[], bool]) -> bool:
        """Note whose it is now; False: they have too many."""
        if not self.connections.signed_in(self, caller):
            return False
        self.still = still
        self.allowance = math.inf
        return True

    def overdue(self, now_s: float) -> bool:
        """Whether to close it. An answer that is still being taken, if slowly, is waited for."""
        if now_s < self.due_s:
            return False
        unsent = self.transport.get_write_buffer_size() if self.transport else 0
        taken = 0 < unsent < (self._unsent or math.inf)
        self._unsent = unsent
        if taken:
            self.due_s = now_s + self.connections.settings.idle_s
        return not taken

    def drop(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self.transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self.connections.gone(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass it on, in time and within the allowance."""
        self.allowance -= len(data)
        if self.allowance < 0:
            self.connections.close(self, "message")
            return
        if not (self.busy or self.reading):
            self.reading = True
            self.due_s = min(self.due_s, self.connections.now() + self.connections.settings.header_s)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()


class Connections:
    """All of them."""

    def __init__(self, settings: ConnectionSettings, descriptors: int, now: Callable[[], float]) -> None:
        self.settings = settings
        self.places = places(settings, descriptors)
        self.now = now
        self.freed = asyncio.Event()
        """Set when a connection has ended."""
        self.closed = Tally(lambda cause, count: log.warning("connections closed", cause=cause, count=count))
        self.refused = Tally(
            lambda address, count: log.warning("sign-ins failed", address=address, count=count)
        )
        self.unreadable = Tally(
            lambda address, count: log.warning("requests could not be read", address=address, count=count)
        )
        self._proxies = tuple(ipaddress.ip_network(each, strict=False) for each in settings.proxies)
        self._all: dict[Connection, None] = {}
        self._strangers: dict[Connection, None] = {}
        """The one that came first, first."""
        self._from: Counter[str] = Counter()
        """Strangers by address."""
        self._of: dict[str, dict[Connection, None]] = {}
        """Those who have signed in, by who they are."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def full(self) -> bool:
        """Whether one more has no place: nothing is taken from the port's queue then."""
        return len(self._all) >= self.places.most and not self._make_room()

    def arrived(self, connection: Connection) -> None:
        """A stranger has come; another may have to go for it."""
        if len(self._strangers) >= self.places.strangers:
            self._displace(next(iter(self._strangers)))
        if self._counts(connection) and self._from[connection.address] >= self.places.each_address:
            self._displace(next(each for each in self._strangers if each.address == connection.address))
        connection.due_s = self.now() + self.settings.header_s
        self._all[connection] = None
        self._enter(connection)

    def signed_in(self, connection: Connection, caller: str) -> bool:
        """Give it a place among the caller's; an idle one of theirs may have to go. False: all of theirs are busy."""
        if connection not in self._all or connection.caller == caller:
            return True
        others = self._of.get(caller, {})
        if len(others) >= self.places.each_caller:
            idle = next((each for each in others if not each.busy), None)
            if idle is None:
                return False
            self._displace(idle)
        self._leave(connection)
        connection.caller = caller
        self._enter(connection)
        return True

    def gone(self, connection: Connection) -> None:
        """It has ended."""
        if connection in self._all:
            del self._all[connection]
            self._leave(connection)
            self.freed.set()

    def close(self, connection: Connection, cause: str) -> None:
        """End it at once, and count why."""
        METRICS.count("federator_connections_closed_total", cause=cause)
        if cause != "idle":
            self.closed.note(cause, self.now())
        self.gone(connection)
        connection.drop()

    def look(self) -> None:
        """Close those whose time is over or whose credential is not good any more, and tell what there is to tell."""
        now_s = self.now()
        for connection in tuple(self._all):
            if connection.overdue(now_s):
                idle = connection.caller and not connection.reading
                self.close(connection, "idle" if idle else "header")
        self.check_credentials()
        for tally in (self.closed, self.refused, self.unreadable):
            tally.look(now_s)
        METRICS.set("federator_connections", len(self._strangers), of="strangers")
        METRICS.set("federator_connections", len(self._all) - len(self._strangers), of="callers")

    def check_credentials(self) -> None:
        """End what is open by a credential that has been revoked or has expired."""
        for connection in tuple(self._all):
            if connection.busy and connection.caller and not connection.still():
                self.close(connection, "credential")

    def end(self) -> None:
        """End those that are left."""
        for connection in tuple(self._all):
            self.gone(connection)
            connection.drop()

    def origin(self, peer: str, forwarded: str) -> str:
        """Where a request is from: the peer, or what a proxy that is trusted says of it last."""
        last = forwarded.rpartition(",")[2].strip()
        if not self._is_proxy(peer):
            return peer
        try:
            return str(ipaddress.ip_address(last))
        except ValueError:
            return peer

    def _make_room(self) -> bool:
        """Close the stranger that came first, or who has signed in and is idle."""
        found = next(iter(self._strangers), None) or next((each for each in self._all if not each.busy), None)
        if found is not None:
            self._displace(found)
        return found is not None

    def _displace(self, connection: Connection) -> None:
        self.close(connection, "displaced")

    def _enter(self, connection: Connection) -> None:
        if connection.caller:
            self._of.setdefault(connection.caller, {})[connection] = None
        else:
            self._strangers[connection] = None
            self._from[connection.address] += 1

    def _leave(self, connection: Connection) -> None:
        if connection.caller:
            others = self._of[connection.caller]
            del others[connection]
            if not others:
                del self._of[connection.caller]
            return
        del self._strangers[connection]
        self._from[connection.address] -= 1
        if not self._from[connection.address]:
            del self._from[connection.address]

    def _counts(self, connection: Connection) -> bool:
        return not self._is_proxy(connection.address)

    def _is_proxy(self, address: str) -> bool:
        if not self._proxies:
            return False
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._proxies)

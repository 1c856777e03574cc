"""The slots of services: which replica is behind which, and the connections through them.

HAProxy connects to a slot's Unix socket; for each connection a tunnel into the slot's replica is opened. A request that comes while no replica is ready is sent to the *door*: it
is held there, unread, until one is.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from federator.cli.gateway.configuration import DOOR, HOLD_S, slots_of, socket_of
from federator.cli.gateway.haproxy import Haproxy, Seen
from federator.cli.tunnels import couple
from federator.kernel.errors import FederatorError, TooMany, Unavailable
from federator.wire import tunnel
from federator.wire.services import RoutedReplica, RoutedService

if TYPE_CHECKING:
    from federator.client import AsyncClient


class Route:
    """One service: its slots, and its door."""

    def __init__(self, client: "AsyncClient", haproxy: Haproxy, folder: Path, service: RoutedService) -> None:
        self.service = service
        self._client = client
        self._haproxy = haproxy
        self._folder = folder
        self._slots: dict[str, RoutedReplica | None] = dict.fromkeys(slots_of(service))
        self._servers: dict[str, asyncio.Server] = {}
        self._ready: list[RoutedReplica] = []
        """Replicas that HAProxy has found ready,"""
        self._news = asyncio.Condition()
        """and that there are others."""

    async def open(self) -> None:
        """Take the door's connections."""
        await self._listen(DOOR, self._at_the_door)

    async def _listen(self, slot: str, serve: object) -> None:
        path = socket_of(self._folder, self.service.name, slot)
        path.unlink(missing_ok=True)
        self._servers[slot] = await asyncio.start_unix_server(serve, str(path))  # type: ignore[arg-type]
        path.chmod(0o600)

    def close(self) -> None:
        """Take no more connections."""
        for server in self._servers.values():
            server.close()

    async def use(self, service: RoutedService) -> None:
        """Put these replicas behind its slots, and nothing else. Raises `Unavailable` where HAProxy does not answer."""
        self.service = service
        wanted = {each.job: each for each in service.replicas}
        for slot, present in self._slots.items():
            if present is not None and present.job not in wanted:
                await self._haproxy.command(self._set(slot, "state maint"), self._cut(slot))
                self._servers.pop(slot).close()
                socket_of(self._folder, service.name, slot).unlink(missing_ok=True)
                self._slots[slot] = None
            elif present is not None:
                await self._keep(slot, present, wanted.pop(present.job))
        for replica in wanted.values():
            if replica.weight:
                await self._put(replica)

    async def _put(self, replica: RoutedReplica) -> None:
        """Behind a slot that is free, if there is one. HAProxy sends there once its own check has found it ready."""
        slot = next((name for name, present in self._slots.items() if present is None), None)
        if slot is None:
            return
        self._slots[slot] = replica
        self._haproxy.forget(self.service.name, slot)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._through(replica, reader, writer)

        await self._listen(slot, serve)
        await self._enable(slot, replica)

    async def _enable(self, slot: str, replica: RoutedReplica) -> None:
        states = (
            (f"weight {replica.weight}", "state ready", "health down") if replica.weight else ("state drain",)
        )
        await self._haproxy.command(*(self._set(slot, state) for state in states))

    async def tell(self) -> None:
        """HAProxy works by another configuration, or has worked for another gateway: tell it of all slots. What comes meanwhile is at the door."""
        for slot, replica in self._slots.items():
            if replica is None:
                await self._haproxy.command(self._set(slot, "state maint"))
            else:
                await self._enable(slot, replica)

    async def _keep(self, slot: str, present: RoutedReplica, wanted: RoutedReplica) -> None:
        if wanted == present:
            return
        self._slots[slot] = wanted
        if not wanted.weight:
            await self._haproxy.command(self._set(slot, "state drain"))
        else:
            await self._haproxy.command(
                self._set(slot, f"weight {wanted.weight}"), self._set(slot, "state ready")
            )

    def _set(self, slot: str, what: str) -> str:
        return f"set server {self.service.name}/{slot} {what}"

    def _cut(self, slot: str) -> str:
        return f"shutdown sessions server {self.service.name}/{slot}"

    def slot(self, job: str) -> str:
        """Behind which that replica is; empty: none."""
        return next((name for name, each in self._slots.items() if each is not None and each.job == job), "")

    async def note(self, seen: Seen) -> dict[str, tuple[bool, int]]:
        """What HAProxy sees of its slots; by job, whether it is ready and how many requests it works on."""
        states = {
            replica.job: (seen.slots[slot].up, seen.slots[slot].at_once)
            for slot, replica in self._slots.items()
            if replica is not None and slot in seen.slots
        }
        ready = [
            each
            for each in self._slots.values()
            if each is not None and each.weight and states.get(each.job, (False,))[0]
        ]
        async with self._news:
            self._ready = ready
            self._news.notify_all()
        return states

    async def _through(
        self, replica: RoutedReplica, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection to a replica. Where it cannot be made, HAProxy hears so before it is closed, and finds another way."""
        try:
            async with self._client.tunnel(replica.job, tunnel.Forward(replica.port)) as inside:
                await couple(inside, reader, writer)
        except TooMany:
            pass  # that is no fault of the replica
        except FederatorError:
            await self._failed(replica.job)
        finally:
            writer.close()

    async def _failed(self, job: str) -> None:
        """Send nothing there until HAProxy has found it ready again."""
        self._ready = [each for each in self._ready if each.job != job]
        for slot, present in self._slots.items():
            if present is not None and present.job == job:
                with contextlib.suppress(Unavailable):
                    await self._haproxy.command(self._set(slot, "health down"))

    async def _at_the_door(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold it until a replica is ready."""
        try:
            async with asyncio.timeout(HOLD_S), self._news:
                await self._news.wait_for(lambda: bool(self._ready))
            await self._through(self._ready[0], reader, writer)
        except TimeoutError:
            writer.close()
        finally:
            with contextlib.suppress(ConnectionError):
                writer.close()

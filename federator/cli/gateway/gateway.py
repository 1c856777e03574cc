"""`gateway`: sends the requests of the caller's services to their replicas, and tells the dispatcher of the load."""

import asyncio
import contextlib
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from federator.cli.gateway.configuration import configuration
from federator.cli.gateway.haproxy import Answers, Haproxy
from federator.cli.gateway.routes import Route
from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, open_client
from federator.kernel.errors import Invalid, Transient
from federator.wire.services import GatewayReport, RoutedService, SeenLoad, SeenReplica

if TYPE_CHECKING:
    from federator.client import AsyncClient

LOOK_S = 0.5
"""Real seconds between looks at HAProxy."""
TELL_S = 2.0
"""Real seconds between reports to the dispatcher."""
LONGEST_FOLDER = 30
"""Letters of the folder's path: behind it stand the names of services, and a socket's path may have 107."""


def gateway(
    *,
    folder: Annotated[Path, Parameter(name=("--folder", "-d"))],
    bind: str = "127.0.0.1",
    ports: str = "8100-8199",
    hosts: str = "",
    connection: Connection = HERE,
) -> None:
    """Send the requests of your services to their replicas, with HAProxy, until it is told to stop (SIGTERM, Ctrl-C).

    Each service is found at a port that stays the same; replicas are reached by tunnels, so nothing has to be open where they run. Requests that come while this process is away get 503: have it restarted. `federator service` shows what it has told.

    Parameters
    ----------
    folder:
        Where its sockets are, HAProxy's configuration, and which service has which port. Only one gateway at a time uses it.
    bind:
        The address of this machine where services are found.
    ports:
        From which ports each service gets one, the first that is free.
    hosts:
        ADDRESS:PORT where all services are found besides, by the first part of the name in the request: `chat.example.org` is the service `chat`.
    """
    folder = folder.absolute()
    if len(str(folder)) > LONGEST_FOLDER:
        raise Invalid(
            f"the path has {len(str(folder))} letters",
            field="--folder",
            remedy=f"name one of at most {LONGEST_FOLDER}, such as /run/federator-gateway",
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    asyncio.run(_serve(connection, Gateway(folder, bind, _ports(ports), hosts)))


def _ports(text: str) -> range:
    low, dash, high = text.partition("-")
    try:
        found = range(int(low), int(high if dash else low) + 1)
    except ValueError:
        found = range(0)
    if not found or not 1 <= found[0] <= found[-1] <= 65_535:
        raise Invalid(f"{text!r} is no range of ports", field="--ports", remedy="write for example 8100-8199")
    return found


class Gateway:
    """What is where on this machine."""

    def __init__(self, folder: Path, bind: str, ports: range, hosts: str) -> None:
        self._folder = folder
        self._bind = bind
        self._ports = ports
        self._hosts = hosts
        self.haproxy = Haproxy(folder)
        self._routes: dict[str, Route] = {}
        self._changed = True
        """HAProxy has to be told of all slots."""
        self._at_once: dict[str, list[int]] = {}
        """What was seen at each look since the last report."""

    async def use(self, client: "AsyncClient", services: tuple[RoutedService, ...]) -> None:
        """Send requests there from now on. Raises `Invalid` and `Unavailable`."""
        ports = self._assigned([each.name for each in services])
        text = configuration(services, ports, self._folder, bind=self._bind, hosts=self._hosts)
        for each in services:
            former = self._routes.get(each.name)
            if former is None or former.service.most != each.most:
                if former is not None:
                    former.close()
                # The door is open before HAProxy sends anybody there.
                route = self._routes[each.name] = Route(client, self.haproxy, self._folder, each)
                await route.open()
                self._changed = True
                print(f"{each.name} is at {self._bind}:{ports[each.name]}", flush=True)
        self._changed |= await self.haproxy.load(text)
        if self._changed:
            for each in services:
                await self._routes[each.name].tell()
            self._changed = False
        for each in services:
            await self._routes[each.name].use(each)
        for name in self._routes.keys() - {each.name for each in services}:
            self._routes.pop(name).close()

    def _assigned(self, names: list[str]) -> dict[str, int]:
        """The port of each service: what it had, else the first that none has had."""
        path, known = self._folder / "ports", dict[str, int]()
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_text().splitlines():
                name, _, port = line.partition(" ")
                known[name] = int(port)
        for name in names:
            if known.get(name) not in self._ports:
                free = next((port for port in self._ports if port not in known.values()), None)
                if free is None:
                    raise Invalid(
                        f"there is no port left for {name}",
                        field="--ports",
                        remedy=f"name more, or take out of {path} what is gone",
                    )
                known[name] = free
                written = path.with_suffix(".new")
                written.write_text("".join(f"{each} {port}\n" for each, port in known.items()))
                written.rename(path)
        return known

    async def look(self) -> dict[str, tuple[SeenReplica, ...]]:
        """What HAProxy sees at this moment: the replicas of each service."""
        seen, found = await self.haproxy.seen(), dict[str, tuple[SeenReplica, ...]]()
        for name, route in tuple(self._routes.items()):
            if name in seen:
                self._at_once.setdefault(name, []).append(seen[name].at_once)
                states = await route.note(seen[name])
                found[name] = tuple(SeenReplica(job, up, at_once) for job, (up, at_once) in states.items())
        return found

    def report(self, seen: dict[str, tuple[SeenReplica, ...]], over_s: float) -> GatewayReport:
        """What was seen since the last report."""
        loads = []
        for name, replicas in seen.items():
            if name not in self._routes:
                continue
            answers, at_once = self.haproxy.answers(name), self._at_once.pop(name, [0])
            within_s = self._routes[name].service.p95_latency_s
            loads.append(
                SeenLoad(
                    name,
                    sum(at_once) / len(at_once),
                    over_s,
                    answers.count,
                    answers.met(within_s),
                    answers.slow(within_s),
                    answers.p95_s(),
                    tuple(self._answered(name, each, answers) for each in replicas),
                )
            )
        return GatewayReport(tuple(loads), self._name())

    def _answered(self, service: str, replica: SeenReplica, answers: Answers) -> SeenReplica:
        slot = self._routes[service].slot(replica.job)
        return replace(replica, answered=answers.slots[slot], errors=answers.slot_errors[slot])

    def _name(self) -> str:
        """What the dispatcher tells it by from others: chosen once for a folder, by chance."""
        path = self._folder / "name"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        name = secrets.token_hex(8)
        path.write_text(name)
        return name

    def close(self) -> None:
        """Take no more connections; HAProxy goes on."""
        self.haproxy.close()
        for route in self._routes.values():
            route.close()


async def _serve(connection: Connection, gateway: Gateway) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await gateway.haproxy.listen()
    async with open_client(connection, long_patience=True) as client:
        working = asyncio.ensure_future(_work(client, gateway))
        waiting = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in (working, waiting):
            task.cancel()
        ended = await asyncio.gather(working, waiting, return_exceptions=True)
    gateway.close()
    if isinstance(ended[0], Exception):
        raise ended[0]


async def _work(client: "AsyncClient", gateway: Gateway) -> None:
    """Look, tell, and do what is answered. An outage of the dispatcher changes nothing of where requests go."""
    told_s, seen = time.monotonic(), dict[str, tuple[SeenReplica, ...]]()
    await gateway.use(client, (await client.tell_gateway(GatewayReport())).services)
    telling: asyncio.Task[None] | None = None

    async def tell(report: GatewayReport) -> None:
        await gateway.use(client, (await client.tell_gateway(report)).services)

    while True:
        await asyncio.sleep(LOOK_S)
        try:
            seen = await gateway.look()
            if telling is not None and telling.done():
                ended, telling = telling, None
                ended.result()
            now_s = time.monotonic()
            if telling is None and now_s - told_s >= TELL_S:
                report, told_s = gateway.report(seen, now_s - told_s), now_s
                telling = asyncio.create_task(tell(report))
        except Transient as error:
            print(f"federator: {plain(error.describe())}", file=sys.stderr, flush=True)

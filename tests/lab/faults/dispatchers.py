"""A dispatcher as a process: production's assembly on a store and clouds that may fail it, living, dying, standing by and leading as the server does.

`federator.app` builds everything anew for each reign, and so does this. What is not here is HTTP: requests call the same parts behind the same gate.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

from federator.assembly import Core, assemble
from federator.control.administration.admission import Admission
from federator.control.administration.policy_service import Compiled
from federator.control.leases.executor import UserData
from federator.control.record.leadership import LedProvider, Reign
from federator.kernel.errors import Transient, Unavailable
from federator.kernel.ids import IdSource
from federator.model.capacity import Lease
from federator.model.sites import SiteKind
from federator.ports import Blobs, Provider
from federator.settings import (
    EtcdSettings,
    LeaseSettings,
    LinkSettings,
    ProviderSettings,
    RetentionSettings,
    Settings,
    TurnSettings,
)
from federator.solving.inline import InlineSolver
from federator_policies.documents import compile_set, load
from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.clouds import Cloud, CloudHandle
from tests.lab.faults.network import Connection
from tests.lab.faults.plan import PROVIDER, Plan
from tests.lab.faults.processes import Process
from tests.lab.faults.scene import Scene
from tests.lab.faults.stores import Disk, StoreHandle

CONNECT_S = 10.0
_ETCD = EtcdSettings(endpoints=())
TERM_S, MARGIN_S = _ETCD.term_s, _ETCD.margin_s
"""The product's own, of several dispatchers. One alone has its store to itself, as with SQLite: its term does not expire."""
STANDBY_LOOK_S = 5.0
AGAIN_S = 1.0
CLOUD_SITE = "rented"
JOIN_WITHIN_S = 600.0
SETTLING_S = 1.0
TURN_S, LARGE_TURN_S, MANY = 2.0, 30.0, 100
"""Turns are so far apart at least; where hundreds of jobs wait, each is dear, and what happens in between is planned together."""


class HubPipe:
    """The hub's end of a connection. It closes with its process: whoever is at the other end notices."""

    def __init__(self, connection: Connection, process: Process) -> None:
        self._connection = connection
        self._process = process
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()
        connection.up.hear = self._heard.put_nowait
        self._over = False

    async def receive(self) -> str | None:
        """The next message; None at the end."""
        if self._over:
            return None
        text = await self._heard.get()
        self._over = text is None
        return text

    async def send(self, text: str) -> None:
        """To the agent. Raises ConnectionError once it is known to be gone."""
        if not self._connection.up.open:
            raise ConnectionError("the link is gone")
        self._connection.down.say(text)

    async def close(self) -> None:
        """End it."""
        self._connection.abandoned_by(self._connection.server)


class Dispatcher:
    """One machine with a dispatcher on it, which lives again and again."""

    def __init__(self, name: str, scene: Scene, disk: Disk, blobs: Blobs, cloud: Cloud) -> None:
        self.name = name
        self.clock = MachineClock(scene.loop, scene.plan.rates[name])
        self.process: Process | None = None
        self.core: Core | None = None
        self._plan = scene.plan
        self._disk = disk
        self._blobs = blobs
        self._cloud = cloud
        self._network = scene.network
        self._journal = scene.journal
        self._chance = scene.chance(name)
        self._lives = 0
        self._connections: list[Connection] = []

    def live(self, died: Callable[[], None]) -> None:
        """Start a process."""
        self._lives += 1
        self._journal.note(self.name, f"starts, life {self._lives}")
        self.process = Process(f"{self.name}.{self._lives}", self._network.loop, died)
        self.process.spawn(self._live(self.process), "life")

    def dead(self) -> None:
        """The process is gone: its connections break, and nobody answers."""
        self.core = None
        self.process = None
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.abandoned_by(self.name)

    def serving(self) -> Core:
        """The core, if people and agents are answered now. Raises `Unavailable`."""
        if self.core is None or not self.core.serving:
            raise Unavailable(f"{self.name} does not lead")
        return self.core

    async def accept(self, client: str, hear: Callable[[str | None], None]) -> Connection:
        """A client opens a connection. Raises `Unavailable`."""

        async def welcome() -> Connection:
            core, process = self.serving(), self.process
            assert process is not None
            connection = Connection(self._network, client, self.name, hear)
            self._connections = [each for each in self._connections if each.up.open or each.down.open]
            self._connections.append(connection)
            process.spawn(core.hub.serve(HubPipe(connection, process)), f"session of {client}")
            return connection

        return await self._network.ask(client, self, welcome, within_s=CONNECT_S)

    # -- a life -------------------------------------------------------------------------------------------------------

    async def _live(self, process: Process) -> None:
        while True:
            try:
                await self._reign(process)
            except Transient as error:
                self._journal.note(self.name, f"is in trouble: {error.message[:80]}")
            await asyncio.sleep(AGAIN_S)

    async def _reign(self, process: Process) -> None:
        """Stand by until this dispatcher leads, and lead until its term is over; everything is new each time."""
        store = StoreHandle(self._disk, process.loop, self._network.profile, self._chance, self.name)
        term_s, margin_s = (TERM_S, MARGIN_S) if len(self._plan.dispatchers) > 1 else (None, 0.0)
        reign = Reign(store, self.clock, leader=process.name, term_s=term_s, margin_s=margin_s)
        while not await reign.attempt():
            await asyncio.sleep(STANDBY_LOOK_S)
        self._journal.note(self.name, f"leads, term {reign.number}")
        core = self._assembled(store, reign, f"{process.name}/{reign.number}")
        try:
            starting = asyncio.ensure_future(core.start())
            lost = asyncio.ensure_future(reign.lost())
            await asyncio.wait((starting, lost), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self.core = core
                await lost
            starting.cancel()
        finally:
            self._journal.note(self.name, f"term {reign.number} is over: {reign.over_because[:60]}")
            self.core = None
            await core.stop()

    def _assembled(self, store: StoreHandle, reign: Reign, life: str) -> Core:
        handle = CloudHandle(self._cloud, self._network, self.name, self._chance)
        providers: dict[str, Provider] = {PROVIDER: LedProvider(handle, reign)} if self._plan.offers else {}
        return assemble(
            settings=settings(self._plan),
            clock=self.clock,
            store=store,
            blobs=self._blobs,
            solver=InlineSolver(),
            providers=providers,
            compile_policies=_compile,
            user_data=_user_data,
            ids=IdSource(self.clock, random.Random(f"{self._plan.seed}/{life}").getrandbits),
            reign=reign,
        )


def settings(plan: Plan) -> Settings:
    """Production's, at a slower pace: a day has to pass in a second."""
    return Settings(
        turn=TurnSettings(
            coalesce_s=0.2,
            minimum_gap_s=TURN_S if len(plan.jobs) < MANY else LARGE_TURN_S,
            heartbeat_s=300.0,
            solver=plan.solver,
        ),
        link=LinkSettings(report_every_s=60.0, unreachable_after_s=200.0, look_s=5.0),
        leases=LeaseSettings(
            poll_s=20.0, idle_s=120.0, slack_s=300.0, join_within_s=JOIN_WITHIN_S, drain_within_s=300.0
        ),
        retention=RetentionSettings(decisions=30, sweep_s=120.0),
        providers={PROVIDER: ProviderSettings(type="simulated", site=CLOUD_SITE, region="cloud")}
        if plan.offers
        else {},
    )


def _compile(text: str) -> Compiled:
    documents = load(text)
    return Compiled(tuple(each.stored() for each in documents), compile_set(documents))


def _user_data(admission: Admission) -> UserData:
    async def make(lease: Lease) -> str:
        return await admission.make_join_token(
            lease.site,
            SiteKind.CLOUD,
            region=lease.offer.region,
            provider=lease.provider,
            lease=lease.id,
            member=lease.member,
            expires_in_s=lease.offer.delay_s + JOIN_WITHIN_S,
        )

    return make


async def settled(dispatchers: "list[Dispatcher]") -> Dispatcher:
    """The one who leads, once one does."""
    while True:
        for each in dispatchers:
            with contextlib.suppress(Unavailable):
                each.serving()
                return each
        await asyncio.sleep(SETTLING_S)

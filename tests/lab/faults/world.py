"""One federation that things go wrong with: everything of a plan, put together and alive."""

import asyncio
from collections.abc import Callable
from functools import partial

from federator.control.record.records import Changes
from federator.kernel.errors import FederatorError
from federator.model.capacity import RENTED_POOL, LaunchRequest
from federator.model.identity import Caller, Role
from federator.model.sites import Member, Site, SiteKind
from federator.store.blobs import MemoryBlobs
from federator.store.memory import MemoryStore
from federator.wire.link import JoinRequest
from tests.lab.faults.agents import AgentLife
from tests.lab.faults.clocks import MachineClock
from tests.lab.faults.clouds import Cloud
from tests.lab.faults.cluster_agents import ClusterAgentLife
from tests.lab.faults.clusters import Cluster
from tests.lab.faults.dispatchers import CLOUD_SITE, Dispatcher, settled
from tests.lab.faults.greeting import key_of
from tests.lab.faults.hosts import Host
from tests.lab.faults.local_users import LocalUsers
from tests.lab.faults.plan import LOCAL, SETTLED_S, HostPlan, Plan
from tests.lab.faults.processes import FaultLoop, Process
from tests.lab.faults.scene import Scene
from tests.lab.faults.stores import Disk
from tests.lab.faults.users import Users
from tests.lab.faults.watch import Watch

ROOT = Caller(name="root", role=Role.ADMIN)
RESTART_S = (1.0, 60.0)
"""An init system starts a process again within that time."""


class World:
    """All parts, by name."""

    def __init__(self, plan: Plan, loop: FaultLoop, tell: Callable[[str], None] | None) -> None:
        scene = self.scene = Scene(plan, loop, tell)
        self.plan, self.loop, self.journal = plan, loop, scene.journal
        self.truth, self.network, self.profile = scene.truth, scene.network, scene.profile
        self.hosts: dict[str, Host] = {}
        """Of each member, its machines."""
        self.cloud = Cloud(loop, self.journal, plan.offers, self._booted, self._machine_gone)
        self.watch = Watch(plan, self.truth, self.hosts, self.cloud, self.journal)
        store = MemoryStore(MachineClock(loop), incarnation=f"faults-{plan.seed}")
        self.disk = Disk(store, self.watch.written)
        blobs = MemoryBlobs()
        self.dispatchers = [
            Dispatcher(name, scene, self.disk, blobs, self.cloud) for name in plan.dispatchers
        ]
        self.lives: dict[str, AgentLife] = {}
        """The present life of each member's agent."""
        self.graves: list[Process] = []
        self.calm = False
        """Nothing goes wrong any more."""
        self._counts: dict[str, int] = {}
        self.users = Users(scene, self.dispatchers)
        self.local_users = LocalUsers(scene, self.hosts, self.lives, self.users)
        for host in plan.hosts:
            self.hosts[host.member] = Host(host, scene) if host.runtime == LOCAL else Cluster(host, scene)

    async def begin(self) -> None:
        """Dispatchers live, sites are known, agents connect."""
        for dispatcher in self.dispatchers:
            self.start_dispatcher(dispatcher)
        leader = await settled(self.dispatchers)
        await self.network.ask("user", leader, partial(self._apply, 0, leader))
        await self.network.ask("user", leader, partial(self._know_sites, leader))
        for member in self.plan.members:
            self.hosts[member].disk.joined = True
            self.start_agent(member)
        await asyncio.sleep(SETTLED_S - self.loop.time())

    async def _know_sites(self, leader: Dispatcher) -> None:
        def compute() -> Changes:
            changes = Changes()
            for host in self.plan.hosts:
                changes.put(Site(name=host.site, kind=SiteKind.ONPREM))
                key = key_of(host.member).public_key().public_bytes_raw().hex()
                changes.put(Member(id=host.member, site=host.site, public_key=key))
            return changes

        await leader.serving().records.transact(compute)

    # -- policies -----------------------------------------------------------------------------------------------------

    async def change_policies(self) -> None:
        """One set after another takes the place of the one before, at its time."""
        for number, change in enumerate(self.plan.changes, 1):
            await asyncio.sleep(SETTLED_S + change.at_s - self.loop.time())
            await self.users.ask(partial(self._apply, number))

    async def _apply(self, number: int, server: Dispatcher) -> None:
        text = self.plan.policy_sets[number].text()
        verdict = await server.serving().policy_service.apply(ROOT, text, str(number))
        assert not verdict.problems, verdict.problems

    # -- dispatchers --------------------------------------------------------------------------------------------------

    def start_dispatcher(self, dispatcher: Dispatcher) -> None:
        """It lives; and again after each of its deaths."""
        if dispatcher.process is None:
            dispatcher.live(partial(self._dispatcher_died, dispatcher))

    def _dispatcher_died(self, dispatcher: Dispatcher) -> None:
        self.journal.note(dispatcher.name, "is dead")
        if dispatcher.process is not None:
            self.graves.append(dispatcher.process)
        dispatcher.dead()
        delay_s = self.network.chance.uniform(*RESTART_S)
        self.loop.later(delay_s, self.start_dispatcher, dispatcher)

    # -- agents -------------------------------------------------------------------------------------------------------

    def start_agent(self, member: str) -> None:
        """It lives, unless it does already or its machine is gone."""
        host = self.hosts[member]
        if host.gone or member in self.lives:
            return
        number = self._counts[member] = self._counts.get(member, 0) + 1
        self.journal.note(member, f"agent starts, life {number}")
        process = Process(f"{member}.{number}", self.loop, partial(self._agent_died, member))
        kind = ClusterAgentLife if isinstance(host, Cluster) else AgentLife
        life = kind(host, process, self.scene, self.dispatchers)
        self.lives[member] = life
        process.call(life.begin)

    def _agent_died(self, member: str) -> None:
        self.journal.note(member, "agent is dead")
        life = self.lives.pop(member)
        self.graves.append(life.process)
        life.die()
        host = self.hosts[member]
        if not host.gone:
            self.loop.later(self.network.chance.uniform(*RESTART_S), self.start_agent, member)

    def reboot(self, member: str, *, wiped: bool) -> None:
        """The machine boots anew, with all that is on it."""
        host = self.hosts[member]
        life = self.lives.get(member)
        if life is not None:
            life.process.kill()
        host.reboot(wiped=wiped)

    # -- rented machines ----------------------------------------------------------------------------------------------

    def _booted(self, request: LaunchRequest) -> None:
        """A machine is there: it joins, and its agent lives."""
        offer = request.offer
        member = f"{request.name}-0"
        chance = self.scene.chance(f"machine {len(self.hosts)}")
        plan = HostPlan(
            member, CLOUD_SITE, offer.model, 1, offer.gpus, chance.uniform(0.9955, 1.0045), 0.0, 5.0
        )
        self.hosts[member] = Host(plan, self.scene, RENTED_POOL)
        self.journal.note(member[-8:], "boots")
        self.loop.create_task(self._join(member, request.user_data))

    async def _join(self, member: str, secret: str) -> None:
        host = self.hosts[member]
        key = key_of(member).public_key().public_bytes_raw().hex()
        asked = JoinRequest(public_key=key, member=member)

        async def ask(server: Dispatcher) -> object:
            return await server.serving().admission.join(secret, asked)

        try:
            await self.users.ask(ask)
        except FederatorError as error:
            self.journal.note(member[-8:], f"may not join: {error.message[:60]}")
            return
        if not host.gone:
            host.disk.joined = True
            self.start_agent(member)

    def _machine_gone(self, name: str) -> None:
        host = self.hosts.get(f"{name}-0")
        if host is None or host.gone:
            return
        self.journal.note(host.member[-8:], "is gone")
        host.destroy()
        life = self.lives.get(host.member)
        if life is not None:
            life.process.kill()

"""A dispatcher in memory on a clock that the test moves, and agents that are plain objects.

The control loops are the production ones; only the edges are replaced: memory store, no solver (greedy plans), a fake provider, and sites that do what
they are told at once. Turns and executor steps happen when the test says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from federator import __version__
from federator.assembly import Core, assemble
from federator.control.administration.policy_service import Compiled
from federator.control.messages.notifications import Reach
from federator.control.record.records import Changes
from federator.kernel.clock import ManualClock
from federator.model.capacity import Lease, Market, Offer, Pool, Shape
from federator.model.identity import BlobOwner, Caller, Role
from federator.model.jobs import Job
from federator.model.placements import Cause, Order, Placement, PlacementReport, PlacementStatus, RankStatus
from federator.model.plans import Place, Plan
from federator.model.sites import Member, Site, SiteKind, SiteReport
from federator.model.snapshot import Problem, Snapshot
from federator.ports import Archive, Blobs
from federator.settings import (
    LinkSettings,
    NotificationSettings,
    OidcSettings,
    ProviderSettings,
    Settings,
    TurnSettings,
)
from federator.store.blobs import MemoryBlobs
from federator.store.memory import MemoryStore
from federator.wire.http import Submitted
from federator.wire.jobfile import read_job
from federator.wire.needs import FORMS, OUTPUTS, TOGETHER
from federator_policies.documents import compile_set, load
from federator_providers.reserved import Reservation, ReservedProvider
from tests.support.moving_prices import MovingPrices

ADA = Caller(name="ada", role=Role.USER)
BOB = Caller(name="bob", role=Role.USER)
ADMIN = Caller(name="root", role=Role.ADMIN)
OFFER = Offer(
    name="r1/p4/on-demand",
    provider="cloudy",
    region="r1",
    instance_type="p4",
    market=Market.ON_DEMAND,
    model="A100",
    gpu_memory_mib=81920,
    gpus=8,
    cpus_milli=96000,
    memory_mib=1_000_000,
    price_usd_h=24.0,
    delay_s=300.0,
    available=4,
)


def renting(*, max_duration: str, deadline_usd: float, usd_per_day: float) -> str:
    """Policies by which deadlines in the queue `default` are worth so much a GPU-hour, and may rent for so much a day."""
    return f"""
apiVersion: federator/v1
kind: Queue
metadata: {{name: default}}
spec:
  max_duration: {max_duration}
  met_deadline_usd_per_gpu_hour: {deadline_usd}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {{name: deadlines}}
spec:
  who: {{queues: [default]}}
  when: {{mode: economic}}
  limits: {{usd: {{per_day: {usd_per_day}}}}}
"""


SNAPSHOT = Snapshot(taken_at=0.0, incarnation="", revision=0)
PLAN = Plan(decision="dec-1", taken_at=0.0, seed=0, winner="test", winner_because="", objective_usd=0.0)


class NoSolver:
    """A solver that is always late: greedy's plan stands."""

    async def decide(
        self, problem: Problem, *, stages: tuple[str, ...], seed: int, limit_s: float
    ) -> Plan | None:
        """Nothing."""
        return None

    async def close(self) -> None:
        """Nothing to end."""


@dataclass
class SharedClock(ManualClock):
    """A clock that sites live by too: when it moves, those that are connected report."""

    listeners: list[Callable[[], None]] = field(default_factory=list)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and everybody notice."""
        super().advance(seconds)
        for listener in tuple(self.listeners):
            listener()


@dataclass
class FakeSite:
    """A member of a site that obeys; where it is the only one, the site has its name. It reports its free shapes exactly."""

    world: "World"
    name: str
    pool: Pool
    seq: int = 0
    counted: set[str] = field(default_factory=set)
    version: str = __version__

    def connect(self) -> None:
        """Open a session and report."""
        member = self.world.core.records.members[self.name]
        self.world.core.inventory.opened(member, f"session-{self.name}-{self.seq}", self.version)
        self.report()

    def report(self, **fields: Any) -> None:
        """Tell what is free now."""
        busy = [p for p in self.held() if p.id in self.counted]
        report = SiteReport(
            taken_at=self.world.clock.now(),
            pools=(self._free(busy),),
            counted=tuple(sorted(p.id for p in busy)),
            abilities=(FORMS, TOGETHER, OUTPUTS),
        )
        session = self.world.core.inventory.members[self.name].session
        self.world.core.inventory.report(self.name, session, msgspec.structs.replace(report, **fields))

    def held(self) -> list[Placement]:
        """What the dispatcher wants of this member."""
        return [
            p
            for p in self.world.core.records.open_placements.values()
            if self.name in p.members and not p.ended and not p.assembling
        ]

    def _free(self, busy: list[Placement]) -> Pool:
        hosts = [
            [self.pool.gpus_per_node, self.pool.cpus_milli_per_node, self.pool.memory_mib_per_node]
            for _ in range(self.pool.nodes)
        ]
        for placement in busy:
            for _ in range(placement.members.count(self.name)):
                host = min(
                    h for h in hosts if h[0] >= placement.gpus_per_node and h[1] >= placement.cpus_milli
                )
                host[0] -= placement.gpus_per_node
                host[1] -= placement.cpus_milli
        return msgspec.structs.replace(self.pool, free=tuple(Shape(h[0], h[1], h[2], 1) for h in hosts))

    async def say(self, placement: Placement, status: PlacementStatus, **fields: Any) -> None:
        """Send one status."""
        self.seq += 1
        if status in (PlacementStatus.ACCEPTED, PlacementStatus.STARTING, PlacementStatus.RUNNING):
            self.counted.add(placement.id)
        else:
            self.counted.discard(placement.id)
        report = PlacementReport(
            placement=placement.id,
            epoch=placement.epoch,
            seq=self.seq,
            status=status,
            at=self.world.clock.now(),
            ranks=(RankStatus(rank=placement.members.index(self.name), node=f"{self.name}/node-0"),),
            rendezvous=f"{self.name}.example:4000" if status is PlacementStatus.ACCEPTED else "",
        )
        await self.world.core.progress.absorb(self.name, (msgspec.structs.replace(report, **fields),))
        self.report()

    async def run_all(self) -> None:
        """Reserve and start whatever it was told to; stop whatever it was told to stop, after a checkpoint."""
        for placement in self.held():
            here = placement.part(self.name) or placement
            if here.ended:
                continue
            if placement.order is Order.STOP:
                await self.say(placement, PlacementStatus.STOPPED, cause=Cause.STOPPED, checkpointed=True)
            elif placement.order is Order.RESERVE and here.status is PlacementStatus.ASSIGNED:
                await self.say(placement, PlacementStatus.ACCEPTED)
            elif placement.order is Order.RUN and here.status in (
                PlacementStatus.ASSIGNED,
                PlacementStatus.ACCEPTED,
            ):
                await self.say(placement, PlacementStatus.RUNNING, started_at=self.world.clock.now())

    async def finish(self, job_id: str, *, exit_code: int = 0, **fields: Any) -> None:
        """The job's process ends."""
        placement = self.world.placement(job_id)
        ended = PlacementStatus.SUCCEEDED if exit_code == 0 else PlacementStatus.FAILED
        cause = None if exit_code == 0 else Cause.EXIT
        fields = {"cause": cause, "exit_code": exit_code, "ended_at": self.world.clock.now(), **fields}
        await self.say(placement, ended, **fields)


@dataclass
class World:
    """The dispatcher and its sites."""

    core: Core
    clock: ManualClock
    provider: MovingPrices
    sites: dict[str, FakeSite] = field(default_factory=dict)

    async def add_site(
        self,
        name: str,
        *,
        nodes: int = 1,
        gpus: int = 4,
        model: str = "A100",
        kind: SiteKind = SiteKind.ONPREM,
    ) -> FakeSite:
        """A site with one pool, connected."""
        await self.put(Site(name=name, kind=kind), Member(id=name, site=name, public_key=""))
        return self.connect(name, nodes, gpus, model)

    async def add_member(
        self, site: str, name: str, *, nodes: int = 1, gpus: int = 4, model: str = "A100"
    ) -> FakeSite:
        """One more host of a site, with an agent of its own, connected."""
        await self.put(Member(id=name, site=site, public_key=""))
        return self.connect(name, nodes, gpus, model)

    async def boot(self, lease: Lease) -> FakeSite:
        """The lease's instance joins."""
        member = Member(
            id=lease.member, site=lease.site, public_key="", lease=lease.id, market=lease.offer.market
        )
        await self.put(Site(name=lease.site, kind=SiteKind.CLOUD, provider=lease.provider), member)
        offer = lease.offer
        site = self.connect(
            lease.member, 1, offer.gpus_to_plan, offer.model, pool=offer.pool, shared=offer.shared
        )
        await self.core.executor.step()
        return site

    def connect(
        self,
        name: str,
        nodes: int,
        gpus: int,
        model: str,
        pool: str = "main",
        shared: bool | msgspec.UnsetType = msgspec.UNSET,
    ) -> FakeSite:
        described = Pool(
            name=pool,
            model=model,
            gpu_memory_mib=81920,
            nodes=nodes,
            gpus_per_node=gpus,
            cpus_milli_per_node=64000,
            memory_mib_per_node=500_000,
            lent_gpus=nodes * gpus,
            shared=shared,
        )
        site = self.sites[name] = FakeSite(self, name, described)
        site.connect()
        return site

    async def put(self, *rows: object) -> None:
        """Write rows directly."""

        def compute() -> Changes:
            changes = Changes()
            changes.put(*rows)  # type: ignore[arg-type]
            return changes

        await self.core.records.transact(compute)

    async def upload(self, data: bytes, caller: Caller = ADA) -> str:
        """Keep a work directory of that person; its hash."""
        digest = self.core.blobs.put(data)
        await self.put(BlobOwner(caller.name, digest, self.clock.now()))
        return digest

    async def submit(self, caller: Caller = ADA, client_id: str | None = None, **fields: Any) -> str:
        """Submit a job file; returns the first id."""
        return (await self.submit_all(caller, client_id, **fields)).jobs[0]

    async def submit_all(
        self, caller: Caller = ADA, client_id: str | None = None, **fields: Any
    ) -> Submitted:
        """Submit a job file."""
        document = {"run": "python train.py", **fields}
        request = read_job(document, now=self.clock.now())
        return await self.core.intake.submit(
            caller, request, client_id=client_id, body_hash=repr(sorted(document.items()))
        )

    async def place(self, job_id: str, *members: str) -> Placement:
        """Write the placement that a plan with one rank at each of these members would make; whether it fits is not asked."""
        records, committer = self.core.records, self.core.turn.committer
        site = records.members[members[0]].site

        def compute() -> Changes:
            job, changes = records.jobs[job_id], Changes()
            action = Place(
                job=job_id,
                revision=records.revision_of(job),
                site=site,
                pool="main",
                members=members,
                market=Market.OWNED,
                price_usd_gpu_h=0.0,
                expected_start_at=self.clock.now(),
                expected_end_at=self.clock.now() + 3600.0,
                because="it fits",
            )
            committer.place_job(changes, PLAN, action, job, SNAPSHOT)
            return changes

        await records.transact(compute)
        return self.placement(job_id)

    async def turn(self) -> Plan | None:
        """One turn, and the sites do what they are told."""
        plan = await self.core.turn.once()
        await self.obey()
        return plan

    def report(self) -> None:
        """Every connected site reports."""
        for site in self.sites.values():
            heard = self.core.inventory.members.get(site.name)
            if heard is not None and heard.session:
                site.report()

    async def obey(self) -> None:
        """Every site starts and stops what it is told; a gang over several members takes two rounds."""
        for site in tuple(self.sites.values()) * 2:
            await site.run_all()

    async def policies(self, text: str) -> None:
        """Put this set in force. Fails the test when it is not valid."""
        verdict = await self.core.policy_service.apply(ADMIN, text, "test")
        assert not verdict.problems, verdict.problems

    def job(self, job_id: str) -> Job:
        """The record now."""
        return self.core.records.jobs[job_id]

    def placement(self, job_id: str) -> Placement:
        """The attempt that counts now."""
        return self.core.records.placements[self.job(job_id).placement or ""]

    def leases(self) -> list[Lease]:
        """All leases, oldest first."""
        return sorted(self.core.records.leases.values(), key=lambda lease: lease.id)


async def make_world(
    store: MemoryStore | None = None,
    clock: ManualClock | None = None,
    *,
    link: LinkSettings | None = None,
    oidc: OidcSettings | None = None,
    notifications: NotificationSettings | None = None,
    reach: Reach = lambda _person, _own: None,
    blobs: Blobs | None = None,
    archive: Archive | None = None,
    reserved: dict[str, Reservation] | None = None,
) -> World:
    """A dispatcher that leads, with no sites yet. Give the store of an earlier one to restart it."""
    clock = clock or SharedClock()
    provider = MovingPrices("cloudy", clock, [OFFER])
    core = assemble(
        settings=Settings(
            turn=TurnSettings(solver=False),
            link=link or LinkSettings(),
            oidc=oidc,
            notifications=notifications or NotificationSettings(),
            providers={"cloudy": ProviderSettings(type="fake", site="cloud")},
        ),
        clock=clock,
        store=store or MemoryStore(clock),
        blobs=blobs or MemoryBlobs(),
        archive=archive,
        solver=NoSolver(),
        providers={"cloudy": ReservedProvider(provider, clock, reserved or {})},
        compile_policies=_compile,
        user_data=lambda _admission: _user_data,
        reach=reach,
    )
    await core.reign.begin()
    await core.records.load()
    core.records.lead(core.reign)
    await core.sweeper.retention.archive.begin()
    world = World(core, clock, provider)
    if isinstance(clock, SharedClock):
        clock.listeners.append(world.report)
    return world


def _compile(text: str) -> Compiled:
    documents = load(text)
    return Compiled(tuple(each.stored() for each in documents), compile_set(documents))


async def _user_data(lease: Lease) -> str:
    return f"user data of {lease.id}"

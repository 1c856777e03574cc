"""The composition root of a federation on virtual time: production's parts, with the simulated ones at the edges.

What is put together here is what `federator.app` puts together for a server, except for the store (in memory), the solver (in this process, under
limits of work alone), the clouds, and the sites. Turns are taken on events, and at most once in `TURN_EVERY_S`.
"""

import asyncio
import random

from federator.assembly import Core, assemble
from federator.control.administration.policy_service import Compiled
from federator.control.record.records import Changes
from federator.kernel.errors import FederatorError, Invalid
from federator.kernel.ids import IdSource
from federator.model.capacity import RENTED_POOL, LaunchRequest, Lease
from federator.model.identity import Caller, Role
from federator.model.jobs import JobSpec
from federator.model.rules import planned
from federator.model.sites import Member, Site, SiteKind
from federator.ports import Provider
from federator.settings import (
    AlertSettings,
    LeaseSettings,
    LinkSettings,
    ProviderSettings,
    RetentionSettings,
    Settings,
    TurnSettings,
)
from federator.simulation.clouds import SimulatedCloud
from federator.simulation.data_moves import all_policies, book_of
from federator.simulation.schedulers import Scheduler
from federator.simulation.sites import Conditions, SimulatedAgent
from federator.simulation.virtual_time import ORIGIN_AT, LoopClock, VirtualLoop
from federator.simulation.work import TraceJob, WorkDone, request_of
from federator.simulation.world import WorldSite, WorldSpec
from federator.store.blobs import MemoryBlobs
from federator.store.memory import MemoryStore
from federator.wire.link import JoinRequest
from federator_agent.core.lent_capacity import HostPool, with_shares
from federator_agent.core.lent_capacity import Site as LentSite
from federator_policies.documents import compile_set, load

TURN_EVERY_S = 60.0
"""Turns follow each other at least so far apart; what happens in between is planned together."""
POLL_S = 60.0
SETTLING_S = 1.5 * TURN_EVERY_S
"""Sites connect and report before the trace begins, which it does at `ORIGIN_AT`; by then the dispatcher is idle."""
DAY_S = 86_400.0
KEPT_S = 2 * DAY_S
"""How long the simulated dispatcher remembers what is over: the schedule is written elsewhere."""
REPORT_EVERY_S = 3_600.0
LOOK_S = 600.0
"""No simulated job says `stop_within`, and a gang over members that is not accepted may wait so long."""
ROOT = Caller(name="root", role=Role.ADMIN)


class SimulatedFederation:
    """A dispatcher with its sites and clouds, on one virtual loop."""

    def __init__(
        self, world: WorldSpec, scheduler: Scheduler, loop: VirtualLoop, seed: int, *, encoded: bool = False
    ) -> None:
        """`encoded`: messages go as text, as over the wire."""
        self.world = scheduler.change(world) if scheduler.change else world
        self.scheduler = scheduler
        self.loop = loop
        self.seed = seed
        self._encoded = encoded
        self.clock = LoopClock(loop, ORIGIN_AT - SETTLING_S)
        self.progress = WorkDone(world.speeds)
        self.agents: dict[str, SimulatedAgent] = {}
        self.clouds = {name: self._cloud(name) for name in world.cloud_sites}
        self._secrets: dict[str, str] = {}
        self._book = book_of(self.world)
        self.core: Core = assemble(
            settings=_settings(world, scheduler),
            clock=self.clock,
            store=MemoryStore(self.clock, incarnation=f"simulation-{seed}"),
            blobs=MemoryBlobs(),
            solver=scheduler.solver(seed, world),
            providers=dict[str, Provider](self.clouds),
            compile_policies=self._compile,
            user_data=lambda _: self._user_data,
            ids=IdSource(self.clock, random.Random(seed).getrandbits),
        )

    async def begin(self) -> None:
        """Start the dispatcher, put the policies in force, and let every site connect and report."""
        await self.core.start()
        if policies := all_policies(self.world):
            verdict = await self.core.policy_service.apply(ROOT, policies, "the world's policies")
            if verdict.problems:
                first = verdict.problems[0]
                raise Invalid(first.detail, field=first.field or "policies", remedy=first.remedy)
        for site in self.world.sites:
            await self._join(site)
        await asyncio.sleep(ORIGIN_AT - self.clock.now())
        silent = [m for m, heard in self.core.inventory.members.items() if heard.report is None]
        assert not silent, f"{silent[0]} has not reported within {SETTLING_S:g} s"

    async def submit(self, job: TraceJob) -> str:
        """Submit a job as its owner; its id. Raises what intake does."""
        caller = Caller(name=job.owner, role=Role.USER)
        bind = self.scheduler.bind
        sites = bind(job, self.world, self.seed) if bind else ()
        request = request_of(job, ORIGIN_AT, self.world.speeds, sites)
        submitted = await self.core.intake.submit(caller, request, client_id=None, body_hash=job.name)
        job_id = submitted.jobs[0]
        self.progress.know(job_id, job)
        return job_id

    async def end(self) -> None:
        """Stop everything."""
        await self.core.stop()
        for agent in self.agents.values():
            agent.die()

    def _compile(self, text: str) -> Compiled:
        """As the server does, but for who may submit where: a simulated submission is one that was admitted. Then a scheduler that rents by another rule has its own."""
        documents = load(text)
        rules, alter = planned(compile_set(documents)), self.scheduler.alter
        return Compiled(tuple(each.stored() for each in documents), alter(rules) if alter else rules)

    # -- sites --------------------------------------------------------------------------------------------------------

    async def _join(self, site: WorldSite) -> None:
        lent = LentSite(
            name=site.name,
            pools=site.pools,
            labels=site.labels,
            price_usd_gpu_h=site.price_usd_gpu_h or None,
        )
        agent = self.agents[site.name] = self._agent(site.name, lent, site.conditions)
        record = Site(
            name=site.name,
            kind=site.kind,
            region=site.region,
            labels=site.labels,
            price_usd_gpu_h=site.price_usd_gpu_h,
            created_at=self.clock.now(),
        )
        member = Member(id=site.name, site=site.name, public_key=agent.public_key, joined_at=self.clock.now())

        def compute() -> Changes:
            changes = Changes()
            changes.put(record, member)
            return changes

        await self.core.records.transact(compute)
        agent.start()

    def _agent(self, member: str, site: LentSite, conditions: Conditions) -> SimulatedAgent:
        return SimulatedAgent(
            member=member,
            site=site,
            conditions=conditions,
            clock=self.clock,
            serve=self.core.hub.serve,
            spec=self._spec,
            progress=self.progress,
            encoded=self._encoded,
            brings_s=lambda spec_hash: self._brings_s(spec_hash, site.name),
        )

    def _brings_s(self, spec_hash: str, site: str) -> float:
        """How long it really takes until a job's data is at that site."""
        inputs = self._spec(spec_hash).inputs
        return self._book.to_site(inputs, site).seconds if inputs else 0.0

    def _spec(self, spec_hash: str) -> JobSpec:
        return self.core.records.spec(spec_hash)

    # -- clouds -------------------------------------------------------------------------------------------------------

    def _cloud(self, name: str) -> SimulatedCloud:
        return SimulatedCloud(
            name,
            self.clock,
            [offer for offer in self.world.offers if offer.provider == name],
            risks=self.world.risks,
            seed=self.seed,
            booted=self._booted,
            gone=self._gone,
        )

    async def _user_data(self, lease: Lease) -> str:
        """What a machine is started with: the name of the lease, under which its join token is found."""
        offer = lease.offer
        self._secrets[lease.id] = await self.core.admission.make_join_token(
            lease.site,
            SiteKind.CLOUD,
            region=offer.region,
            provider=lease.provider,
            lease=lease.id,
            member=lease.member,
            expires_in_s=offer.delay_s + DAY_S,
        )
        return lease.id

    def _booted(self, request: LaunchRequest) -> None:
        """A machine has booted: its agent joins."""
        self.loop.create_task(self._boot(request), name=f"boot of {request.name}")

    async def _boot(self, request: LaunchRequest) -> None:
        lease = self.core.records.leases.get(request.name)
        if lease is None:
            return
        offer = lease.offer
        pool = HostPool(
            name=RENTED_POOL,
            model=offer.model,
            gpu_memory_mib=offer.gpu_memory_mib,
            nodes=1,
            gpus_per_node=offer.gpus,
            cpus_milli_per_node=offer.cpus_milli,
            memory_mib_per_node=offer.memory_mib,
        )
        pools = tuple(with_shares(pool, offer.gpus if offer.shared else 0))
        agent = self._agent(lease.member, LentSite(name=lease.site, pools=pools), Conditions())
        self.agents[request.name] = agent
        try:
            asked = JoinRequest(public_key=agent.public_key, member=lease.member)
            await self.core.admission.join(self._secrets.pop(request.name), asked)
        except FederatorError:
            return  # its token has expired: the dispatcher gives the machine back by itself
        agent.start()

    def _gone(self, name: str) -> None:
        """A machine is no more."""
        self._secrets.pop(name, None)
        agent = self.agents.pop(name, None)
        if agent is not None:
            agent.die()


def _settings(world: WorldSpec, scheduler: Scheduler) -> Settings:
    return Settings(
        turn=TurnSettings(
            coalesce_s=1.0,
            minimum_gap_s=TURN_EVERY_S,
            heartbeat_s=REPORT_EVERY_S,
            stages=scheduler.stages,
            solver=scheduler.stages != ("greedy",),
            fast_path=scheduler.ours,
            window=scheduler.ours,
            learn=scheduler.learns,
            first_forecasts=False,
        ),
        link=LinkSettings(
            report_every_s=REPORT_EVERY_S, unreachable_after_s=4 * REPORT_EVERY_S, look_s=LOOK_S
        ),
        leases=LeaseSettings(poll_s=POLL_S),
        alerts=AlertSettings(look_s=0),
        retention=RetentionSettings(
            promised_s=KEPT_S,
            jobs_s=KEPT_S,
            ledger_s=KEPT_S,
            decisions=0,
            sweep_s=6 * 3600.0,
        ),
        providers={
            name: ProviderSettings(type="simulated", site=site, region="cloud")
            for name, site in world.cloud_sites.items()
        },
    )

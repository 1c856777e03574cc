"""The agent of a cluster: the same machine, whose hands submit jobs to a scheduler and learn late, and by asking, what became of them."""

import asyncio

from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator_agent.core import events as ev
from federator_agent.core.lent_capacity import Site
from federator_agent.core.state import Phase, PlacementRecord, State
from federator_agent.staging_errors import StagingLost, StagingRefused
from tests.lab.faults.agents import ABILITIES, AgentLife
from tests.lab.faults.clusters import Cluster
from tests.lab.faults.fault_profile import Trouble
from tests.lab.faults.ranks import RealRank

LOOK_S = (1.0, 10.0)
OBSERVE_S = (5.0, 40.0)
SOON_S, LATE_S = (0.5, 5.0), (30.0, 1200.0)
"""Until the cluster looks at a job: usually, and while it is busy."""
START_WITHIN_S = 900.0
"""What has no nodes by then goes back."""


class ClusterAgentLife(AgentLife):
    """One process of such an agent."""

    host: Cluster

    def _first_state(self) -> State:
        """What the site has is seen, not declared; nothing ends its work when it is cut off."""
        plan = self.host.plan
        site = Site(name=plan.site, pools=())
        return State(site=site, outlives=True, runtime=plan.runtime, abilities=ABILITIES)

    def begin(self) -> None:
        """As every agent; and look at the cluster."""
        self._killed: set[str] = set()
        super().begin()
        self.process.spawn(self._observe(), "observe")

    async def _observe(self) -> None:
        while True:
            await self._reached()
            seen = self.host.seen()
            await asyncio.sleep(self._chance.uniform(*SOON_S))
            self.tell(ev.CapacitySeen(seen))
            await asyncio.sleep(self._chance.uniform(*OBSERVE_S))

    async def _reached(self) -> None:
        """Ask the cluster, until it answers."""
        while self._profile.draw(self._chance, self.host.member, Trouble.CLUSTER_SILENT):
            await asyncio.sleep(self._chance.uniform(*LOOK_S))

    # -- up to the gate -----------------------------------------------------------------------------------------------

    async def _prepared(self, record: PlacementRecord, spec: JobSpec) -> dict[int, str]:
        """Bring its data, submit its job, and wait until it has nodes. Raises `StagingError`."""
        placement, cluster, member = record.entry.placement, self.host, self.host.member
        await self._reached()
        if placement not in cluster.jobs:
            if self._data is not None:
                await self._data.bring(record, spec)
            if self._profile.draw(self._chance, member, Trouble.CLUSTER_REFUSES):
                raise StagingRefused("the cluster does not take it: exceeded quota")
            late = self._profile.draw(self._chance, member, Trouble.CLUSTER_BUSY)
            cluster.submit(record, spec, self._chance.uniform(*(LATE_S if late else SOON_S)))
        waited_s = 0.0
        while True:
            pause_s = self._chance.uniform(*LOOK_S)
            await asyncio.sleep(pause_s)
            await self._reached()
            job = cluster.jobs.get(placement)
            if job is None or job.word is not None:
                raise StagingLost("its job is over before it began", Cause.EVICTED)
            if job.slots:
                return {rank: slot.host for rank, slot in job.slots.items()}
            waited_s += pause_s
            if waited_s > START_WITHIN_S:
                cluster.cancel(placement)
                raise StagingRefused("the cluster has not started it in time")

    def _stop_staging(self, placement: str) -> None:
        task = self._staging.pop(placement, None)
        if task is not None:
            task.cancel()
        self.process.spawn(self._unprepare(placement), "unprepare")

    async def _unprepare(self, placement: str) -> None:
        await self._reached()
        self.host.cancel(placement)
        self.tell(ev.StagingStopped(placement))

    # -- beyond it ----------------------------------------------------------------------------------------------------

    def _start(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        self.process.spawn(self._open(record, spec, ranks), "open")

    async def _open(self, record: PlacementRecord, spec: JobSpec, ranks: tuple[int, ...]) -> None:
        """Open the gate; what is not there any more is told to be over."""
        placement = record.entry.placement
        await self._reached()
        for slot in record.slots:
            if slot.rank in ranks:
                began = self.host.start(record, spec, slot)
                if began is not None and self._data is not None:
                    self._data.read(record, spec)
                if self.process.stumbles():
                    return
        for rank in ranks:
            await self._learn(placement, rank)

    async def _learn(self, placement: str, rank: int) -> None:
        """Some time later it is known that a rank has begun, or how it has ended."""
        await asyncio.sleep(self._chance.uniform(*LOOK_S))
        await self._reached()
        real = self.host.rank(placement, rank)
        if real is None:
            detail = "its job is over before it began"
            self.tell(ev.RankEnded(placement, rank, self._clock.now(), None, detail, Cause.NODE_LOST))
            return
        self.tell(ev.RankStarted(placement, rank, real.began_at))
        if real.ended_s is not None:
            self.tell(self.host.end_of(real, killed=placement in self._killed))

    def _rank_ended(self, rank: RealRank) -> None:
        """Nobody tells: it is seen at one of the next looks."""
        if self.process.alive:
            self.process.spawn(self._learn(rank.placement, rank.rank), "look")

    async def _collect(self, record: PlacementRecord) -> None:
        """Outputs are got from the cluster."""
        if self._data is not None:
            await self._reached()
        await super()._collect(record)

    def _find(self, placement: str, rank: int) -> None:
        self.process.spawn(self._look_for(placement, rank), "find")

    async def _look_for(self, placement: str, rank: int) -> None:
        """After a restart: before a shut gate nothing has begun, and it can be opened while the job waits there."""
        await self._reached()
        record = self._state.records.get(placement)
        if record is not None and record.stop is not None and record.stop.killed:
            self._killed.add(placement)
        job = self.host.jobs.get(placement)
        if self.host.rank(placement, rank) is None and job is not None and job.word is None:
            if record is not None and record.phase is Phase.STOPPING:
                self.host.cancel(placement)
            self.tell(ev.RankAbsent(placement, rank))
        else:
            await self._learn(placement, rank)

    def _send(self, placement: str, rank: int, signal: str) -> None:
        self.process.spawn(self._sent(placement, rank, signal), "signal")

    async def _sent(self, placement: str, rank: int, signal: str) -> None:
        """However long the cluster does not answer: it is what a job saves itself on. A kill ends what waits, too."""
        await self._reached()
        if signal == "KILL":
            self._killed.add(placement)
            self.host.cancel(placement)
        else:
            self.host.signal(placement, rank, signal)

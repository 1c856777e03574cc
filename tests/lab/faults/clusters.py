"""A site with a scheduler of its own, Slurm or Kubernetes: jobs wait there for nodes, and it ends, requeues and forgets them for reasons of its own.

A cluster is the machines of one member. Its agent runs beside it: when the agent's host boots anew, all work goes on. What the cluster says of an end is read by the runtimes' own
rules, `federator_agent.slurm.fates` and `federator_agent.kube.pod_status`; the rest of what the two runtimes do stands in `cluster_agents`.
"""

from msgspec.structs import replace

from federator.kernel.quantities import format_instant
from federator.kube.objects import (
    Condition,
    ContainerState,
    ContainerStatus,
    Meta,
    Pod,
    PodStatus,
    Terminated,
)
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.simulation.virtual_time import ORIGIN_AT
from federator_agent.core.events import RankEnded
from federator_agent.core.lent_capacity import Host as SeenHost
from federator_agent.core.lent_capacity import Seen, Slot
from federator_agent.core.state import PlacementRecord
from federator_agent.kube.manifests import MAIN
from federator_agent.kube.pod_status import DISRUPTED, end_of
from federator_agent.slurm.fates import FORGOTTEN, REQUEUED, fate
from federator_agent.slurm.folder import Exit
from tests.lab.faults.hosts import ASKED, CPUS_MILLI, KILLED, MEMORY_MIB, Host
from tests.lab.faults.plan import KUBE, FaultKind, HostPlan
from tests.lab.faults.ranks import RealRank
from tests.lab.faults.scene import Scene

GRACE_S = 30.0
"""What the cluster evicts has so long to save itself."""
COMPLETED, FAILED, PREEMPTED = "COMPLETED", "FAILED", "PREEMPTED"


class ClusterJob:
    """What was submitted for a placement: it waits for nodes, then at the gate, then it runs."""

    def __init__(self, record: PlacementRecord, gpus: int, eligible_s: float) -> None:
        self.record = record
        self.gpus = gpus
        self.eligible_s = eligible_s
        """The cluster does not look at it before."""
        self.slots: dict[int, Slot] = {}
        """Once it has nodes."""
        self.word: str | None = None
        """How the cluster has ended it, if it has: Slurm's word, whichever cluster it is."""
        self.evicted_s = 0.0


class Cluster(Host):
    """One member's. `jobs` is what it knows of, and remembers until the agent discards it."""

    def __init__(self, plan: HostPlan, scene: Scene) -> None:
        super().__init__(plan, scene)
        self.jobs: dict[str, ClusterJob] = {}

    @property
    def work_boot_id(self) -> str:
        """Never another: a boot of the agent's host proves nothing."""
        return self.plan.runtime

    def reboot(self, *, wiped: bool) -> None:
        """The agent's host does; its disk is on the cluster's own file system."""
        del wiped
        self._journal.note(self.member, "the agent's host reboots")
        self.boots += 1
        self.clock.reboot()
        self.disk.renewed = None

    # -- what is submitted --------------------------------------------------------------------------------------------

    def submit(self, record: PlacementRecord, spec: JobSpec, late_s: float) -> None:
        """Once for each placement: of one that was submitted, by whatever life of its agent, nothing changes."""
        name = record.entry.placement
        if name not in self.jobs:
            self.jobs[name] = ClusterJob(record, spec.resources.gpus.count, self._loop.time() + late_s)
            self._loop.later(late_s, self._find_nodes)

    def _find_nodes(self) -> None:
        """First come, first served, each whole or not at all, on whichever nodes have room: not those that the agent had in mind."""
        for job in self.jobs.values():
            if job.slots or job.word is not None or job.eligible_s > self._loop.time():
                continue
            free = {name: list(gpus) for name, gpus in self._free().items()}
            for slot in job.record.slots:
                room = [name for name, gpus in free.items() if len(gpus) >= job.gpus]
                if not room:
                    job.slots = {}
                    return
                host = self._chance.choice(room)
                gpus, free[host] = free[host][: job.gpus], free[host][job.gpus :]
                job.slots[slot.rank] = replace(slot, host=host, gpus=tuple(gpus))

    def _free(self) -> dict[str, list[int]]:
        """By node, GPUs that nobody has."""
        free = {f"{self.pool.name}/{number}": set(self.pool.numbers) for number in range(self.pool.nodes)}
        for slot in self._held():
            free[slot.host] -= set(slot.gpus)
        return {name: sorted(gpus) for name, gpus in free.items()}

    def _held(self) -> list[Slot]:
        held = []
        for name, job in self.jobs.items():
            for rank, slot in job.slots.items():
                real = self.rank(name, rank)
                held += [slot] if (job.word if real is None else real.ended_s) is None else []
        return held

    def cancel(self, placement: str) -> None:
        """The agent takes it back, or kills all that is left of it."""
        job = self.jobs.get(placement)
        if job is not None and job.word is None:
            job.word = "CANCELLED"
            self._kill_all(placement)

    def start(self, record: PlacementRecord, spec: JobSpec, slot: Slot) -> RealRank | None:
        """Its gate is opened: a rank begins where the cluster has put it. None: it has begun, or there is no job any more."""
        job = self.jobs.get(record.entry.placement)
        if job is None or job.word is not None or slot.rank not in job.slots:
            return None
        return super().start(record, spec, job.slots[slot.rank])

    def discard(self, placement: str) -> None:
        """Nothing of it is kept."""
        super().discard(placement)
        self.jobs.pop(placement, None)

    def seen(self) -> Seen:
        """What an agent that looks sees."""
        hosts = tuple(
            SeenHost(name, tuple(gpus), CPUS_MILLI, MEMORY_MIB) for name, gpus in self._free().items()
        )
        counted = frozenset(name for name, job in self.jobs.items() if job.slots)
        return Seen(pools=(self.pool,), hosts={self.pool.name: hosts}, counted=counted)

    # -- what it does of its own --------------------------------------------------------------------------------------

    def strike(self, kind: FaultKind, which: int) -> None:
        """Do that to one of the jobs that it has."""
        alive = [name for name, job in self.jobs.items() if job.word is None and self._is_there(name)]
        if not alive:
            return
        name = alive[which % len(alive)]
        self._journal.note(self.member, f"{kind}: {name[-6:]}")
        job = self.jobs[name]
        job.evicted_s = self._loop.time()
        if kind is FaultKind.EVICT:
            job.word = PREEMPTED
            for rank in self._running(name):
                self._ask(rank)
                self._loop.later(GRACE_S, self._kill, rank)
        else:
            job.word = REQUEUED if kind is FaultKind.REQUEUE else FORGOTTEN
            self._kill_all(name)
        self._find_nodes()

    def _is_there(self, placement: str) -> bool:
        """Whether it waits, or runs."""
        ever = self._truth.ever(placement)
        return not ever or any(rank.ended_s is None for rank in ever.values())

    def _running(self, placement: str) -> list[RealRank]:
        return [rank for rank in self._truth.ever(placement).values() if rank.ended_s is None]

    def _kill_all(self, placement: str) -> None:
        for rank in self._running(placement):
            self._over(rank, KILLED)

    def _over(self, rank: RealRank, code: int) -> None:
        """Of what saves itself when it is told to go, half calls that a success."""
        polite = code == ASKED and self._chance.random() < 0.5
        super()._over(rank, 0 if polite else code)
        self._find_nodes()

    # -- how ends are told --------------------------------------------------------------------------------------------

    def end_of(self, rank: RealRank, *, killed: bool) -> RankEnded:
        """Of a rank that is over, as its runtime would tell it. `killed`: by the agent, as far as that knows."""
        job = self.jobs[rank.placement]
        if self.plan.runtime == KUBE:
            return self._end_of_pod(rank, job)
        mark = None if job.word == FORGOTTEN or rank.code is None else Exit(rank.code, 0.0)
        how = fate(
            mark, job.word if job.word is not None else COMPLETED if rank.code == 0 else FAILED, killed=killed
        )
        return RankEnded(rank.placement, rank.rank, rank.ended_at, how.code, how.detail, how.cause)

    def _end_of_pod(self, rank: RealRank, job: ClusterJob) -> RankEnded:
        assert rank.ended_s is not None
        pod = None if job.word == FORGOTTEN else _pod(rank, job)
        end = None if pod is None else end_of(pod, ORIGIN_AT + self._loop.time())
        if end is None:
            return RankEnded(
                rank.placement, rank.rank, self.clock.now(), None, "its pod was removed", Cause.NODE_LOST
            )
        # The cluster's times are whole seconds: as in the runtime, put later.
        ago_s = max(0.0, ORIGIN_AT + self._loop.time() - end.at - 1.0)
        return RankEnded(
            rank.placement, rank.rank, self.clock.now() - ago_s, end.exit_code, end.detail, end.cause
        )


def _pod(rank: RealRank, job: ClusterJob) -> Pod:
    """As the API server would show it, evicted or deleted where the cluster has ended it."""
    assert rank.ended_s is not None
    finished = Terminated(exit_code=rank.code or 0, finished_at=format_instant(ORIGIN_AT + rank.ended_s))
    status = PodStatus(
        phase="Failed" if rank.code else "Succeeded",
        container_statuses=(ContainerStatus(name=MAIN, state=ContainerState(terminated=finished)),),
    )
    taken = format_instant(ORIGIN_AT + job.evicted_s)
    if job.word == PREEMPTED:
        disrupted = Condition(
            type=DISRUPTED, status="True", reason="EvictionByEvictionAPI", last_transition_time=taken
        )
        status = replace(status, conditions=(disrupted,))
    meta = Meta(name=rank.name)
    if job.word == REQUEUED:
        meta = replace(meta, deletion_timestamp=taken, deletion_grace_period_seconds=0)
    return Pod(metadata=meta, status=status)

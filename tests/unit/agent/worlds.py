"""A core with a fake world under it: a disk that remembers what was persisted, processes that are numbers."""

from typing import Any

import msgspec

from federator.kernel.ids import content_hash
from federator.model.jobs import Accelerators, JobSpec, Resources
from federator.model.placements import Cause, DesiredEntry, Order, PlacementReport
from federator.model.sites import SiteReport
from federator.wire.link import Desired, desired_digest
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from federator_agent.core.capacity_report import site_report, unchanged
from federator_agent.core.lent_capacity import HostPool, Lending, Site
from federator_agent.core.machine import step
from federator_agent.core.state import Change, State, restore

POOL = HostPool(
    name="gpu",
    model="A100",
    gpu_memory_mib=80_000,
    nodes=2,
    gpus_per_node=4,
    cpus_milli_per_node=16_000,
    memory_mib_per_node=64_000,
)
SITE = Site(name="here", pools=(POOL,))


def spec(gpus: int = 1, nodes: int = 1, **fields: Any) -> JobSpec:
    resources = Resources(gpus=Accelerators(count=gpus), cpus_milli=1000, memory_mib=1000)
    defaults: dict[str, Any] = {"name": "job", "run": "true", "nodes": nodes, "resources": resources}
    return JobSpec(**(defaults | fields))


def spec_hash(of: JobSpec) -> str:
    return content_hash(msgspec.json.encode(of))


def entry(placement: str, of: JobSpec, **fields: Any) -> DesiredEntry:
    defaults: dict[str, Any] = {
        "placement": placement,
        "job": f"job-{placement}",
        "job_name": of.name,
        "epoch": 1,
        "spec_hash": spec_hash(of),
        "order": Order.RUN,
        "ranks": tuple(range(of.nodes)),
        "pool": "gpu",
    }
    return DesiredEntry(**(defaults | fields))


class World:
    """An agent's core, its disk and its time. `said` is what the dispatcher heard."""

    def __init__(self, site: Site = SITE, boot_id: str = "boot-1", *, outlives: bool = False) -> None:
        self.site = site
        self.outlives = outlives
        self.boot_id = boot_id
        self.at = 1_760_000_000.0
        self.boot_s = 1000.0
        self.disk: list[Change] = []
        self.specs: dict[str, JobSpec] = {}
        self.desired: dict[str, DesiredEntry] = {}
        self.generation = 0
        self.said: list[PlacementReport] = []
        self.state = State(site=site, outlives=outlives)
        self.tell(ev.Awake(boot_id))

    def tell(self, *events: ev.Event) -> list[do.Instruction]:
        """Play what has come by now; what is to be done after what is durable is on the disk."""
        now = ev.Now(self.at, self.boot_s)
        self.state, instructions = step(self.state, events, now)
        if self.state.linked:
            assert self._told(site_report(self.state, now)), "the dispatcher was not told"
        for index, instruction in enumerate(instructions):
            if isinstance(instruction, do.Persist):
                assert index == 0, "what follows from a change must come after it is on disk"
                self.disk += instruction.changes
            elif isinstance(instruction, do.SendStatuses):
                self.said += instruction.reports
        return instructions

    def _told(self, now: SiteReport) -> bool:
        """Whether the last report says what is so. It may go on naming what is over and forgotten since: nothing is free for that."""
        said = self.state.reported
        if said is None or not set(now.counted) <= set(said.counted):
            return False
        forgotten = set(said.counted) - set(now.counted)
        return not forgotten & set(self.state.records) and unchanged(
            said, msgspec.structs.replace(now, counted=said.counted)
        )

    def connect(self, incarnation: str = "inc-1", term: int = 1) -> list[do.Instruction]:
        return self.tell(ev.LinkUp(incarnation, term, address="10.0.0.5"))

    def want(
        self, *entries: DesiredEntry, forget: tuple[str, ...] = (), term: int = 1
    ) -> list[do.Instruction]:
        """Send a change of the desired set."""
        self.generation += 1
        self.desired |= {entry.placement: entry for entry in entries}
        for placement in forget:
            del self.desired[placement]
        digest = desired_digest(self.desired.values())
        return self.tell(ev.DesiredChanged(Desired(self.generation, entries, digest, forget, term=term)))

    def bring(self, of: JobSpec) -> list[do.Instruction]:
        """The spec arrives."""
        self.specs[spec_hash(of)] = of
        return self.tell(ev.SpecArrived(spec_hash(of), of))

    def reserve(self, placement: str, of: JobSpec, **fields: Any) -> None:
        """Bring a placement to where its slots are held and it waits for the order to run."""
        self.want(entry(placement, of, order=Order.RESERVE, **fields))
        if only(self.bring(of), do.FindPort):
            self.tell(ev.PortFound(placement, 31234))

    def run(self, placement: str, of: JobSpec, **fields: Any) -> None:
        """Bring a placement to where all its ranks run."""
        self.want(entry(placement, of, **fields))
        self.bring(of)
        self.tell(ev.Staged(placement, 29500))
        for rank in range(of.nodes):
            self.tell(ev.RankStarted(placement, rank, self.at))

    def end(
        self,
        placement: str,
        rank: int = 0,
        code: int | None = 0,
        detail: str = "",
        cause: Cause | None = None,
    ) -> list[do.Instruction]:
        return self.tell(ev.RankEnded(placement, rank, self.at, code, detail, cause))

    def advance(self, seconds: float) -> list[do.Instruction]:
        self.at += seconds
        self.boot_s += seconds
        return self.tell(ev.Tick())

    def crash(self, boot_id: str | None = None) -> list[do.Instruction]:
        """Lose the memory, keep the disk, wake up again."""
        self.boot_id = boot_id or self.boot_id
        remembered = restore(State(site=self.site, outlives=self.outlives), self.disk)
        self.state = msgspec.structs.replace(remembered, specs=dict(self.specs))
        return self.tell(ev.Awake(self.boot_id))

    def last(self, placement: str) -> PlacementReport:
        return [report for report in self.said if report.placement == placement][-1]


def lending(**fields: Any) -> Site:
    return msgspec.structs.replace(SITE, lend=Lending(**fields))


def only(instructions: list[do.Instruction], kind: type) -> list[Any]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]

"""The processes of a job as they really are, whatever anybody believes."""

from federator.model.jobs import JobSpec
from federator_agent.core.lent_capacity import HostPool, Slot
from federator_agent.core.state import PlacementRecord
from tests.lab.faults.plan import HostPlan


class RealRank:
    """One process of a job, from its start to its end."""

    def __init__(
        self,
        record: PlacementRecord,
        spec: JobSpec,
        slot: Slot,
        host: HostPlan,
        pool: HostPool,
        began_s: float,
    ) -> None:
        self.placement = record.entry.placement
        self.job = record.entry.job
        self.queue = record.entry.queue
        self.rank = slot.rank
        self.slot = slot
        self.member, self.site = host.member, host.site
        self.pool = pool
        """The hardware of its member."""
        self.spec = spec
        self.grace_s = record.entry.grace_s
        self.resume = record.entry.resume
        self.began_s = began_s
        self.began_at = 0.0
        """By its host's wall clock."""
        self.ended_s: float | None = None
        self.ended_at = 0.0
        self.code: int | None = None
        self.asked_s: float | None = None

    @property
    def name(self) -> str:
        """Placement and rank."""
        return f"{self.placement[-6:]}.{self.rank}"

"""What a seed stands for: a small federation, its users and their jobs, and everything that is to go wrong, all of it known beforehand.

A plan is values only. Worlds are small on purpose: what breaks a promise is mostly an unlucky order of a few events, and small worlds are many.
"""

from enum import StrEnum

import msgspec

from federator.model.capacity import Offer
from federator_agent.link_limits import LinkLimits
from tests.lab.faults.fault_profile import Spell
from tests.lab.faults.policies import Policies, PolicyChange

HOUR_S = 3600.0
SETTLED_S = 120.0
"""Before that nothing goes wrong: the agents connect."""
PROVIDER = "cloud"
COMMIT, LAUNCH, TERMINATE = "commit", "launch", "terminate"
LOCAL, SLURM, KUBE = "local", "slurm", "kube"


class FaultKind(StrEnum):
    """What goes wrong once, at a time."""

    KILL = "kill"
    STOP = "stop"
    REBOOT = "reboot"
    WIPE = "reboot with an empty disk"
    JUMP = "clock set"
    CUT = "cut"
    CUT_UP = "cut one way, to the dispatcher"
    CUT_DOWN = "cut one way, from the dispatcher"
    DROP = "session dropped"
    INTERRUPT = "machine taken back"
    VANISH = "machine vanishes"
    NONSENSE = "nonsense said to the dispatcher"
    TIDY = "what a member has fetched is removed"
    EVICT = "its cluster evicts a job"
    REQUEUE = "its cluster puts a job back into its queue, or deletes it"
    FORGET = "its cluster loses a job"


class InjectedFault(msgspec.Struct, frozen=True):
    """One of these: when, to whom, and how long, how far or after how many steps, whichever it needs."""

    at_s: float
    kind: FaultKind
    who: str
    lasts_s: float = 0.0
    steps: int = 0
    deed: str = ""
    """Of a kill: the steps count from when it next comes to this; empty: at once."""


class LinkPlan(msgspec.Struct, frozen=True):
    """What a member's link to the dispatcher carries, and what its site file allows of it."""

    bytes_s: float = 1e7
    limits: LinkLimits = LinkLimits()


class HostPlan(msgspec.Struct, frozen=True):
    """One member: its hosts, all alike, and how its clocks run."""

    member: str
    site: str
    model: str
    nodes: int
    gpus: int
    rate: float
    ahead_s: float
    staging_s: float
    runtime: str = LOCAL
    """What runs its work: this one's own processes, or a cluster."""
    link: LinkPlan | None = None
    """In worlds with data."""


class Deed(msgspec.Struct, frozen=True):
    """What a user does to a job, so long after it was accepted: cancel, hold, release, requeue, or a new priority."""

    after_s: float
    verb: str


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks for, and what only the world knows of it."""

    name: str
    submit_s: float
    run_s: float
    nodes: int = 1
    gpus: int = 1
    tasks: int = 0
    """Of an array; 0: it is none."""
    queue: str = "default"
    priority: int = 50
    stop_within_s: float | None = None
    grace_s: float = 30.0
    deadline_s: float | None = None
    """After its submission."""
    max_duration_s: float = 8 * HOUR_S
    estimate_s: float | None = None
    checkpoints: bool = False
    stubborn: bool = False
    """It does not end when it is asked to."""
    fails: int = 0
    """So many attempts end with exit code 1 first."""
    retries: int = 0
    output_bytes: int = 0
    """It leaves outputs of that size; 0: it leaves none."""
    log_bytes: int = 0
    reads: str = ""
    """The job whose outputs it reads."""
    admitted_by: str = ""
    """The member whose agent it is submitted to, as that is cut off; empty: it is submitted to a dispatcher."""
    deeds: tuple[Deed, ...] = ()


class SeriesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is submitted again and again, and what each run is like. Its name is that of the series."""

    job: JobPlan
    every_s: float
    times: int
    """So often it is due, before it ends."""
    overlap: str = "skip"
    deeds: tuple[Deed, ...] = ()
    """Its user pauses, resumes or ends it, or submits the same file again."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    faults_s: float
    """So long things go wrong."""
    hosts: tuple[HostPlan, ...]
    offers: tuple[Offer, ...]
    dispatchers: tuple[str, ...]
    rates: dict[str, float]
    """Of the dispatchers' boot clocks."""
    jobs: tuple[JobPlan, ...]
    spells: tuple[Spell, ...]
    faults: tuple[InjectedFault, ...]
    policies: Policies
    """The first set."""
    solver: bool
    """Whether the solver plans, or greedy alone."""
    series: tuple[SeriesPlan, ...] = ()
    changes: tuple[PolicyChange, ...] = ()

    def works(self) -> dict[str, JobPlan]:
        """What every job is like, also the runs of series."""
        runs = {
            f"{each.job.name}-{number}": each.job
            for each in self.series
            for number in range(1, each.times + 1)
        }
        return {job.name: job for job in self.jobs} | runs

    @property
    def policy_sets(self) -> tuple[Policies, ...]:
        """All that are ever applied, in their order."""
        return (self.policies, *(each.policies for each in self.changes))

    @property
    def members(self) -> tuple[str, ...]:
        """Those that are there from the start."""
        return tuple(host.member for host in self.hosts)

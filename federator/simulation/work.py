"""Jobs of a simulated trace: the request of each, its user's estimate, and its true run time, which only the simulator knows.

The dispatcher is told what a user would tell it. How long a job really runs is known here alone, and the simulated ranks ask for it.
"""

from collections.abc import Mapping

import msgspec

from federator.model.jobs import (
    Accelerators,
    Checkpoint,
    Form,
    Input,
    JobSpec,
    PlacementConstraints,
    Resources,
)
from federator.wire.jobfile import JobRequest

NOTHING_S = 1.0
"""No run is shorter: a job that takes no time would teach nothing."""
RESUMING_S = 20.0
"""A job that goes on from what it has saved reads it for so long first."""


class TraceForm(msgspec.Struct, frozen=True):
    """Another way to run: so many nodes with so many GPUs each, at a throughput relative to what the job asks for."""

    nodes: int
    gpus: int
    throughput: float

    @property
    def gpus_total(self) -> int:
        """GPUs over all nodes."""
        return self.nodes * self.gpus


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a trace. `submit_s` counts from the start of the trace, as does `deadline_s`; `run_s` is the true run time at speed 1."""

    name: str
    family: str = ""
    """What its owner calls it, and all work of its kind; empty: by its own name."""
    submit_s: float
    run_s: float
    nodes: int = 1
    gpus: int = 1
    """Per node."""
    estimate_s: float | None = None
    """What its user says; None: nothing."""
    deadline_s: float | None = None
    value_usd: float | None = None
    must: bool = False
    """It says `value: must`: its deadline is to be met at any permitted price. `value_usd` is then accounted, and told to nobody."""
    priority: int = 50
    queue: str = "default"
    owner: str = "user"
    home: str = ""
    """Its owner's own site."""
    models: tuple[str, ...] = ()
    gpu_memory_mib: int = 0
    """That each GPU must have at least."""
    speed: dict[str, float] = {}
    """How fast it runs on each model; empty: as the world says."""
    cpus_milli: int = 1000
    memory_mib: int = 0
    kinds: tuple[str, ...] = ()
    """Where it may run, as its user says; empty: anywhere."""
    sites: tuple[str, ...] = ()
    not_sites: tuple[str, ...] = ()
    site_labels: dict[str, str] = {}
    labels: dict[str, str] = {}
    """Its own, which policies may go by."""
    licenses: dict[str, int] = {}
    """What it holds while it runs, and how many of each."""
    spot_policy: str = "auto"
    max_cost_usd: float | None = None
    max_duration_s: float | None = None
    inputs: tuple[Input, ...] = ()
    """Data that it reads."""
    wait_usd_h: float | None = None
    """What an hour of its waiting costs, where the trace says; it is accounted, and told to nobody."""
    forms: tuple[TraceForm, ...] = ()
    """Its other forms; `nodes` and `gpus` are the first, in which `run_s` is its run time."""
    elastic: bool = False
    """It may change its form while it runs: it saves itself when it is told to end, and goes on from there."""
    saves_s: float | None = None
    """It saves itself so often, and when it is told to end, at a place that outlives its machine; None: it has no such place."""

    @property
    def gpus_total(self) -> int:
        """GPUs over all nodes."""
        return self.nodes * self.gpus

    @property
    def gpu_h(self) -> float:
        """GPU-hours at speed 1."""
        return self.gpus_total * self.run_s / 3600.0

    def speed_on(self, model: str, speeds: Mapping[str, float], form: int = 0) -> float:
        """How fast it runs there in that form: as it says itself, else as the world does."""
        throughput = self.forms[form - 1].throughput if form else 1.0
        return throughput * (self.speed or speeds).get(model, 1.0)

    def resources(self, gpus: int) -> Resources:
        """What each node asks for that has so many GPUs."""
        return Resources(
            gpus=Accelerators(count=gpus, models=self.models, memory_mib=self.gpu_memory_mib),
            cpus_milli=self.cpus_milli,
            memory_mib=self.memory_mib,
        )


def request_of(
    job: TraceJob, origin_at: float, speeds: dict[str, float], sites: tuple[str, ...] = ()
) -> JobRequest:
    """The submission that its user would make, bound to these sites if there are any: never with the true run time."""
    spec = JobSpec(
        name=job.family or job.name,
        run="true",
        nodes=job.nodes,
        resources=job.resources(job.gpus),
        forms=tuple(Form(each.nodes, job.resources(each.gpus), each.throughput) for each in job.forms)
        or msgspec.UNSET,
        elastic=job.elastic or msgspec.UNSET,
        checkpoint=_checkpoint(job),
        estimate_s=job.estimate_s,
        speed=job.speed or speeds,
        spot_policy=job.spot_policy,
        placement=PlacementConstraints(
            kinds=job.kinds, sites=sites or job.sites, not_sites=job.not_sites, labels=job.site_labels
        ),
        labels=job.labels,
        licenses=job.licenses or msgspec.UNSET,
        inputs=job.inputs or msgspec.UNSET,
    )
    return JobRequest(
        spec=spec,
        queue=job.queue,
        priority=job.priority,
        deadline_at=None if job.deadline_s is None else origin_at + job.deadline_s,
        value_usd=None if job.must else job.value_usd,
        must=job.must,
        max_cost_usd=job.max_cost_usd,
        max_duration_s=job.max_duration_s,
    )


def _checkpoint(job: TraceJob) -> Checkpoint | None:
    if job.saves_s is not None:
        return Checkpoint(every_s=job.saves_s, uri=f"s3://checkpoints/{job.name}")
    return Checkpoint() if job.elastic else None


class WorkDone:
    """How far each job has come, where: what is left of it depends on the checkpoints it can go on from."""

    def __init__(self, speeds: dict[str, float]) -> None:
        self._speeds = speeds
        self._jobs: dict[str, TraceJob] = {}
        self._saved: dict[tuple[str, str], float] = {}

    def know(self, job_id: str, job: TraceJob) -> None:
        """This is the job of that id."""
        self._jobs[job_id] = job

    def speed(self, job_id: str, model: str, form: int = 0) -> float:
        """How fast the job goes in that form on that model, relative to the trace's own."""
        return self._jobs[job_id].speed_on(model, self._speeds, form)

    def left_s(self, job_id: str, model: str, place: str, *, resume: bool, form: int = 0) -> float:
        """How long the job still runs in that form on that model; `resume`: from what it saved at this place, which it reads first."""
        done_s, reading_s = self._goes_on(job_id, place, resume=resume)
        left_s = (self._jobs[job_id].run_s - done_s) / self.speed(job_id, model, form)
        return reading_s + max(NOTHING_S, left_s)

    def save(
        self, job_id: str, model: str, place: str, ran_s: float, *, resume: bool = False, form: int = 0
    ) -> None:
        """It has saved itself here after so long in that form on that model, counted on top of what it went on from."""
        done_s, reading_s = self._goes_on(job_id, place, resume=resume)
        worked_s = max(0.0, ran_s - reading_s)
        self._saved[self._kept(job_id, place)] = done_s + worked_s * self.speed(job_id, model, form)

    def _goes_on(self, job_id: str, place: str, *, resume: bool) -> tuple[float, float]:
        """From how much it goes on, and how long it reads that. What is kept for all places is brought to whichever it is, and nobody needs to say so."""
        kept = self._kept(job_id, place)
        for_all = self._jobs[job_id].saves_s is not None and kept in self._saved
        return (self._saved.get(kept, 0.0), RESUMING_S) if resume or for_all else (0.0, 0.0)

    def _kept(self, job_id: str, place: str) -> tuple[str, str]:
        """Where it looks for what it has saved: at this place, or at one that all places reach."""
        return job_id, place if self._jobs[job_id].saves_s is None else ""

"""A running dispatcher's world and load, as a simulation takes them.

What is not known is taken as usual and said in the remarks: links are as fast as can be, staging takes no time, and spot machines are never taken
back. Sites are as they are now, whatever they were when the load came.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from federator.kernel.errors import Invalid
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSite, WorldSpec
from federator.simulation.world_files import MEMORY_MIB_PER_GPU
from federator.wire.recorded import RecordedJob, RecordedPool, RecordedSite, RecordedWorld
from federator_agent.core.lent_capacity import HostPool


class Live(NamedTuple):
    """What was taken, and what a person should know of it."""

    world: WorldSpec
    jobs: tuple[TraceJob, ...]
    remarks: tuple[str, ...]


def taken(
    name: str,
    recorded: RecordedWorld,
    jobs: Sequence[RecordedJob],
    since_at: float,
    *,
    policies: str = "",
    left_out: int = 0,
) -> Live:
    """World and trace. Time 0 is `since_at`; what came before and was not over then is there at once, as far as it was not done. Raises `Invalid`."""
    remarks = []
    sites = recorded.usable()
    for what, gone in (
        ("are draining", [site.name for site in recorded.sites if site.draining]),
        ("have not reported", [s.name for s in recorded.sites if not s.pools and not s.draining]),
    ):
        if gone:
            remarks.append(f"without sites that {what}: {', '.join(gone)}")
    chosen = [job for job in jobs if job.run_s > job.ran_before_s]
    if not chosen:
        raise Invalid(
            "the dispatcher has no job of that time",
            field="--since",
            remedy="take a longer time, such as 30d",
        )
    if left_out:
        remarks.append(
            f"without {left_out} jobs that never ran or asked for part of a GPU, which simulations do not know"
        )
    guessed = sum(not job.ended for job in chosen)
    if guessed:
        remarks.append(f"{guessed} jobs are not over: their run times are as expected")
    world = WorldSpec(
        name=name,
        sites=tuple(_site(site) for site in sites),
        offers=tuple(each.offer for each in recorded.offers),
        cloud_sites={each.offer.provider: each.site for each in recorded.offers},
        policies=policies,
    )
    return Live(world, _jobs(chosen, since_at), tuple(remarks))


def _site(site: RecordedSite) -> WorldSite:
    return WorldSite(
        name=site.name,
        kind=site.kind,
        region=site.region,
        labels=site.labels,
        price_usd_gpu_h=site.price_usd_gpu_h,
        pools=tuple(_pool(pool) for pool in site.pools),
    )


def _pool(pool: RecordedPool) -> HostPool:
    return HostPool(
        name=pool.name,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        nodes=pool.nodes,
        gpus_per_node=pool.gpus_per_node,
        cpus_milli_per_node=max(1000, pool.cpus_milli_per_node),
        memory_mib_per_node=pool.memory_mib_per_node or MEMORY_MIB_PER_GPU,
    )


def _jobs(jobs: Sequence[RecordedJob], since_at: float) -> tuple[TraceJob, ...]:
    """In order. A name that several jobs have gets the end of the job's id."""
    times = Counter(job.name for job in jobs)
    made = [
        _job(job, since_at, job.name if times[job.name] == 1 else f"{job.name}-{job.id[-6:]}") for job in jobs
    ]
    return tuple(sorted(made, key=lambda job: (job.submit_s, job.name)))


def _job(job: RecordedJob, since_at: float, name: str) -> TraceJob:
    submit_s = max(0.0, job.ready_at - since_at)
    return TraceJob(
        name=name,
        family="" if name == job.name else job.name,
        submit_s=submit_s,
        run_s=max(1.0, job.run_s - job.ran_before_s),
        nodes=job.nodes,
        gpus=job.gpus,
        estimate_s=None if job.estimate_s is None else max(1.0, job.estimate_s - job.ran_before_s),
        # One that is over is missed, whoever schedules; but a submission with it would be refused.
        deadline_s=None if job.deadline_at is None else max(submit_s + 1.0, job.deadline_at - since_at),
        value_usd=job.value_usd,
        must=job.must,
        priority=job.priority,
        queue=job.queue,
        owner=job.owner,
        models=job.models,
        gpu_memory_mib=job.gpu_memory_mib,
        speed=job.speed,
        cpus_milli=max(1, job.cpus_milli),
        memory_mib=job.memory_mib,
        kinds=job.kinds,
        sites=job.sites,
        not_sites=job.not_sites,
        site_labels=job.site_labels,
        labels=job.labels,
        licenses=job.licenses,
        inputs=job.inputs,
        spot_policy=job.spot_policy,
        max_cost_usd=job.max_cost_usd,
        max_duration_s=job.max_duration_s,
    )

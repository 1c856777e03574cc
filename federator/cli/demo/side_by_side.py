"""The demonstration's jobs a second time, on virtual time: with our scheduler, and with two that many people have.

The real run shows that it works, this what it brings: the same jobs, sites, policies and offers, simulated in a few seconds under each scheduler. Three
things are simpler there: a job that waits for others is submitted when they would be done at the earliest, nothing fails, and a submission takes a second.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from federator.cli.demo.result import Compared
from federator.cli.demo.world import CLOUD_SITE, PROVIDER, DemoWorld, Document, provider_settings
from federator.kernel.clock import SystemClock
from federator.model.capacity import Offer
from federator.model.jobs import PlacementConstraints
from federator.model.queues import DEFAULT_QUEUE
from federator.simulation.accounting import Figures, figures
from federator.simulation.running import simulate
from federator.simulation.schedulers import scheduler
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec as SimulatedWorld
from federator.simulation.world_files import from_yaml
from federator.wire.fields import duration_s
from federator.wire.jobfile import JobRequest, read_job
from federator_providers.local import provider as local_provider

SCHEDULERS = ("ours", "threshold", "isolated")
MINUTES = re.compile(r"--minutes[ ,'\"]+(\d+)")
SHORT_S = 5.0
"""How long a command runs that does not say so."""


def compare(world: DemoWorld, offers: Sequence[Offer]) -> tuple[Compared, ...]:
    """What the demonstration's work comes to under each scheduler. Takes some seconds."""
    simulated, jobs = simulated_world(world, offers), work(world)
    return tuple(
        _compared(figures(simulate(simulated, jobs, scheduler(name)), simulated, jobs)) for name in SCHEDULERS
    )


async def offers_of_the_provider() -> Sequence[Offer]:
    """What the demonstration can rent, as its provider lists it."""
    with tempfile.TemporaryDirectory(prefix="federator-") as scratch:
        settings = provider_settings(Path(scratch), ("none",))["settings"]
        provider = local_provider(PROVIDER, settings, SystemClock())
        try:
            return list(await provider.offers())
        finally:
            await provider.close()


def simulated_world(world: DemoWorld, offers: Sequence[Offer]) -> SimulatedWorld:
    """The same sites, offers and policies."""
    sites = [
        {
            "name": site["site"],
            "kind": site["kind"],
            "region": site.get("region", ""),
            "labels": site.get("labels", {}),
            "price": f"{site['price_per_gpu_hour']} USD",
            "pools": site["pools"],
        }
        for site in world.sites
    ]
    read = from_yaml(json.dumps({"name": "demonstration", "sites": sites}), Path())
    return msgspec.structs.replace(
        read,
        offers=tuple(msgspec.structs.replace(offer, provider=PROVIDER) for offer in offers),
        cloud_sites={PROVIDER: CLOUD_SITE},
        policies=world.policy_text,
    )


def work(world: DemoWorld) -> list[TraceJob]:
    """The jobs as a trace, each with the first site that has what it needs as its home."""
    budgets_s = {
        document["metadata"]["name"]: duration_s(document["spec"]["deadline_budget"], "deadline_budget")
        for document in world.policies
        if "deadline_budget" in document["spec"]
    }
    made: list[TraceJob] = []
    ends_s: dict[str, float] = {}
    for number, each in enumerate(world.jobs):
        request = read_job(each.job, now=0.0)
        run_s = _run_s(each.job)
        submit_s = max([each.after_minutes * 60.0 + number, *(ends_s[name] for name in request.after)])
        ends_s[request.spec.name] = submit_s + run_s
        due_s = (
            budgets_s.get(request.queue or DEFAULT_QUEUE)
            if request.deadline_at is None
            else request.deadline_at
        )
        job = TraceJob(
            name=request.spec.name,
            submit_s=submit_s,
            run_s=run_s,
            nodes=request.spec.nodes,
            gpus=request.spec.resources.gpus.count,
            estimate_s=request.spec.estimate_s,
            deadline_s=None if due_s is None else submit_s + due_s,
            priority=50 if request.priority is None else request.priority,
            queue=request.queue or DEFAULT_QUEUE,
            owner=each.by,
            value_usd=request.value_usd,
            cpus_milli=request.spec.resources.cpus_milli,
            memory_mib=request.spec.resources.memory_mib,
        )
        sites = list(_able(world, request))
        models = request.spec.resources.gpus.models or _models(sites, request)
        job = msgspec.structs.replace(job, home=sites[0]["site"] if sites else "", models=models)
        made += [
            msgspec.structs.replace(job, name=f"{job.name}-{n}" if request.array else job.name)
            for n in range(max(1, len(request.array)))
        ]
    return made


def _run_s(job: Document) -> float:
    """How long it really runs: its command says so."""
    found = MINUTES.search(str(job.get("run", job.get("command"))))
    return float(found[1]) * 60.0 if found else SHORT_S


def _able(world: DemoWorld, request: JobRequest) -> Iterator[Document]:
    """Sites that could ever run it."""
    spec = request.spec
    for site in world.sites:
        if not _admits(spec.placement, site):
            continue
        for pool in site["pools"]:
            fits = pool["gpus_per_node"] >= spec.resources.gpus.count and pool["nodes"] >= spec.nodes
            if fits and (not spec.resources.gpus.models or pool["model"] in spec.resources.gpus.models):
                yield site


def _admits(placement: PlacementConstraints, site: Document) -> bool:
    labels = site.get("labels", {})
    right = all(labels.get(key) == value for key, value in placement.labels.items())
    return right and (not placement.kinds or site["kind"] in placement.kinds)


def _models(sites: Sequence[Document], request: JobRequest) -> tuple[str, ...]:
    """Those of the sites it is confined to, if it is: here they tell sites apart."""
    if not (request.spec.placement.kinds or request.spec.placement.labels):
        return ()
    return tuple(sorted({pool["model"] for site in sites for pool in site["pools"]}))


def _compared(found: Figures) -> Compared:
    return Compared(
        scheduler=found.scheduler,
        due=found.deadlines,
        missed=found.missed,
        rented_usd=round(found.rented_usd, 2),
        wait_mean_s=round(found.wait_mean_s, 1),
        done=found.finished,
        jobs=found.jobs,
    )

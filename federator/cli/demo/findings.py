"""Gathers what the demonstration has shown, from the API, the provider and the journal of the jobs, and checks what must hold."""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from federator.cli.demo.federation import FEDERATION, DemoFederation
from federator.cli.demo.result import Check, JobResult, LeaseResult, Result, Survival, second_copies
from federator.cli.demo.world import PROVIDER, provider_settings
from federator.cli.phrases import usd
from federator.client import AsyncClient
from federator.model.capacity import LEASE_ENDED, Instance, InstanceStatus
from federator.model.events import LedgerKind
from federator.model.jobs import Job, JobStatus
from federator.wire.http import JobRow, LeaseRow, Overview
from federator_providers.local import provider as local_provider

CENT = 0.005


async def gather(federation: DemoFederation, survival: Survival | None, began_s: float) -> Result:
    """Everything that is known once all work has ended. `began_s` is on the monotonic clock."""
    overview = await federation.admin.overview()
    instances = {each.name: each for each in await _instances(federation)}
    leases = tuple(_lease(row, instances.get(row.id)) for row in await federation.admin.leases())
    by_job = {lease.evidence.job: lease for lease in leases if lease.evidence is not None}
    rows = [row async for row in federation.admin.all_jobs()]
    jobs = [_job(row, (await federation.admin.job(row.id)).job, by_job.get(row.id)) for row in reversed(rows)]
    result = Result(
        speed=federation.speed,
        began_at=federation.origin_at,
        took_s=round(time.monotonic() - began_s, 1),
        jobs=tuple(jobs),
        leases=leases,
        spent_usd=round(overview.spent_usd, 4),
        cap_usd=_cap(overview),
        gpu_hours=await gpu_hours(federation.admin),
        survival=survival,
    )
    journal = federation.folder / "journal"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return msgspec.structs.replace(result, checks=tuple(checks(result, lines)))


async def gpu_hours(client: AsyncClient) -> dict[str, float]:
    """GPU-hours by site, from the ledger."""
    found: dict[str, float] = defaultdict(float)
    after: str | None = None
    while True:
        page = await client.ledger(after=after, limit=1000)
        for entry in page:
            if entry.kind is LedgerKind.USAGE:
                found[entry.site] += entry.gpu_s / 3600
        if len(page) < 1000:
            return {site: round(hours, 3) for site, hours in sorted(found.items())}
        after = page[-1].id


async def outputs_of(client: AsyncClient, job: str) -> list[str]:
    """Names of the files that a job has left, downloaded as a user does."""
    with tempfile.TemporaryDirectory(prefix="federator-") as scratch:
        files = await client.download(job, Path(scratch))
        return sorted("/".join(file.parts[-2:]) for file in files)


async def _instances(federation: DemoFederation) -> list[Instance]:
    """The provider's own list: what it believes to have rented to us, and its bill."""
    if not await asyncio.to_thread(federation.machines.exists):
        return []
    settings = provider_settings(federation.machines, ("none",))["settings"]
    provider = local_provider(PROVIDER, settings, federation.clock)
    return list(await provider.instances(FEDERATION))


def _lease(row: LeaseRow, instance: Instance | None) -> LeaseResult:
    return LeaseResult(
        id=row.id,
        offer=row.offer,
        status=row.status,
        billed_usd=row.billed_usd,
        provider_status=str(instance.status) if instance else "none",
        provider_billed_usd=instance.billed_usd if instance else 0.0,
        evidence=row.evidence,
    )


def _job(row: JobRow, job: Job, lease: LeaseResult | None) -> JobResult:
    missed = job.outcome.missed_deadline if job.outcome else None
    return JobResult(
        name=row.label,
        id=row.id,
        owner=row.owner,
        queue=row.queue,
        status=row.status,
        site=row.site,
        market=row.market,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        deadline_at=row.deadline_at,
        met=None if missed is None else not missed,
        attempts=job.epoch,
        gpus=int(row.nodes * row.gpus),
        lease=lease.id if lease else "",
        burst=lease.evidence if lease else None,
    )


def _cap(overview: Overview) -> float | None:
    return min((cap.limit for cap in overview.caps if cap.unit == "usd"), default=None)


def checks(result: Result, journal: Iterable[str]) -> list[Check]:
    """What must hold of any run, whatever its world. `journal` has the lines that the jobs wrote."""
    failed = [f"{job.name} {job.status}" for job in result.jobs if job.status != JobStatus.SUCCEEDED]
    copies = second_copies(journal)
    made = [
        Check(
            "every accepted job has been done",
            not failed,
            ", ".join(failed) or f"{len(result.jobs)} jobs have succeeded",
        ),
        Check(
            "nothing ran twice",
            not copies,
            "; ".join(copies)
            or "every rank of every attempt noted one start, no two attempts of a job overlap",
        ),
    ]
    if result.survival is not None:
        made.append(_survived(result.survival))
    return [*made, *_rentals(result)]


def _survived(survival: Survival) -> Check:
    seen = (
        f"dead for {survival.down_s:.0f} s; {survival.jobs_after} of {survival.jobs_before} jobs and "
        f"{survival.kept} of {survival.running_before} running attempts were found again"
    )
    return Check(
        "kill -9 of the dispatcher lost nothing",
        not survival.faults and survival.jobs_after == survival.jobs_before,
        "; ".join(survival.faults) or seen,
    )


def _rentals(result: Result) -> list[Check]:
    """What must hold of money: each rental had a cause, has ended, and costs what the provider says."""
    causeless = [lease.id for lease in result.leases if not _caused(lease)]
    open_ = [
        f"{lease.id} is {lease.status}, at the provider {lease.provider_status}"
        for lease in result.leases
        if lease.status not in LEASE_ENDED or lease.provider_status not in (InstanceStatus.ENDED, "none")
    ]
    wrong = [
        f"{lease.id}: {usd(lease.billed_usd)} here, {usd(lease.provider_billed_usd)} there"
        for lease in result.leases
        if abs(lease.billed_usd - lease.provider_billed_usd) > CENT
    ]
    count = f"{len(result.leases)} rental{'' if len(result.leases) == 1 else 's'}"
    over = result.cap_usd is not None and result.spent_usd > result.cap_usd
    return [
        Check(
            "every rental had a cause",
            not causeless,
            ", ".join(causeless) or f"{count}, each with a finish at home past the deadline and a policy",
        ),
        Check(
            "everything rented has been given back",
            not open_,
            "; ".join(open_) or f"{count}, all ended by the provider's own list",
        ),
        Check(
            "the bill is right, and under the cap",
            not wrong and not over,
            "; ".join(wrong)
            or f"{usd(result.spent_usd)}{'' if result.cap_usd is None else f' of {usd(result.cap_usd)}'}",
        ),
    ]


def _caused(lease: LeaseResult) -> bool:
    evidence = lease.evidence
    if evidence is None or not evidence.policy or evidence.deadline_at is None:
        return False
    if evidence.home_finish_at is None or evidence.home_finish_at > evidence.deadline_at:
        return True
    return evidence.home_risk * evidence.value_usd > evidence.cost_usd

"""The demonstration from its first process to its last job, phase by phase."""

import asyncio
import math
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.findings import gather, outputs_of
from federator.cli.demo.outage import kill_and_restart
from federator.cli.demo.result import Check, JobResult, Result
from federator.cli.demo.screen import Screen
from federator.cli.demo.watch import Watch
from federator.cli.demo.world import DemoJob, DemoWorld, copy_work
from federator.model.capacity import LEASE_ENDED
from federator.model.jobs import TERMINAL, JobStatus
from federator.model.plans import Explanation
from federator.wire.http import Overview

SPEED = 60.0
"""A second of ours is a minute of the demonstration's: fast enough to see, slow enough for real processes to keep up."""
KILL_AFTER_MINUTES = 26.0
"""The dispatcher is killed when rented capacity works, and at the latest then (the demonstration's time)."""
PLACED_S, WORK_S, RETURN_S = 40.0, 170.0, 60.0
"""How long, in real seconds, each may take before something is wrong."""
OUTPUTS_OF = "review-figures"


class StoryResult(NamedTuple):
    """What a story leaves behind: the result, and explanations of jobs by name."""

    result: Result
    explanations: dict[str, Explanation]
    now: float


async def play(federation: DemoFederation, world: DemoWorld, screen: Screen) -> StoryResult:
    """All of it, up to and including the findings. What has been started is the caller's to end."""
    began_s = time.monotonic()
    screen.say("starting a dispatcher and three sites, each a process of its own")
    await federation.start_dispatcher()
    screen.say(f"a browser shows it at {federation.console}")
    await federation.apply_policies(world.policy_text)
    await federation.start_sites(world.sites)
    work = federation.folder / "work"
    copy_work(work)
    async with Watch(federation, screen, _title(federation)) as watch:
        await _submit_all(federation, world, watch, work)
        watch.enter("Work runs at home; what a deadline cannot wait for is rented")
        began_at = federation.clock.now()
        await watch.until(
            lambda overview: _half_way(overview, began_at), "half the work is done", within_s=PLACED_S
        )
        watch.enter("Now the dispatcher is killed")
        survival = await kill_and_restart(federation, watch)
        watch.enter("The new dispatcher goes on where the old one was")
        await watch.until(_all_done, "all jobs have ended", within_s=WORK_S)
        watch.enter("All work is done; what is rented is given back")
        await watch.until(_all_returned, "everything rented is given back", within_s=RETURN_S)
        result = await gather(federation, survival, began_s)
        result = await _with_outputs(federation, result)
        explanations = {job.name: await federation.admin.explain(job.id) for job in worth_explaining(result)}
    return StoryResult(result, explanations, federation.clock.now())


def worth_explaining(result: Result) -> list[JobResult]:
    """One job that burst, if any did, and one that stayed although it was due."""
    burst = [job for job in result.jobs if job.burst is not None]
    stayed = [job for job in result.jobs if job.market == "owned" and job.gpus and job.burst is None]
    stayed.sort(
        key=lambda job: (job.deadline_at or math.inf, job.submitted_at - (job.started_at or math.inf))
    )
    return burst[:1] + stayed[:1]


def _title(federation: DemoFederation) -> str:
    return (
        f"Federator: 1 second is {federation.speed / 60:g} min here, GPUs and money are not real, the rest is"
    )


async def _submit_all(federation: DemoFederation, world: DemoWorld, watch: Watch, work: Path) -> None:
    """Each job when its time has come, later ones not before the first ones run."""
    submitted = 0
    began_at = federation.clock.now()
    for minutes in sorted({job.after_minutes for job in world.jobs}):
        if submitted:
            await watch.until(_all_placed, "the first jobs have started", within_s=PLACED_S)
            wait_s = began_at + minutes * 60 - federation.clock.now()
            await asyncio.sleep(federation.clock.real_delay_s(wait_s))
        watch.enter("More work comes in, some of it urgent" if submitted else "Work comes in")
        for job in [job for job in world.jobs if job.after_minutes == minutes]:
            submitted += await _submit(federation, watch, job, work)
    watch.say(f"{submitted} jobs are accepted")


async def _submit(federation: DemoFederation, watch: Watch, job: DemoJob, work: Path) -> int:
    """As its user does; how many jobs that made."""
    client = await federation.as_person(job.by)
    if "train.py" not in str(job.job.get("run", job.job.get("command"))):
        answer = await client.submit(job.job)
    else:
        env = {"DEMO_SPEED": f"{federation.speed:g}", "DEMO_JOURNAL": str(federation.folder / "journal")}
        answer = await client.submit(job.job | {"env": env}, workdir=work)
    due = f", due within {job.job['finish_within']}" if "finish_within" in job.job else ""
    watch.say(f"{job.by} submits {answer.name}{due}")
    return len(answer.jobs)


def _all_placed(overview: Overview) -> bool:
    return bool(overview.jobs) and all(job.status != JobStatus.PENDING for job in overview.jobs)


def _half_way(overview: Overview, began_at: float) -> bool:
    rented = any(job.status == JobStatus.RUNNING and job.market not in ("", "owned") for job in overview.jobs)
    return rented or overview.now - began_at > KILL_AFTER_MINUTES * 60


def _all_done(overview: Overview) -> bool:
    return all(job.status in TERMINAL for job in overview.jobs)


def _all_returned(overview: Overview) -> bool:
    return all(lease.status in LEASE_ENDED for lease in overview.leases)


async def _with_outputs(federation: DemoFederation, result: Result) -> Result:
    """The proof that results come home, also from a machine that is no more."""
    job = next(job for job in result.jobs if job.name == OUTPUTS_OF)
    files = await outputs_of(federation.admin, job.id) if job.status == JobStatus.SUCCEEDED else []
    check = Check(
        "results are here",
        bool(files),
        f"{', '.join(files) or 'nothing'} of {job.name}, which ran at {job.site or 'no site'}",
    )
    return msgspec.structs.replace(result, checks=(*result.checks, check))

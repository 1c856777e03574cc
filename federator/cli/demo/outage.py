"""The middle of the demonstration: the dispatcher is killed with kill -9 while work runs, and started again.

Before and after are compared by what the store says (every job there, every running attempt the same placement and epoch) and by what
the machine says (which processes of jobs live): work must go on while nobody is in charge, and nothing may start twice.
"""

import asyncio
import time
from collections import Counter

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.processes import RunningRank
from federator.cli.demo.result import Survival
from federator.cli.demo.watch import Watch
from federator.model.jobs import TERMINAL, Job
from federator.wire.http import Overview

DOWN_S = 4.0
"""Real seconds that the dispatcher stays dead."""
BACK_S = 30.0


async def kill_and_restart(federation: DemoFederation, watch: Watch) -> Survival:
    """Do it, and say what was kept. The faults are in the answer, not raised."""
    before = await _jobs(federation)
    sites = {row.name for row in await federation.admin.sites() if row.status == "READY"}
    pid = federation.kill_dispatcher()
    killed_s = time.monotonic()
    watch.outage = f"the dispatcher (process {pid}) is dead"
    watch.say(f"kill -9 {pid}: the dispatcher is gone")
    working = await _watch_work(federation, watch, pid)
    watch.say(f"without it, {len(working)} ranks of {len({rank.job for rank in working})} jobs go on")
    new_pid = await federation.start_dispatcher()
    down_s = time.monotonic() - killed_s
    restarted_at = federation.clock.now()
    watch.outage = ""
    watch.say(f"a new dispatcher (process {new_pid}) has read the store")
    await watch.until(
        lambda overview: _reporting(overview, sites, restarted_at), "all sites report again", within_s=BACK_S
    )
    after, ranks = await _jobs(federation), federation.processes.ranks()
    running = [job for job in before.values() if job.placement and job.status not in TERMINAL]
    kept = [job for job in running if job.id in after and _same_attempt(job, after[job.id])]
    survival = Survival(
        killed_pid=pid,
        new_pid=new_pid,
        down_s=round(down_s, 2),
        jobs_before=len(before),
        jobs_after=len(after),
        running_before=len(running),
        kept=len(kept),
        worked_on=len(working),
        faults=tuple(losses(before, after, ranks)),
    )
    watch.say(
        f"{survival.jobs_after} of {survival.jobs_before} jobs are there, "
        f"{survival.kept} of {survival.running_before} running attempts are the same ones"
    )
    return survival


async def _jobs(federation: DemoFederation) -> dict[str, Job]:
    """All records, by id."""
    return {row.id: (await federation.admin.job(row.id)).job async for row in federation.admin.all_jobs()}


async def _watch_work(federation: DemoFederation, watch: Watch, pid: int) -> set[RunningRank]:
    """Show the work that goes on; the ranks that were alive at the end of the wait."""
    until = time.monotonic() + DOWN_S
    ranks = federation.processes.ranks()
    while time.monotonic() < until:
        jobs = len({rank.job for rank in ranks})
        watch.outage = f"the dispatcher (process {pid}) is dead; {jobs} jobs run on at their sites, {until - time.monotonic():.0f} s"
        await asyncio.sleep(0.5)
        ranks = federation.processes.ranks()
    return ranks


def _reporting(overview: Overview, sites: set[str], since_at: float) -> bool:
    """Whether the new dispatcher has heard from all of them."""
    heard = {site.name for site in overview.sites if site.status == "READY" and site.age_s is not None}
    return overview.now >= since_at and sites <= heard


def _same_attempt(before: Job, after: Job) -> bool:
    """Whether nothing was started anew."""
    return after.placement == before.placement and after.epoch == before.epoch


def losses(before: dict[str, Job], after: dict[str, Job], ranks: set[RunningRank]) -> list[str]:
    """What was lost, or is there twice. `ranks` are those that live afterwards."""
    faults = [f"job {job.name} ({id_}) is gone" for id_, job in before.items() if id_ not in after]
    for id_, job in before.items():
        now = after.get(id_)
        if now is None or not job.placement or job.status in TERMINAL:
            continue
        retried = (
            now.errors > job.errors
        )  # it failed by itself in the meantime, and was started again as it asked for
        if not _same_attempt(job, now) and not retried:
            faults.append(f"job {job.name} was started again: {job.placement} became {now.placement}")
    attempts = {(rank.job, rank.placement) for rank in ranks}
    copies = Counter(job for job, _ in attempts)
    faults += [f"job {job} runs {count} times" for job, count in copies.items() if count > 1]
    return faults

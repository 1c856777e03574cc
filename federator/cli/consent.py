"""Asking before work is lost: a job without a checkpoint that is stopped begins again."""

import sys
from collections.abc import Sequence

from federator.cli.phrases import ago, counted, plain
from federator.client.jobs import JobFilter
from federator.client.verbs import Verbs
from federator.kernel.errors import Conflict
from federator.model.jobs import JobStatus
from federator.wire.addresses import begins_id, read_address


async def work_at_stake(client: Verbs, jobs: Sequence[str]) -> list[str]:
    """A sentence on each that runs and would begin again. An array's tasks are alike, and counted."""
    found = []
    for name in jobs:
        address = read_address(name)
        detail = await client.job(address.name)
        job = detail.job
        if detail.spec.checkpoint is not None:
            continue
        if job.array is not None and not begins_id(name, job.id):
            which = JobFilter(array=job.array, status=JobStatus.RUNNING)
            rows = [row.array_index async for row in client.all_jobs(which)]
            running = len([index for index in rows if not address.indices or index in address.indices])
            if running:
                found.append(
                    f"{counted(running, 'task')} of {plain(job.name)} {'runs' if running == 1 else 'run'}"
                )
        elif job.status is JobStatus.RUNNING:
            found.append(f"{plain(job.label)} has run for {ago(job.started_at, client.now())}")
    return found


def agreed(losses: Sequence[str]) -> bool:
    """Whether whoever asked for it wants that. Raises `Conflict` where nobody can be asked."""
    if not losses:
        return True
    told = f"{', '.join(losses)} without a checkpoint, and would start from the beginning"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Conflict(told, remedy="write --yes to do it all the same")
    print(f"{told}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

"""Brings a placement to its gate: submits its job, once, and waits until all ranks are on their nodes.

Never two at once: the intent is on disk before `sbatch` runs, and where there is an intent there is no second submit. What a lost reply has left is found by its name; what cannot
be found is lost. Should it turn up after all, its ranks find no directory, or a gate that names no job of theirs.
"""

import asyncio
import logging

from federator.kernel.clock import Clock
from federator.kernel.quantities import format_duration
from federator.model.jobs import JobSpec, Resources, cuts_of
from federator.model.placements import Cause
from federator_agent.core.state import PlacementRecord
from federator_agent.slurm import users
from federator_agent.slurm.cluster import SlurmCluster
from federator_agent.slurm.commands import Rejected, Unreachable
from federator_agent.slurm.fates import FORGOTTEN, REQUEUED, fate
from federator_agent.slurm.folder import Folder, Intent
from federator_agent.slurm.output import WAITING, Job
from federator_agent.slurm.script import SlurmPool, batch_script, sbatch_options, shards_per_node
from federator_agent.staging_errors import StagingError, StagingLost, StagingRefused

LOST_AFTER_S = 10.0
"""So long a job is looked for of which only the intent is known."""
ANSWER_S = 60.0
"""So long Slurm may be silent, at the least, before a placement that it does not know yet goes back."""
SLOW_NODES_S = 300.0
"""So long nodes that a job has been given may take to start its ranks."""
SOON_S, PATIENT_S = 0.25, 2.0
"""Pauses between looks: at first, and for what waits for longer."""
LONGEST_LIST = 100_000
"""Characters of a list of nodes; Linux takes no argument of more than 128 KiB."""
NEVER = frozenset(
    {
        "BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed",
        "AssocMaxJobsLimit0", "JobHeldAdmin",
    }
)  # fmt: skip
"""Slurm's reasons that no waiting helps against."""
log = logging.getLogger("federator_agent.slurm")


class Allocation:
    """Submits jobs, and waits for them."""

    def __init__(self, cluster: SlurmCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._submitting: dict[str, asyncio.Task[str]] = {}

    async def submit(self, record: PlacementRecord, spec: JobSpec, folder: Folder) -> None:
        """Ask Slurm for a placement's job. Raises `StagingRefused`; returns when it was asked, whether or not it has answered."""
        placement = record.entry.placement
        target = await self._target(record)
        _check_duration(record, target)
        _check_parts(record, spec.resources, target)
        _check_list(record.entry.pool, target)
        together, ranks = spec.placement.together or "", len(record.slots)
        account = self._cluster.settings.account(record.entry.whose)
        options = sbatch_options(record, spec.resources, target, account, together)
        options += users.group_options(account.user)
        shards = shards_per_node(ranks, spec.resources, target, together)
        script = batch_script(folder.path, ranks, spec.resources, shards)
        await asyncio.to_thread(folder.write_scripts, script)
        intent = Intent(asked_at=self._clock.now())
        await asyncio.to_thread(folder.intend, intent)
        files = [f"--chdir={folder.path}", f"--output={folder.path}/slurm.out", str(folder.path / "batch.sh")]
        # A cancelled preparation must still learn what Slurm has answered.
        task = asyncio.create_task(self._cluster.commands.run("sbatch", *options, *files))
        self._submitting[placement] = task
        task.add_done_callback(lambda _: self._submitting.pop(placement, None))
        try:
            answer = await asyncio.shield(task)
        except Rejected as error:
            folder.give_up_intent()
            raise StagingRefused(f"Slurm does not take it: {error.message}") from None
        except Unreachable as error:
            log.warning("%s: %s; looking whether it was submitted", placement, error)
            return
        job = answer.strip().partition(";")[0]
        await asyncio.to_thread(folder.intend, Intent(asked_at=intent.asked_at, slurm_job=job))

    async def _target(self, record: PlacementRecord) -> SlurmPool:
        """Where its pool is, once Slurm answers and knows no job of its name."""
        start_within_s = max(ANSWER_S, self._cluster.settings.start_within_s)
        try:
            async with asyncio.timeout(self._clock.real_delay_s(start_within_s)):
                target = await self._cluster.target(record.entry.pool)
                look = await self._cluster.look()
        except TimeoutError:
            waited = format_duration(start_within_s)
            raise StagingRefused(f"Slurm has not answered for {waited}") from None
        if target is None:
            raise StagingRefused(f"there is no pool {record.entry.pool!r} in the cluster any more")
        if record.entry.placement in look:
            raise StagingLost(
                "Slurm has a job of its name that this agent does not remember to have submitted"
            )
        return target

    async def submitted(self, placement: str) -> None:
        """Return when no `sbatch` of that placement is under way."""
        task = self._submitting.get(placement)
        if task is not None:
            await asyncio.wait([task])

    async def at_gate(self, record: PlacementRecord, folder: Folder) -> tuple[str, dict[int, str]]:
        """The Slurm job, and the node of each rank, once all ranks wait at the gate. Raises `StagingError`."""
        placement = record.entry.placement
        job_id = await self._find(placement, folder)
        began_s = asyncio.get_running_loop().time()
        held_since_s: float | None = None
        while True:
            elapsed_s = asyncio.get_running_loop().time() - began_s
            look = await self._cluster.look(SOON_S if elapsed_s < LOST_AFTER_S else PATIENT_S)
            job = next((each for each in look.get(placement, ()) if each.id == job_id), None)
            try:
                marks = await asyncio.to_thread(folder.marks)
            except (OSError, ValueError) as error:
                log.warning("the marks of %s cannot be read; trying again: %s", placement, error)
                continue  # a file system that fails for a while is no fault of the job's
            there = {rank: node for rank, (slurm_job, node) in marks.nodes.items() if slurm_job == job_id}
            if job is None or job.over:
                raise _vanished(job, folder)
            if there and job.restarts:
                await self._cluster.cancel(placement)
                raise StagingLost(
                    f"before it began: {fate(None, REQUEUED, killed=False).detail}", Cause.EVICTED
                )
            if all(slot.rank in there for slot in record.slots):
                self._cluster.changed()
                return job_id, there
            if job.state in WAITING:
                await self._give_up_if_due(placement, job, folder)
                continue
            held_since_s = elapsed_s if held_since_s is None else held_since_s
            if elapsed_s - held_since_s > SLOW_NODES_S:
                await self._cluster.cancel(placement)
                raise StagingRefused(
                    f"its nodes have not started it: {_last_line(folder) or 'and do not say why'}"
                )

    async def _find(self, placement: str, folder: Folder) -> str:
        """The number of its job. Of several, which only a stranger could have made, the first; the gate keeps the others out."""
        intent = folder.intent
        assert intent is not None
        if intent.slurm_job:
            return intent.slurm_job
        began_s = asyncio.get_running_loop().time()
        while True:
            jobs = (await self._cluster.look(SOON_S)).get(placement, ())
            if jobs:
                await asyncio.to_thread(folder.intend, Intent(asked_at=intent.asked_at, slurm_job=jobs[0].id))
                return jobs[0].id
            if asyncio.get_running_loop().time() - began_s > LOST_AFTER_S:
                raise StagingLost(
                    "it was about to be submitted, and Slurm has no job of its name; it is not submitted twice"
                )

    async def _give_up_if_due(self, placement: str, job: Job, folder: Folder) -> None:
        """A job that Slurm does not start in time goes back, with Slurm's reason."""
        intent, settings = folder.intent, self._cluster.settings
        waited_s = self._clock.now() - (intent.asked_at if intent else 0.0)
        if job.reason not in NEVER and waited_s < settings.start_within_s:
            return
        await self._cluster.cancel(placement)
        if job.reason in NEVER:
            raise StagingRefused(f"Slurm will not start it: {job.reason}")
        limit = format_duration(settings.start_within_s)
        raise StagingRefused(f"Slurm has not started it within {limit}: {job.reason}")


def _check_duration(record: PlacementRecord, target: SlurmPool) -> None:
    max_duration_s = record.entry.max_duration_s
    if max_duration_s is not None and target.max_time_s is not None and max_duration_s > target.max_time_s:
        most = format_duration(target.max_time_s)
        raise StagingRefused(f"partition {target.partition} takes jobs of at most {most}")


def _check_parts(record: PlacementRecord, need: Resources, target: SlurmPool) -> None:
    """Its slots are what the pool has by now: nobody gets more than is booked."""
    milli = need.gpus.share_milli or 0
    if target.cut_milli and need.gpus.count:
        milli = cuts_of(milli, target.cut_milli) * target.cut_milli
    if need.gpus.count and any(slot.share_milli != milli for slot in record.slots):
        raise StagingRefused(f"the GPUs of pool {record.entry.pool} are cut in another way by now")


def _check_list(pool: str, target: SlurmPool) -> None:
    if len(target.exclude) > LONGEST_LIST:
        remedy = "leave out slurm.topology in the site file"
        raise StagingRefused(f"the list of nodes outside of pool {pool} is too long for sbatch; {remedy}")


def _vanished(job: Job | None, folder: Folder) -> StagingError:
    """Its job ended before its gate was opened."""
    if job is not None and job.reason in NEVER:
        return StagingRefused(f"Slurm will not start it: {job.reason}")
    how = fate(None, job.state if job else FORGOTTEN, killed=False)
    words = _last_line(folder)
    return StagingLost(
        f"before it began: {how.detail}{': ' if words else ''}{words}", how.cause or StagingLost("").cause
    )


def _last_line(folder: Folder) -> str:
    lines = [line.strip() for line in folder.said().splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""

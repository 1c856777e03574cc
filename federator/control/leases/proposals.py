"""Approval of rentals: one that a policy lets only a person decide, or only suggests, is recorded as a proposal and approved here."""

from collections.abc import Iterator

import msgspec

from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter, reason_of
from federator.control.record.records import Changes, Records
from federator.kernel.errors import Conflict, NotFound
from federator.model.identity import Caller, Role
from federator.model.jobs import Job, JobStatus
from federator.model.plans import Plan, Proposal, ProposalKind


async def note_proposals(records: Records, event_writer: EventWriter, plan: Plan) -> None:
    """An event for the job and a line of the ledger for each proposal that is new: another policy's, or of another sort, than the job's last."""
    fresh = [proposal for proposal in plan.proposals if _is_new(records, proposal)]

    def note(changes: Changes, proposal: Proposal) -> None:
        if not _is_new(records, proposal):
            return
        job = msgspec.structs.replace(
            records.jobs[proposal.job], proposed=_name(proposal), proposed_usd=proposal.committed_usd
        )
        changes.put(job, event_writer.event(job, proposal.kind, reason_of(proposal)))
        about = {"job": job.id, "queue": job.queue, "owner": job.owner}
        event_writer.act(changes, "dispatcher", proposal.kind, reason=proposal.reason, **about)

    await write_each(records, fresh, note)


async def approve(
    records: Records, event_writer: EventWriter, caller: Caller, job_id: str, *, usd: float, reason: str
) -> None:
    """Let one rental for this job cost so much in the worst case. Raises `NotFound`, or `Conflict` for a job that does not wait, or that may not rent."""
    caller.require(Role.PLATFORM)

    def compute() -> Changes:
        job = records.jobs.get(job_id)
        if job is None:
            raise NotFound(f"no job {job_id!r}")
        if job.status is not JobStatus.PENDING:
            raise Conflict(f"the job is {job.status}: it waits for no rental")
        if not job.may_rent:
            raise Conflict(
                f"{job.owner} has no right to rent in queue {job.queue}, so an approval would change nothing",
                remedy=f"give the right (`rent` in `allow` of queue {job.queue}) and have the job submitted again, "
                f"or move it to a queue where {job.owner} has it: federator update {job_id} --queue QUEUE",
            )
        changes = Changes()
        # Should it turn out to be too little, that is told as a new proposal, with the new amount.
        approved = msgspec.structs.replace(job, approved_usd=usd, proposed="", proposed_usd=0.0)
        text = f"{caller.name} approves a rental of at most {usd:.2f} USD" + (f": {reason}" if reason else "")
        changes.put(approved, event_writer.event(approved, "approved", text))
        event_writer.act(changes, f"user:{caller.name}", text, job=job.id, queue=job.queue, owner=job.owner)
        return changes

    await records.transact(compute)


def with_approval_spent(job: Job) -> Job:
    """The job, rented for. One approval is for one rental: what is proposed next, people are told of and asked for again."""
    return msgspec.structs.replace(job, approved_usd=0.0, proposed="", proposed_usd=0.0)


def proposed(records: Records, plan: Plan | None) -> Iterator[tuple[Proposal, Job]]:
    """What waits for a person, with the job."""
    for proposal in plan.proposals if plan else ():
        job = records.jobs.get(proposal.job)
        if job is not None and job.status is JobStatus.PENDING and proposal.kind is ProposalKind.APPROVAL:
            yield proposal, job


def wanted_usd(records: Records, job_id: str) -> float:
    """What people were told is waiting to be approved for the job, whatever a plan wants by now. Raises `NotFound` where nothing is."""
    job = records.jobs.get(job_id)
    if job is not None and job.proposed.startswith(f"{ProposalKind.APPROVAL} "):
        return job.proposed_usd
    raise NotFound(
        "no rental for this job waits for approval",
        remedy="'federator burst' shows those that do; --up-to approves an amount in advance",
    )


def _name(proposal: Proposal) -> str:
    return f"{proposal.kind} {proposal.policy}"


def _is_new(records: Records, proposal: Proposal) -> bool:
    job = records.jobs.get(proposal.job)
    return job is not None and job.status is JobStatus.PENDING and job.proposed != _name(proposal)

"""Jobs that the agent admits by itself while it is cut off: within its allotments, beside all that was planned, and until the dispatcher has them.

A job that is admitted gets a placement that nobody ordered, with a record like all others; what follows for it is no concern of this module. Until the
dispatcher has adopted it nothing is told of that placement (`Transition.finish`), and no word of the dispatcher's on numbers is about it.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from federator.kernel.quantities import format_duration
from federator.model.allotments import Allotment, LocalJob
from federator.model.jobs import JobSpec
from federator.model.placements import Cause, DesiredEntry, Order
from federator.wire.link import MAX_LOCAL_JOBS
from federator.wire.needs import needs_of
from federator_agent.core import admission, endings
from federator_agent.core.capacity_report import abilities_here
from federator_agent.core.events import Adopted, Allotted, LocalCancelled, LocalSubmitted
from federator_agent.core.instructions import Answer, OfferJobs, Release, Withhold
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import AdmittedJob, Phase, PlacementRecord, State
from federator_agent.core.transition import Transition

DAY_S = 86_400.0
OFFER_AGAIN_S = 60.0
"""What is not adopted after this time, in a session, is said once more."""
NOTE_EVERY_S = 3600.0
"""How often it is noted that the dispatcher is there."""
OVER = frozenset({Phase.COLLECTING, Phase.ENDED})


def submit(draft: Transition, event: LocalSubmitted) -> None:
    """Admit a job and begin it, or say why not. Whatever the answer, it is durable before it is given."""
    why = _not_now(draft) or _lacking(draft.state, event.spec)
    for allotment in () if why else _allotments(draft, event):
        job = _job(event, allotment)
        why = _exceeds(draft, allotment, event, job) or _begin(draft, job, event.spec)
        if not why:
            break
    draft.do(Answer(event.placement, why))


def _not_now(draft: Transition) -> str:
    """Why nothing at all is admitted here; empty: it may be."""
    if draft.state.linked:
        return "this site is connected: submit to the dispatcher"
    if not draft.state.allotments:
        return "the dispatcher has given this site no allotment: ask a user with the role platform for one"
    return ""


def _lacking(state: State, spec: JobSpec) -> str:
    """What the job needs and this site does not have; no plan has kept such a job from it."""
    missing = [word for word in needs_of(spec) if word not in abilities_here(state)]
    return f"this site has not what the job needs: {', '.join(missing)}" if missing else ""


def _allotments(draft: Transition, event: LocalSubmitted) -> Iterator[Allotment]:
    """Those that could be for this job, at least one: the last refusal is the answer."""
    found = [
        each
        for each in draft.state.allotments
        if event.owner in each.users and event.queue in ("", each.queue)
    ]
    yield from found or draft.state.allotments[:1]


def _job(event: LocalSubmitted, allotment: Allotment) -> LocalJob:
    limit_s = event.max_duration_s
    return LocalJob(
        job=event.job,
        placement=event.placement,
        spec=event.text,
        owner=event.owner,
        queue=allotment.queue,
        allotment=allotment.policy,
        pool="",
        submitted_at=event.at,
        max_duration_s=allotment.max_duration_s if limit_s is None else limit_s,
        priority=min(50, allotment.max_priority) if event.priority is None else event.priority,
    )


def _exceeds(draft: Transition, allotment: Allotment, event: LocalSubmitted, job: LocalJob) -> str:
    """Why the allotment does not hold for this job now; empty: it does."""
    now, down_boot_s = draft.now, draft.state.down_boot_s
    if event.owner not in allotment.users or event.queue not in ("", allotment.queue):
        in_queue = f" in queue {event.queue}" if event.queue else ""
        return f"no allotment of this site is for {event.owner}{in_queue}"
    down_s = 0.0 if down_boot_s is None else now.boot_s - down_boot_s
    if down_s < allotment.after_s:
        return f"the link has been down for {format_duration(down_s)}; jobs are admitted here after {format_duration(allotment.after_s)}"
    if now.at - draft.state.heard_at > allotment.longest_s:
        return f"the dispatcher was last heard more than {format_duration(allotment.longest_s)} ago, and the allotment does not hold for longer"
    if job.max_duration_s > allotment.max_duration_s:
        return f"max_duration is more than the {format_duration(allotment.max_duration_s)} of the allotment"
    if job.priority > allotment.max_priority:
        return f"priority {job.priority} is above the {allotment.max_priority} of the allotment"
    jobs, used_h = used(draft.state, draft.records, allotment.policy, now.at)
    if jobs >= allotment.jobs:
        return f"{jobs} jobs were admitted in the last 24 hours, and the allotment has {allotment.jobs}"
    asked_h = event.spec.gpus_total * job.max_duration_s / 3600
    if used_h + asked_h > allotment.gpu_h:
        return (
            f"it may take {asked_h:g} GPU-hours, and of the allotment's {allotment.gpu_h:g} in 24 hours {max(0.0, allotment.gpu_h - used_h):g} are left; "
            "a shorter max_duration takes less"
        )
    return ""


def used(
    state: State, records: Mapping[str, PlacementRecord], policy: str, now_at: float
) -> tuple[int, float]:
    """How many jobs and GPU-hours of an allotment have been given out in the last 24 hours."""
    works = [
        work
        for work in state.local.values()
        if work.job.allotment == policy and work.job.submitted_at > now_at - DAY_S
    ]
    return len(works), sum(_gpu_s(work, records.get(work.job.placement)) for work in works) / 3600


def _gpu_s(work: AdmittedJob, record: PlacementRecord | None) -> float:
    """GPU-seconds that a job has had, or may come to have."""
    verdict = record.verdict if record is not None and record.phase in OVER else None
    if verdict is None:
        return work.gpus * (work.job.max_duration_s if work.lasted_s is None else work.lasted_s)
    return work.gpus * work.held_s(verdict.ended_at)


def _begin(draft: Transition, job: LocalJob, spec: JobSpec) -> str:
    """Give it slots that are free and make it a placement; else why no pool takes it."""
    why = "the site has no pool"
    for pool in draft.state.pools:
        entry = _entry(replace(job, pool=pool.name), spec)
        why = admission.unwilling(draft, entry)
        if why:
            continue
        slots = admission.find_slots(draft, pool, entry.ranks, spec)
        if isinstance(slots, str):
            why = slots
            continue
        _take_in(
            draft, AdmittedJob(job=replace(job, pool=pool.name), gpus=spec.gpus_total), entry, slots, spec
        )
        return ""
    return why


def _take_in(
    draft: Transition, work: AdmittedJob, entry: DesiredEntry, slots: tuple[Slot, ...], spec: JobSpec
) -> None:
    """The job first: should the disk tear the two apart, a job without a placement is dropped, and a placement without its job would be lost."""
    draft.put_local(work)
    draft.set(specs={**draft.state.specs, entry.spec_hash: spec})
    draft.do(Withhold(entry.placement))
    admission.stage(draft, draft.put(PlacementRecord(entry=entry, slots=slots)))


def _entry(job: LocalJob, spec: JobSpec) -> DesiredEntry:
    """What the dispatcher would have told: the same as it will tell once it has the job."""
    checkpoint = spec.checkpoint
    return DesiredEntry(
        placement=job.placement,
        job=job.job,
        job_name=spec.name,
        epoch=1,
        spec_hash=job.spec_hash,
        order=Order.RUN,
        ranks=tuple(range(spec.nodes)),
        pool=job.pool,
        max_duration_s=job.max_duration_s,
        grace_s=spec.grace_s,
        signal=checkpoint.signal if checkpoint is not None else "TERM",
        queue=job.queue,
        owner=job.owner,
        success=spec.success or "",
    )


def cancel(draft: Transition, event: LocalCancelled) -> None:
    """End a job of this site's own that the dispatcher does not have yet. It stays cancelled there."""
    work, record = draft.state.local.get(event.placement), draft.records.get(event.placement)
    if work is None or work.adopted or draft.state.linked:
        why = "the dispatcher has it, or is about to: cancel it there"
    elif record is None or record.phase in OVER:
        why = "it is over"
    else:
        why = ""
        by = event.by
        draft.put_local(replace(work, job=replace(work.job, cancelled_by=by)))
        endings.stop(draft, record, Cause.STOPPED, f"cancelled by {by} at the site")
    draft.do(Answer(event.placement, why))


def awake(draft: Transition) -> None:
    """What the disk has torn apart is dropped; logs of what is not adopted wait."""
    for placement, work in list(draft.state.local.items()):
        if work.adopted:
            continue
        if placement in draft.records:
            draft.do(Withhold(placement))
        else:
            draft.drop_local(placement)
    prune(draft)


def link_up(draft: Transition, *, anew: bool) -> None:
    """Say what is not adopted. `anew`: to a store that may never have heard of what another adopted, and is told all that there still is a record of."""
    if anew:
        for placement, work in list(draft.state.local.items()):
            if work.adopted and placement in draft.records:
                draft.put_local(replace(work, adopted=False))
                draft.do(Withhold(placement))
    note_heard(draft)
    offer(draft)


def offer(draft: Transition) -> None:
    """Say the oldest jobs that are not adopted: as many as go into one message. The next follow when these are."""
    jobs = sorted(
        (work.job for work in draft.state.local.values() if not work.adopted), key=lambda job: job.job
    )
    if jobs and draft.state.linked:
        draft.set(offered_boot_s=draft.now.boot_s)
        draft.do(OfferJobs(tuple(jobs[:MAX_LOCAL_JOBS])))


def adopted(draft: Transition, event: Adopted) -> None:
    """The dispatcher has these: now it is told how far they are, and their logs go.

    Each under a new number: an acknowledgement of a higher one than it had may be on its way, and is not about it.
    """
    for placement in event.placements:
        work = draft.state.local.get(placement)
        if work is None or work.adopted:
            continue
        draft.put_local(replace(work, adopted=True))
        draft.do(Release(placement))
        record = draft.records.get(placement)
        if record is not None and record.report is not None:
            draft.tell(record, record.report.status, record.verdict if record.phase is Phase.ENDED else None)
    offer(draft)


def allotted(draft: Transition, event: Allotted) -> None:
    """What may be admitted from now on."""
    draft.put_allotments(event.allotments)


def report_due(draft: Transition) -> None:
    """What is to be done now and then."""
    prune(draft)
    state = draft.state
    if state.linked and draft.now.at - state.heard_at > NOTE_EVERY_S:
        note_heard(draft)
    if state.offered_boot_s is not None and draft.now.boot_s - state.offered_boot_s > OFFER_AGAIN_S:
        draft.set(offered_boot_s=None)
        offer(draft)


def note_heard(draft: Transition) -> None:
    """The dispatcher is there, or was until now: an allotment holds for so long from then."""
    if draft.state.allotments:
        draft.put_allotments(draft.state.allotments)


def prune(draft: Transition) -> None:
    """Drop what neither the dispatcher nor an allotment asks for any more."""
    for placement, work in list(draft.state.local.items()):
        old = work.job.submitted_at <= draft.now.at - DAY_S
        if work.adopted and old and placement not in draft.records:
            draft.drop_local(placement)

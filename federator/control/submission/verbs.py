"""What people do to jobs that are there: cancel, hold, release, requeue and update, one job or all tasks of an array.

Rows only: what has to happen at sites follows from them. Many are written some at a time, so that ten thousand take a second and nobody else waits for all of it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from federator.control.administration.authority import Authority
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.submission.acceptance import keep_spec
from federator.control.submission.amended_specs import amended, amends
from federator.control.submission.expansion import (
    refuse_more_pieces,
    refuse_pieces,
    submitted_by,
    take_out,
    unexpanded,
)
from federator.control.submission.held_capacity import check_held
from federator.control.submission.intake_checks import patched
from federator.kernel.errors import Conflict
from federator.model.arrays import JobArray, Spans, both, joined, size, without
from federator.model.identity import Caller
from federator.model.jobs import Job, JobSpec, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import advance, allows
from federator.model.placements import Placement
from federator.wire.addresses import label_of_all
from federator.wire.http import JobAction, JobPatch, Verb
from federator.wire.jobfile import spec_hash

Do = Callable[[Changes, Caller, Job], bool]
"""Writes what a verb makes of a job; whether it changes anything. Raises `Conflict` where it does not suit the job."""
PART = 29
"""Jobs of one transaction: four rows each at most and a line of the ledger; stores take 120 rows at once."""
AHEAD = 2
"""Transactions that are on their way to the store at once: a commit of somebody else waits for them."""


class Acted(NamedTuple):
    """What became of many."""

    changed: int
    left: int
    """So many were left as they are, because the verb does not suit them."""
    left_because: str
    """Why, of the first of those."""
    because: str
    """Why the first that was changed is as it is now; empty where none was."""


NOTHING = Acted(0, 0, "", "")
PAST = {"hold": "held", "release": "released"}


class Patched(NamedTuple):
    """A job after a patch, and what was set, in words."""

    job: Job
    what: str
    spec: JobSpec | None
    """Where another one has to be stored with it."""


class Verbs:
    """Writes what each verb makes of a job."""

    def __init__(
        self, records: Records, event_writer: EventWriter, authority: Callable[[], Authority]
    ) -> None:
        """`authority`: by the policies in force."""
        self._records = records
        self._event_writer = event_writer
        self._authority = authority
        self._each: dict[Verb, Do] = {
            "cancel": self._cancel,
            "hold": self._hold,
            "release": self._release,
            "requeue": self._requeue,
        }

    def of(self, action: JobAction) -> Do:
        """What writes it."""
        if action.verb == "update":
            return partial(self._update, action.patch or JobPatch())
        return self._each[action.verb]

    def check(self, caller: Caller, action: JobAction, jobs: Sequence[Job]) -> None:
        """Raises `Invalid` and `Forbidden` where a patch suits one of these jobs not; tasks that ask for the same are looked at once."""
        if action.patch is None:
            return
        for job in {(each.spec_hash, *_claims(each)): each for each in jobs if not each.terminal}.values():
            with contextlib.suppress(Conflict):  # it is left as it is
                self._patched(caller, job, action.patch)

    def _patched(self, caller: Caller, job: Job, patch: JobPatch) -> Patched:
        spec = None
        if amends(patch):
            spec = amended(job, self._records.spec(job.spec_hash), patch)
            job = replace(job, spec_hash=spec_hash(spec))
        now = self._event_writer.clock.now()
        return Patched(*patched(job, patch, self._authority(), caller, now), spec)

    def patched(self, caller: Caller, job: Job, patch: JobPatch) -> tuple[Job, JobSpec]:
        """The job as the patch would leave it, and its spec; nothing is written. Raises `Conflict` for one that does not wait, `Invalid` and `Forbidden`."""
        if job.status not in (JobStatus.PENDING, JobStatus.HELD):
            raise Conflict(
                f"{job.label} is {job.status}: only what waits can be previewed",
                remedy="PATCH /v1/jobs/{id} changes it",
            )
        new = self._patched(caller, job, patch)
        return new.job, new.spec or self._records.spec(job.spec_hash)

    def write(
        self, changes: Changes, caller: Caller, action: JobAction, jobs: Sequence[Job]
    ) -> list[Conflict]:
        """Do it to jobs of one name, with one line in the ledger for all that it changes. Answers with the refusals of those that the verb does not suit."""
        changed, refused, do = list[Job](), list[Conflict](), self.of(action)
        for job in jobs:
            try:
                if self._do(changes, caller, do, job):
                    changed.append(job)
            except Conflict as error:
                refused.append(error)
        take_out(self._records, changes, (job for job in changed if job.id not in self._records.jobs))
        if changed:
            first = changed[0]
            what = action.verb if action.patch is None else f"update {_in_words(action.patch)}"
            what = f"{what} {label_of_all(changed)}" if len(changed) > 1 else what
            self._event_writer.act(
                changes, f"user:{caller.name}", what, job=first.id, queue=first.queue, owner=first.owner
            )
        return refused

    def _do(self, changes: Changes, caller: Caller, do: Do, job: Job) -> bool:
        """Do it; a task that is not expanded becomes a job by it, and has then to be taken out of those."""
        task = None if job.id in self._records.jobs else unexpanded(self._records, job)
        if task is None:
            return do(changes, caller, job)
        refuse_more_pieces(self._records.job_arrays[task.array or ""])
        begun = self._event_writer.event(task, "submit", submitted_by(task))
        if not do(changes, caller, task):
            return False
        changes.put(begun)
        return True

    def write_rest(
        self, changes: Changes, caller: Caller, action: JobAction, array: JobArray, places: Spans
    ) -> Acted:
        """Do it to the tasks of an array at these places that are not expanded: to cancel takes some of them, any other verb all."""
        here, now, template = both(array.left, places), self._event_writer.clock.now(), array.template
        count, label = size(here), f"{template.name}[{array.indices.at(here)}]"
        if not here:
            return NOTHING
        if action.verb == "cancel":
            left, cancelled = without(array.left, here), joined((*array.cancelled, *here))
            refuse_pieces(array, left, cancelled)
            array = replace(
                array,
                left=left,
                cancelled=cancelled,
                cancelled_at=now,
                cancelled_because=f"cancelled by {caller.name}",
            )
        elif action.patch is not None:
            given = self._patched(caller, template, action.patch)
            template = given.job
            if given.spec is not None:
                keep_spec(self._records, changes, template, given.spec)
        elif not allows(template.status, action.verb):
            if action.verb == "hold":
                return NOTHING
            verb = "held" if action.verb == "release" else "placed"
            because = f"{label} has not been {verb}: there is nothing to {action.verb}"
            return Acted(0, count, because, "")
        else:
            status, because = advance(template.status, action.verb), f"{PAST[action.verb]} by {caller.name}"
            template = replace(template, status=status, because=because)
        changes.put(replace(array, template=template))
        what = action.verb if action.patch is None else f"update {_in_words(action.patch)}"
        self._event_writer.act(
            changes, f"user:{caller.name}", f"{what} {label}", job=array.id, queue=template.queue, owner=template.owner
        )  # fmt: skip
        return Acted(count, 0, "", array.cancelled_because if action.verb == "cancel" else template.because)

    async def act_on_rest(self, caller: Caller, action: JobAction, array: str, places: Spans) -> Acted:
        """Do it to those tasks at these places of an array that are not expanded, as one transaction. They must be the caller's to change."""
        acted = [NOTHING]

        def compute() -> Changes:
            changes, row = Changes(), self._records.job_arrays.get(array)
            acted[0] = NOTHING if row is None else self.write_rest(changes, caller, action, row, places)
            return changes

        await self._records.transact(compute)
        return acted[0]

    async def act(self, caller: Caller, action: JobAction, names: Sequence[str]) -> Acted:
        """Do it to all of these that are on record, a part of them at a time; others have their turn after every part. They must be the caller's to change; those that the verb does not suit are left as they are."""

        async def act_on(part: Sequence[str]) -> Acted:
            refused: list[Conflict] = []

            def compute() -> Changes:
                changes = Changes()
                jobs = [job for job in map(self._records.known_job, part) if job is not None]
                refused[:] = self.write(changes, caller, action, jobs)
                return changes

            changes = await self._records.transact(compute)
            changed = [row for row in changes.rows.values() if isinstance(row, Job)]
            left_because = refused[0].describe() if refused else ""
            return Acted(len(changed), len(refused), left_because, changed[0].because if changed else "")

        parts: list[asyncio.Future[Acted]] = []
        for start in range(0, len(names), PART):
            if len(parts) >= AHEAD:
                await asyncio.wait([parts[-AHEAD]])
            parts.append(asyncio.ensure_future(act_on(names[start : start + PART])))
            await asyncio.sleep(0)
        done = await asyncio.gather(*parts)
        left_because = next((each.left_because for each in done if each.left), "")
        because = next((each.because for each in done if each.changed), "")
        return Acted(
            sum(each.changed for each in done), sum(each.left for each in done), left_because, because
        )

    def placement(self, job: Job) -> Placement | None:
        """Where it is now."""
        placement = self._records.known_placement(job.placement)
        return placement if placement is not None and not placement.ended else None

    def _update(self, patch: JobPatch, changes: Changes, caller: Caller, job: Job) -> bool:
        """Change what may be changed; a running job's new limit reaches its site."""
        refuse_ended(job)
        new, what, spec = self._patched(caller, job, patch)
        if spec is not None:
            keep_spec(self._records, changes, new, spec)
        changes.put(new, self._event_writer.event(new, "update", f"{caller.name} set {what}"))
        placement = self.placement(job)
        if placement is not None:
            check_held(self._records, placement, job, new)
            placed = self._records.spec(placement.spec_hash)
            limit_s = placed.limit_s(new.max_duration_s, placement.form)
            changes.put(replace(placement, max_duration_s=limit_s))
        return True

    def _cancel(self, changes: Changes, caller: Caller, job: Job) -> bool:
        if job.status in (JobStatus.CANCELLED, JobStatus.CANCELLING):
            return False
        refuse_ended(job, "there is nothing left to cancel")
        because = f"cancelled by {caller.name}"
        outcome = Outcome(TerminalReason.CANCELLED, because)
        job = self._event_writer.job(changes, job, "cancel", because, outcome=outcome)
        self._stop(changes, job, because, then="released", outcome=outcome)
        return True

    def _hold(self, changes: Changes, caller: Caller, job: Job) -> bool:
        refuse_ended(job)
        if job.status is JobStatus.HELD:
            return False
        because = f"held by {caller.name}"
        if job.status is JobStatus.PENDING:
            self._event_writer.job(changes, job, "hold", because)
            return True
        return self._suspend(changes, job, "hold", because, then="held")

    def _requeue(self, changes: Changes, caller: Caller, job: Job) -> bool:
        refuse_ended(job)
        return self._suspend(changes, job, "requeue", f"requeued by {caller.name}", then="paused")

    def _release(self, changes: Changes, caller: Caller, job: Job) -> bool:
        if not allows(job.status, "release"):
            raise Conflict(f"{job.label} is {job.status}, not held", remedy="only a held job can be released")
        self._event_writer.job(changes, job, "release", f"released by {caller.name}", losses=())
        return True

    def _suspend(self, changes: Changes, job: Job, verb: Verb, told: str, *, then: str) -> bool:
        if not allows(job.status, "suspend"):
            raise Conflict(
                f"{job.label} is {job.status}: there is nothing to {verb}",
                remedy=f"only a job that has been placed can be {'held' if verb == 'hold' else 'requeued'} now",
            )
        because = f"{told}{self._starts_anew(job)}"
        job = self._event_writer.job(changes, job, "suspend", because, pause_for=verb)
        self._stop(changes, job, because, then=then)
        return True

    def _starts_anew(self, job: Job) -> str:
        """The warning that what it has done is lost; nothing for a job that saves itself, or that has not begun."""
        placement = self.placement(job)
        saves = self._records.spec(job.spec_hash).checkpoint is not None
        if saves or placement is None or not self._records.may_run(placement):
            return ""
        return "; it names no `checkpoint`, so what it has done is lost and it starts from the beginning"

    def _stop(
        self, changes: Changes, job: Job, because: str, *, then: str, outcome: Outcome | None = None
    ) -> None:
        """Tell the job's site to stop it; where nothing was sent yet, the job moves on at once along `then`."""
        placement = self.placement(job)
        if placement is None:
            if not job.terminal and allows(job.status, then):
                self._event_writer.job(changes, job, then, because, outcome=outcome, placement=None)
            return
        sent = self._records.may_run(placement)
        self._event_writer.stop(changes, placement, because, sent=sent)
        if not sent:
            self._event_writer.job(
                changes, job, then, because, outcome=outcome, placement=None, pause_for=None
            )


def _claims(job: Job) -> tuple[object, ...]:
    """All of a job that a patch is held against."""
    return (
        job.owner, job.queue, job.team, job.priority, job.value_usd, job.must,
        job.deadline_at, job.max_cost_usd, job.max_duration_s,
    )  # fmt: skip


def refuse_ended(job: Job, remedy: str = "submit it again to run it again") -> None:
    """Raises `Conflict` for a job that has ended."""
    if job.terminal:
        raise Conflict(f"{job.label} has ended: {job.status}", remedy=remedy)


def _in_words(patch: JobPatch) -> str:
    given = msgspec.structs.asdict(patch)
    return ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)

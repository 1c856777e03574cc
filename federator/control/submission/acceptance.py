"""Acceptance: what a submission becomes, row by row, or the named reason for which it is refused.

Nothing is written here: whoever asks puts the rows into a transaction. Everything that can be wrong with a request is found before its first
row, so that several may share a transaction and one that is refused leaves nothing in it.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import msgspec

from federator.control.administration.authority import Authority, Right
from federator.control.administration.visibility import Visibility
from federator.control.maintenance.retention import Retention
from federator.control.record.blob_owners import owns
from federator.control.record.event_writer import EventWriter
from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes, ClientKey, Records, Spec
from federator.control.record.shares import Limit, Shares
from federator.control.submission.credentials import refuse_credentials
from federator.control.submission.intake_checks import Claim, check_limits, claim, deadline_at
from federator.kernel.errors import ClientIdReused, Invalid
from federator.model.identity import Caller
from federator.model.jobs import Follows, Job, JobSpec, JobStatus
from federator.ports import Blobs
from federator.settings import LimitSettings
from federator.wire.http import Submitted
from federator.wire.jobfile import JobRequest, encode_spec, spec_hash


class Submission(NamedTuple):
    """One submission: the request, its client id, and the hash of what it was read from."""

    request: JobRequest
    client_id: str | None
    body_hash: str


class Entry:
    """What of a caller's submissions does not depend on the job: found once for all that come together. Good until something else runs."""

    def __init__(
        self,
        caller: Caller,
        authority: Authority,
        retention: Retention,
        may_use: Callable[[Caller, str], bool],
    ) -> None:
        """`may_use`: whether a work directory is theirs or a team's of theirs, and here."""
        self.caller = caller
        self.may_use = cache(partial(may_use, caller))
        self.authority = authority
        self.rights = cache(partial(authority.rights, caller))
        """By queue and team, as `Authority.rights`."""
        self.refuse_if_full = cache(retention.refuse_if_full)
        self.refuse_over_share = cache(retention.refuse_over_share)


class Accepted(NamedTuple):
    """The answer, and the tasks whose rows are still to be written."""

    answer: Submitted
    tasks: tuple[Job, ...]


class Acceptance:
    """Requests into rows."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it joins
        self,
        records: Records,
        event_writer: EventWriter,
        blobs: Blobs,
        limits: LimitSettings,
        retention: Retention,
        shares: Shares,
        visibility: Visibility,
        reachable: Callable[[str], bool],
    ) -> None:
        """`reachable`: whether anybody knows how to tell that person anything."""
        self._records = records
        self._reachable = reachable
        self._event_writer = event_writer
        self._blobs = blobs
        self.limits = limits
        self.retention = retention
        self._shares = shares
        self._visibility = visibility

    def entry(self, caller: Caller) -> Entry:
        """For what this person submits now."""
        return Entry(caller, self.authority, self.retention, self._may_use)

    def prepare(self, entry: Entry, request: JobRequest) -> Job:
        """The record that this request would become, without accepting it. Raises what is wrong with it."""
        caller, spec, claimed = entry.caller, request.spec, _claim(entry, request)
        if not self.limits.credentials_in_env:
            refuse_credentials(spec.env)
        if spec.workdir is not None and not entry.may_use(spec.workdir):
            raise Invalid(
                "you have uploaded no such work directory",
                field="$.workdir",
                remedy="upload it first: PUT /v1/blobs/{hash}, also where another person has",
            )
        if request.notify and not self._reachable(caller.name):
            raise Invalid(
                f"there is no address for {caller.name}",
                field="$.notify",
                remedy="leave it out, or ask a user with the role platform to name you in notifications.people of the settings",
            )
        terms, now = entry.authority.terms(claimed.right.queue), self._event_writer.clock.now()
        return Job(
            id=self._event_writer.ids.new("job"),
            name=spec.name,
            owner=caller.name,
            queue=terms.queue,
            status=JobStatus.PENDING,
            spec_hash=spec_hash(spec),
            submitted_at=now,
            team=claimed.right.team,
            may_rent=claimed.right.rent,
            priority=claimed.priority,
            deadline_at=deadline_at(terms, request.deadline_at, now),
            value_usd=claimed.value_usd,
            must=claimed.must,
            max_cost_usd=request.max_cost_usd,
            max_duration_s=request.max_duration_s
            if request.max_duration_s is not None
            else terms.max_duration_s,
            at_once=request.at_once,
            notify=request.notify,
            after=tuple(self._predecessor(caller, name) for name in request.after),
            after_how=request.after_how,
        )

    def _may_use(self, caller: Caller, digest: str) -> bool:
        """Whether the bytes are theirs or a team's of theirs, and here. The answer is the same for what is not here and for what is another's."""
        return owns(self._records, caller.name, digest, self.authority.teams_of(caller)) and self._blobs.has(
            digest
        )

    def check_right(self, caller: Caller, request: JobRequest) -> Right:
        """The right by which the caller may submit this. Raises `Forbidden` and `Invalid`, naming the field."""
        return _claim(self.entry(caller), request).right

    @property
    def authority(self) -> Authority:
        """By the policies in force."""
        return self._visibility.authority.now

    def accept(self, changes: Changes, entry: Entry, asked: Submission) -> Accepted:
        """Everything but the tasks' own rows. A known client id gives the tasks that its first use did not get to write: mostly none."""
        caller, (request, client_id, body_hash) = entry.caller, asked
        first = self._first_use(caller, client_id, body_hash)
        if first is not None and all(job in self._records.jobs for job in first.jobs):
            return Accepted(Submitted(jobs=first.jobs, name=first.name, repeated=True), ())
        entry.refuse_if_full()
        tasks_wanted = len(request.array) or 1
        check_limits(tasks_wanted, len(self._records.open_jobs), self.limits)
        job = self.prepare(entry, request)
        holders = holders_of(job.owner, job.team)
        self._shares.refuse_over(self._queued(), holders, tasks_wanted)
        entry.refuse_over_share(holders)
        _keep_spec(self._records, changes, job, request.spec)
        job = msgspec.structs.replace(job, client_id=client_id)
        ids = first.jobs if first else self._new_ids(job, request.array)
        tasks = _unwritten(self._records, job, request.array, ids)
        tasks = self._one_by_one(tasks) if Follows.EACH in job.after_how else tasks
        who = f"user:{caller.name}"
        self._event_writer.act(
            changes, who, f"submit {job.name}", job=ids[0], queue=job.queue, owner=job.owner
        )
        if client_id is not None and first is None:
            changes.put(ClientKey(caller.name, client_id, body_hash, ids, job.name, job.submitted_at))
        return Accepted(Submitted(jobs=ids, name=job.name, repeated=first is not None), tasks)

    def _queued(self) -> Limit:
        remedy = "wait until some of them have ended, or cancel some"
        return Limit(Held.QUEUED, self.limits.queued_jobs, "limits.queued_jobs", remedy)

    def write(self, changes: Changes, caller: Caller, tasks: Sequence[Job]) -> None:
        """The tasks' own rows."""
        for task in tasks:
            text = f"submitted by {caller.name} to queue {task.queue}"
            changes.put(task, self._event_writer.event(task, "submit", text))

    def _new_ids(self, job: Job, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._event_writer.ids.new("job") for _ in indices) or (job.id,)

    def _first_use(self, caller: Caller, client_id: str | None, body_hash: str) -> ClientKey | None:
        first = self._records.client_keys.get(f"{caller.name}/{client_id}") if client_id is not None else None
        if first is not None and first.body_hash != body_hash:
            raise ClientIdReused(
                f"client id {client_id!r} was used for another job ({first.name}, {first.jobs[0]})",
                remedy="use a new client id",
            )
        return first

    def _one_by_one(self, tasks: Sequence[Job]) -> tuple[Job, ...]:
        """The same, where a task follows the task with its index of an array. Raises `Invalid` where there is none."""
        arrays = {name for name, how in tasks[0].follows() if how is Follows.EACH} if tasks else set()
        found = {
            (array, task.array_index): task.id
            for array in arrays
            for task in self._records.arrays.get(array, {}).values()
        }

        def of(task: Job, name: str, how: Follows) -> str:
            if how is not Follows.EACH:
                return name
            if task.array_index is None or (name, task.array_index) not in found:
                lacks = (
                    "the job is no array"
                    if task.array_index is None
                    else f"there is no task {task.array_index}"
                )
                raise Invalid(
                    lacks, field="$.after.each", remedy="name an array that has all indices of this one"
                )
            return found[name, task.array_index]

        return tuple(
            msgspec.structs.replace(task, after=tuple(of(task, *each) for each in task.follows()))
            for task in tasks
        )

    def _predecessor(self, caller: Caller, name: str) -> str:
        """A job or array by its id, or the caller's newest of that name: an array's task stands for the whole array."""
        tasks = self._records.arrays.get(name, {})
        known = self._records.jobs.get(name) or self._records.jobs.get(next(iter(tasks), ""))
        if known is not None and self._visibility.of(caller).job(known):
            return name
        newest = self._records.index.newest(name, caller.name)
        if newest is None:
            raise Invalid(
                f"you have no job {name!r}", field="$.after", remedy="name a job of yours, or its id"
            )
        return newest.array or newest.id


def _claim(entry: Entry, request: JobRequest) -> Claim:
    rights = entry.rights(request.queue or entry.caller.default_queue, request.team)
    return claim(rights, priority=request.priority, value_usd=request.value_usd, must=request.must)


def _keep_spec(records: Records, changes: Changes, job: Job, spec: JobSpec) -> None:
    """Store the spec, or see to it that nobody drops the one that is there."""
    if records.has_spec(job.spec_hash):
        changes.relies_on.append(f"spec/{job.spec_hash}")
    else:
        changes.put(Spec(job.spec_hash, encode_spec(spec)))


def _unwritten(records: Records, job: Job, indices: Sequence[int], ids: Sequence[str]) -> tuple[Job, ...]:
    """The tasks that are not on record yet. The rest of an array that a crash cut short joins what there is of it."""
    array = next((records.jobs[name].array for name in ids if name in records.jobs), None)
    tasks = _tasks(msgspec.structs.replace(job, id=array or job.id), indices, ids)
    return tuple(task for task in tasks if task.id not in records.jobs)


def _tasks(job: Job, indices: Sequence[int], ids: Sequence[str]) -> list[Job]:
    """One record per task of an array, or the job itself."""
    if not indices:
        return [msgspec.structs.replace(job, id=ids[0])]
    return [
        msgspec.structs.replace(job, id=name, array=job.id, array_index=index)
        for name, index in zip(ids, indices, strict=True)
    ]

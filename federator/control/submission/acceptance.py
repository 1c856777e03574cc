"""Acceptance: what a submission becomes, row by row, or the named reason for which it is refused.

Nothing is written here: whoever asks puts the rows into a transaction. Everything that can be wrong with a request is found before its first
row, so that several may share a transaction and one that is refused leaves nothing in it.
"""

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from msgspec.structs import replace

from federator.control.administration.authority import Authority, Right
from federator.control.administration.visibility import Visibility
from federator.control.maintenance.retention import Retention
from federator.control.record.blob_owners import owns
from federator.control.record.event_writer import EventWriter
from federator.control.record.holders import Held, holders_of
from federator.control.record.records import Changes, Records, Spec
from federator.control.record.rows import ClientKey
from federator.control.record.shares import Limit, Shares
from federator.control.submission.expansion import PART, expanded, put_new
from federator.control.submission.intake_checks import Claim, check_licenses, check_limits, claim, deadline_at
from federator.control.submission.sources import FIELD, check_source
from federator.kernel.errors import ClientIdReused, Invalid, Permanent
from federator.model.arrays import Indices, JobArray, task_id, without
from federator.model.identity import Caller
from federator.model.jobs import Follows, Job, JobSpec, JobStatus
from federator.ports import Blobs
from federator.settings import LimitSettings
from federator.wire.credentials import refuse_credentials
from federator.wire.http import Submitted
from federator.wire.jobfile import JobRequest, encode_spec, spec_hash
from federator.wire.steps import StepsRequest

MOST_IDS = 10_000
"""Ids of tasks in one answer: those of all others follow from the array's."""


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
        self.siblings: dict[str, Job] = {}
        """Steps of the same pipeline that are accepted already, by the names of their jobs."""
        self.refuse_if_full = cache(retention.refuse_if_full)
        self.refuse_over_share = cache(retention.refuse_over_share)


class Accepted(NamedTuple):
    """The answer, and the rows that are still to be written: jobs, and what else there is to an array of more."""

    answer: Submitted
    tasks: tuple[Job, ...]
    array: JobArray | None = None

    @property
    def rows(self) -> tuple[Job | JobArray, ...]:
        """All of them."""
        return self.tasks if self.array is None else (*self.tasks, self.array)

    def of_series(self, series: str, due_at: float) -> "Accepted":
        """The same, as a run of a series."""
        of = {"series": series, "due_at": due_at}
        array = self.array and replace(self.array, template=replace(self.array.template, **of))
        return self._replace(tasks=tuple(replace(task, **of) for task in self.tasks), array=array)


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
        self.shares = shares
        self._visibility = visibility

    async def folders(self, *digests: str | None) -> frozenset[str]:
        """Those of these work directories that are here; to ask is to use them. Apart from what follows: to find out may take a disk or a network."""
        named = [digest for digest in set(digests) if digest]
        here = await asyncio.gather(*(asyncio.to_thread(self._blobs.has, digest) for digest in named))
        return frozenset(digest for digest, is_here in zip(named, here, strict=True) if is_here)

    def entry(self, caller: Caller, folders: frozenset[str]) -> Entry:
        """For what this person submits now; `folders` as `folders` has found them for it."""
        return Entry(caller, self.authority, self.retention, partial(self._may_use, folders))

    def prepare(self, entry: Entry, request: JobRequest) -> Job:
        """The record that this request would become, without accepting it. Raises what is wrong with it."""
        return self._prepared(entry, self._resolved(entry, request))

    def _resolved(self, entry: Entry, request: JobRequest) -> JobRequest:
        """The request with ids in place of the names of jobs that it follows, and whose outputs it reads. Raises what is wrong with these."""
        sources = request.spec.inputs_from or ()
        read = {each.job for each in sources}
        ids = {
            name: self._predecessor(entry, name, FIELD if name in read else "$.after")
            for name in request.after
        }
        sources = tuple(replace(each, job=ids.get(each.job, each.job)) for each in sources)
        for each in sources:
            # What is in the archive alone was looked at before, and is followed no more.
            if (first := self._first_of(each.job)) is not None:
                check_source(self._records, self.authority, entry.caller, each, first)
        spec = replace(request.spec, inputs_from=sources) if sources else request.spec
        return replace(request, spec=spec, after=tuple(ids[name] for name in request.after))

    def _prepared(self, entry: Entry, request: JobRequest) -> Job:
        caller, spec, claimed = entry.caller, request.spec, _claim(entry, request)
        if not self.limits.credentials_in_env:
            refuse_credentials(spec.env)
        if spec.workdir is not None and not entry.may_use(spec.workdir):
            raise Invalid(
                "you have uploaded no such work directory",
                field="$.workdir",
                remedy="upload it first: PUT /v1/blobs/{hash}, also where another person has",
            )
        check_licenses(spec.licenses or {}, self._records.policies.rules)
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
            after=request.after,
            after_how=request.after_how,
        )

    def _may_use(self, folders: frozenset[str], caller: Caller, digest: str) -> bool:
        """Whether the bytes are theirs or a team's of theirs, and here. The answer is the same for what is not here and for what is another's."""
        teams = self.authority.teams_of(caller)
        return digest in folders and owns(self._records, caller.name, digest, teams)

    def check_right(self, caller: Caller, request: JobRequest) -> Right:
        """The right by which the caller may submit this. Raises `Forbidden` and `Invalid`, naming the field."""
        return _claim(self.entry(caller, frozenset()), request).right

    @property
    def authority(self) -> Authority:
        """By the policies in force."""
        return self._visibility.authority.now

    def accept(self, changes: Changes, entry: Entry, asked: Submission) -> Accepted:
        """Everything but the tasks' own rows. A known client id gives its first answer, and nothing to write."""
        caller, (request, client_id, body_hash) = entry.caller, asked
        first = self._first_use(caller, client_id, body_hash)
        if first is not None:
            return Accepted(_submitted(first, repeated=True), ())
        job, array = self._new(changes, entry, request, client_id)
        tasks, rest = expanded(self._records, array, PART) if array is not None else ((job,), None)
        self._event_writer.act(
            changes, f"user:{caller.name}", f"submit {job.name}", job=tasks[0].id, queue=job.queue, owner=job.owner
        )  # fmt: skip
        key = ClientKey(
            caller.name,
            client_id or "",
            body_hash,
            (tasks[0].id,),
            job.name,
            job.submitted_at,
            tasks=len(request.array),
            array=job.id if array is not None else "",
        )
        if client_id is not None:
            changes.put(key)
        return Accepted(_submitted(key, repeated=False), tasks, rest if rest and rest.left else None)

    def _new(
        self, changes: Changes, entry: Entry, request: JobRequest, client_id: str | None, before: int = 0
    ) -> tuple[Job, JobArray | None]:
        """What the request becomes, with its spec on record and nothing else. `before`: so many that will wait are accepted and not on record yet. Raises what is wrong with it."""
        entry.refuse_if_full()
        tasks_wanted = len(request.array) or 1
        wait = waiting_of(request, self.limits)
        queued = len(self._records.open_jobs) + self._records.held_counts.on_the_way + before
        check_limits(tasks_wanted, wait, queued, self.limits)
        request = self._resolved(entry, request)
        job = replace(self._prepared(entry, request), client_id=client_id)
        holders = holders_of(job.owner, job.team)
        self.shares.refuse_over(self._queued(), holders, wait + before)
        entry.refuse_over_share(holders)
        keep_spec(self._records, changes, job, request.spec)
        if not request.array and Follows.EACH in job.after_how:
            raise Invalid(
                "the job is not an array",
                field="$.after.each",
                remedy="name an array that has all indices of this one",
            )
        return job, self._array(job, request.array, entry) if request.array else None

    def accept_steps(
        self, changes: Changes, entry: Entry, asked: StepsRequest, client_id: str | None, body_hash: str
    ) -> tuple[Submitted, list[Job | JobArray]]:
        """All steps of a pipeline, and their rows; nothing of it where a step is refused, and no rows where the client id is known. Tasks of arrays become jobs afterwards."""
        caller, made, waiting = entry.caller, list[Job | JobArray](), 0
        first = self._first_use(caller, client_id, body_hash)
        if first is not None:
            return _submitted(first, repeated=True), made
        pipeline = self._event_writer.ids.new("pip")
        for step in asked.steps:
            try:
                job, array = self._new(
                    changes, entry, step.request, None if made else client_id, before=waiting
                )
            except Permanent as error:
                raise type(error)(error.message, field=step.field(error.field), remedy=error.remedy) from None
            waiting += waiting_of(step.request, self.limits)
            job = replace(job, pipeline=pipeline)
            entry.siblings[job.name] = job
            if array is None:
                put_new(changes, self._event_writer, job)
            else:
                changes.put(replace(array, template=job))
            made.append(job if array is None else replace(array, template=job))
        one = entry.siblings[f"{asked.name}.{asked.steps[0].name}"]
        self._event_writer.act(
            changes, f"user:{caller.name}", f"submit pipeline {asked.name}", job=one.id, queue=one.queue, owner=one.owner
        )  # fmt: skip
        ids = tuple(each.id for each in made)
        key = ClientKey(
            caller.name, client_id or "", body_hash, ids, asked.name, one.submitted_at, pipeline=pipeline
        )
        if client_id is not None:
            changes.put(key)
        return _submitted(key, repeated=False), made

    def _array(self, job: Job, indices: Indices, entry: Entry) -> JobArray:
        """The array of tasks that are as `job`, none of which is a job yet. Raises `Invalid` where a task follows one that there is not."""
        self._event_writer.ids.pass_over(len(indices))
        array = JobArray(
            id=job.id,
            template=job,
            runs=indices.runs,
            window=self.limits.array_waiting,
            left=((0, len(indices)),),
        )
        for name, how in job.follows():
            if how is Follows.EACH and not any(name == each.id for each in entry.siblings.values()):
                _refuse_lacking(self._records, name, indices)
        return array

    def _queued(self) -> Limit:
        remedy = "wait until some of them have ended, or cancel some"
        return Limit(Held.QUEUED, self.limits.queued_jobs, "limits.queued_jobs", remedy)

    def write(self, changes: Changes, accepted: Accepted) -> None:
        """The tasks' own rows, and that of what is not expanded."""
        for task in accepted.tasks:
            put_new(changes, self._event_writer, task)
        if accepted.array is not None:
            changes.put(accepted.array)

    def _first_use(self, caller: Caller, client_id: str | None, body_hash: str) -> ClientKey | None:
        key = f"{caller.name}/{client_id}"
        first = self._records.client_keys.get(key) or self._records.past.client_keys.get(key)
        first = first if client_id is not None else None
        if first is not None and first.body_hash != body_hash:
            raise ClientIdReused(
                f"client id {client_id!r} was used for another job ({first.name}, {first.jobs[0]})",
                remedy="use a new client id",
            )
        return first

    def _first_of(self, name: str) -> Job | None:
        """The job of that id, or a task of that array."""
        tasks = self._records.arrays.get(name, {})
        return self._records.open_job(name) or self._records.jobs.get(next(iter(tasks), ""))

    def _predecessor(self, entry: Entry, name: str, field: str) -> str:
        """A job or array by its id, or the caller's newest of that name: an array's task stands for the whole array."""
        if name in entry.siblings:
            return entry.siblings[name].id
        caller, known = entry.caller, self._first_of(name)
        if known is not None and self._visibility.of(caller).job(known):
            return name
        newest = self._records.index.newest(name, caller.name)
        if newest is None:
            raise Invalid(f"you have no job {name!r}", field=field, remedy="name a job of yours, or its id")
        return newest.array or newest.id


def waiting_of(request: JobRequest, limits: LimitSettings) -> int:
    """How many jobs of a request wait at once."""
    return min(len(request.array) or 1, limits.array_waiting)


def _claim(entry: Entry, request: JobRequest) -> Claim:
    rights = entry.rights(request.queue or entry.caller.default_queue, request.team)
    return claim(rights, priority=request.priority, value_usd=request.value_usd, must=request.must)


def keep_spec(records: Records, changes: Changes, job: Job, spec: JobSpec) -> None:
    """Store the spec, or see to it that nobody drops the one that is there."""
    if records.has_spec(job.spec_hash):
        changes.relies_on.append(f"spec/{job.spec_hash}")
    else:
        changes.put(Spec(job.spec_hash, encode_spec(spec)))


def _submitted(key: ClientKey, *, repeated: bool) -> Submitted:
    """What is answered: the ids of all jobs, or of the first of a very large array."""
    jobs = key.jobs
    if key.array:
        jobs = tuple(task_id(key.array, place) for place in range(min(key.tasks, MOST_IDS)))
    return Submitted(jobs, key.name, repeated, key.array, key.tasks, key.pipeline)


def _refuse_lacking(records: Records, before: str, indices: Indices) -> None:
    """Raise `Invalid` where a task of an array would have to follow a task that there is not."""
    array = records.job_arrays.get(before)
    there = array.indices if array is not None else _indices_of(records, before)
    lacking = without(((0, len(indices)),), indices.places(there))
    if lacking:
        raise Invalid(
            f"there is no task {indices[lacking[0][0]]}",
            field="$.after.each",
            remedy="name an array that has all indices of this one",
        )


def _indices_of(records: Records, array: str) -> Indices:
    tasks = records.arrays.get(array, {}).values()
    return Indices.of(sorted(task.array_index for task in tasks if task.array_index is not None))

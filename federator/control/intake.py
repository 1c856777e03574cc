"""Intake: what users ask for becomes records, durable before it is acknowledged.

Everything a person does to a job comes through here – submit, update, cancel, hold, release, requeue – and changes only records; what
has to happen at sites follows from them.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from federator.control.held_capacity import check_held
from federator.control.intake_checks import QueueBook, check_limits, patched
from federator.control.records import Changes, ClientKey, Records, Spec
from federator.control.retention import Retention
from federator.control.scribe import Scribe
from federator.kernel.errors import ClientIdReused, Conflict, FederatorError, Invalid, NotFound
from federator.kernel.ids import content_hash
from federator.model.identity import Caller
from federator.model.jobs import Job, JobSpec, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows
from federator.model.placements import Placement
from federator.model.rules import Rule
from federator.ports import Blobs
from federator.settings import LimitSettings
from federator.wire.http import JobPatch, Submitted
from federator.wire.jobfile import JobRequest, encode_spec

PART = 50
"""Tasks per transaction: two rows each, beside a few that all share; stores take 120 rows at once."""


GROUP = 20
"""Jobs per transaction where many come at once: up to five rows each."""


class Asked(NamedTuple):
    """One of many submissions."""

    request: JobRequest
    client_id: str | None
    body_hash: str


class _Accepted(NamedTuple):
    """The answer, and the tasks whose rows are still to be written."""

    answer: Submitted
    tasks: tuple[Job, ...]


class Intake:
    """Requests of people, made into records."""

    def __init__(
        self, records: Records, scribe: Scribe, blobs: Blobs, limits: LimitSettings, retention: Retention
    ) -> None:
        self._records = records
        self._scribe = scribe
        self._blobs = blobs
        self._limits = limits
        self._retention = retention
        self._book = QueueBook(())
        self._book_of: tuple[Rule, ...] = ()

    async def submit(
        self, caller: Caller, request: JobRequest, *, client_id: str | None, body_hash: str
    ) -> Submitted:
        """Accept one job, or one array. The same client id again gives the first answer. Raises the named refusal otherwise.

        An array larger than one transaction is written in parts, and acknowledged after the last; the first part names all
        tasks, so that a client that repeats itself after a crash completes the array instead of doubling it.
        """
        accepted: list[_Accepted] = []

        def compute() -> Changes:
            changes = Changes()
            accepted[:] = [self._accept(changes, caller, request, client_id, body_hash)]
            self._write(changes, caller, accepted[0].tasks[:PART])
            return changes

        await self._records.transact(compute)
        for start in range(PART, len(accepted[0].tasks), PART):
            await self._records.transact(partial(self._part, caller, accepted[0].tasks[start : start + PART]))
        return accepted[0].answer

    async def submit_many(
        self, caller: Caller, requests: Sequence[Asked]
    ) -> list[Submitted | FederatorError]:
        """Accept many; each is accepted or refused by itself, though several are written as one.

        One that must follow others waits for those before it: they may be the ones that it names.
        """
        answers: list[asyncio.Future[list[Submitted | FederatorError]]] = []
        for group in _grouped(requests):
            if group[0].request.after:
                await asyncio.gather(*answers)
            answers.append(asyncio.ensure_future(self._answers(caller, group)))
        return [answer for part in await asyncio.gather(*answers) for answer in part]

    async def _answers(self, caller: Caller, group: Sequence[Asked]) -> list[Submitted | FederatorError]:
        answers: list[Submitted | FederatorError] = []
        try:
            if len(group) == 1:
                (only,) = group
                return [
                    await self.submit(
                        caller, only.request, client_id=only.client_id, body_hash=only.body_hash
                    )
                ]
            await self._records.transact(partial(self._group, caller, group, answers))
        except FederatorError as error:
            return [error] * len(group)
        return answers

    def _group(
        self, caller: Caller, group: Sequence[Asked], answers: list[Submitted | FederatorError]
    ) -> Changes:
        """Single jobs as one transaction; `answers` is what became of each. Who is refused has left nothing in it."""
        changes = Changes()
        answers.clear()
        for request, client_id, body_hash in group:
            try:
                accepted = self._accept(changes, caller, request, client_id, body_hash)
            except FederatorError as error:
                answers.append(error)
            else:
                self._write(changes, caller, accepted.tasks)
                answers.append(accepted.answer)
        return changes

    def prepare(self, caller: Caller, request: JobRequest) -> tuple[JobSpec, Job]:
        """The record that this request would become, without accepting it. Raises what is wrong with it."""
        queues = self._queues()
        spec = request.spec
        if spec.workdir is not None and not self._blobs.has(spec.workdir):
            raise Invalid(
                "no such blob is stored", field="$.workdir", remedy="upload it first: PUT /v1/blobs/{hash}"
            )
        terms = queues.terms(request.queue or caller.default_queue)
        now = self._scribe.clock.now()
        priority = queues.priority(terms, request.priority)
        job = Job(
            id=self._scribe.ids.new("job"),
            name=spec.name,
            owner=caller.name,
            queue=terms.queue,
            status=JobStatus.PENDING,
            spec_hash=content_hash(encode_spec(spec)),
            submitted_at=now,
            priority=priority,
            deadline_at=queues.deadline_at(terms, request.deadline_at, now),
            value_usd=queues.value_usd(terms, request.value_usd),
            must=queues.must(terms, wanted=request.must),
            max_cost_usd=request.max_cost_usd,
            max_duration_s=request.max_duration_s
            if request.max_duration_s is not None
            else terms.max_duration_s,
            after=tuple(self._predecessor(caller, name) for name in request.after),
        )
        return spec, job

    def _queues(self) -> QueueBook:
        """The queues of the policies in force."""
        rules = self._records.policies.rules
        if rules is not self._book_of:
            self._book, self._book_of = QueueBook(rules), rules
        return self._book

    def _accept(
        self, changes: Changes, caller: Caller, request: JobRequest, client_id: str | None, body_hash: str
    ) -> _Accepted:
        """Everything but the tasks' own rows. A known client id gives the tasks that its first use did not get to write: mostly none."""
        first = self._first_use(caller, client_id, body_hash)
        if first is not None and all(job in self._records.jobs for job in first.jobs):
            return _Accepted(Submitted(jobs=first.jobs, name=first.name, repeated=True), ())
        self._retention.refuse_if_full()
        check_limits(len(request.array) or 1, len(self._records.open_jobs), self._limits)
        spec, job = self.prepare(caller, request)
        _keep_spec(self._records, changes, job, spec)
        job = msgspec.structs.replace(job, client_id=client_id)
        ids = first.jobs if first else self._new_ids(job, request.array)
        tasks = _unwritten(self._records, job, request.array, ids)
        who = f"user:{caller.name}"
        self._scribe.act(changes, who, f"submit {job.name}", job=ids[0], queue=job.queue, owner=job.owner)
        if client_id is not None and first is None:
            changes.put(ClientKey(caller.name, client_id, body_hash, ids, job.name, job.submitted_at))
        return _Accepted(Submitted(jobs=ids, name=job.name, repeated=first is not None), tasks)

    def _part(self, caller: Caller, tasks: Sequence[Job]) -> Changes:
        changes = Changes()
        self._write(changes, caller, tasks)
        return changes

    def _write(self, changes: Changes, caller: Caller, tasks: Sequence[Job]) -> None:
        for task in tasks:
            text = f"submitted by {caller.name} to queue {task.queue}"
            changes.put(task, self._scribe.event(task, "submit", text))

    def _new_ids(self, job: Job, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._scribe.ids.new("job") for _ in indices) or (job.id,)

    def _first_use(self, caller: Caller, client_id: str | None, body_hash: str) -> ClientKey | None:
        first = self._records.client_keys.get(f"{caller.name}/{client_id}") if client_id is not None else None
        if first is not None and first.body_hash != body_hash:
            raise ClientIdReused(
                f"client id {client_id!r} was used for another job ({first.name}, {first.jobs[0]})",
                remedy="use a new client id",
            )
        return first

    def _predecessor(self, caller: Caller, name: str) -> str:
        """A job or array by its id, or the caller's newest of that name: an array's task stands for the whole array."""
        if name in self._records.jobs or name in self._records.arrays:
            return name
        newest = self._records.index.newest(name, caller.name)
        if newest is None:
            raise Invalid(
                f"you have no job {name!r}", field="$.after", remedy="name a job of yours, or its id"
            )
        return newest.array or newest.id

    async def update(self, caller: Caller, job_id: str, patch: JobPatch) -> Job:
        """Change what may be changed; a running job's new limit reaches its site."""

        def compute() -> Changes:
            changes = Changes()
            job = self._open(job_id)
            new, what = patched(job, patch, self._queues(), self._scribe.clock.now())
            changes.put(new, self._scribe.event(new, "update", f"{caller.name} set {what}"))
            placement = self._placement(job)
            if placement is not None:
                check_held(self._records, placement, job, new)
                changes.put(msgspec.structs.replace(placement, max_duration_s=new.max_duration_s))
            self._scribe.act(
                changes, f"user:{caller.name}", f"update {what}", job=job.id, queue=new.queue, owner=job.owner
            )
            return changes

        return await self._change(job_id, compute)

    async def cancel(self, caller: Caller, job_id: str) -> Job:
        """End it. Cancelling what has ended changes nothing."""

        def compute() -> Changes:
            changes = Changes()
            job = self._job(job_id)
            if job.terminal or job.status is JobStatus.CANCELLING:
                return changes
            because = f"cancelled by {caller.name}"
            job = self._scribe.job(
                changes, job, "cancel", because, outcome=Outcome(TerminalReason.CANCELLED, because)
            )
            self._stop(
                changes, job, because, then="released", outcome=Outcome(TerminalReason.CANCELLED, because)
            )
            self._scribe.act(
                changes, f"user:{caller.name}", "cancel", job=job.id, queue=job.queue, owner=job.owner
            )
            return changes

        return await self._change(job_id, compute)

    async def hold(self, caller: Caller, job_id: str) -> Job:
        """Keep it from starting; a running job saves itself, frees its GPUs and keeps its place."""
        return await self._pause(caller, job_id, "hold", f"held by {caller.name}")

    async def requeue(self, caller: Caller, job_id: str) -> Job:
        """Stop it after a checkpoint and let it wait for a place again."""
        return await self._pause(caller, job_id, "requeue", f"requeued by {caller.name}")

    async def release(self, caller: Caller, job_id: str) -> Job:
        """Let a held job wait for its turn again."""

        def compute() -> Changes:
            changes = Changes()
            job = self._job(job_id)
            if not allows(job.status, "release"):
                raise Conflict(
                    f"{job.name} is {job.status}, not held", remedy="only a held job can be released"
                )
            self._scribe.job(changes, job, "release", f"released by {caller.name}", losses=())
            self._scribe.act(
                changes, f"user:{caller.name}", "release", job=job.id, queue=job.queue, owner=job.owner
            )
            return changes

        return await self._change(job_id, compute)

    async def _pause(self, caller: Caller, job_id: str, verb: str, because: str) -> Job:
        def compute() -> Changes:
            changes = Changes()
            job = self._open(job_id)
            if job.status is JobStatus.HELD and verb == "hold":
                return changes
            if verb == "hold" and job.status is JobStatus.PENDING:
                self._scribe.job(changes, job, "hold", because)
            elif allows(job.status, "suspend"):
                job = self._scribe.job(changes, job, "suspend", because, pause_for=verb)
                self._stop(changes, job, because, then="held" if verb == "hold" else "paused")
            else:
                raise Conflict(
                    f"{job.name} is {job.status}: there is nothing to {verb}",
                    remedy=f"only a job that has been placed can be {'held' if verb == 'hold' else 'requeued'} now",
                )
            self._scribe.act(
                changes, f"user:{caller.name}", verb, job=job.id, queue=job.queue, owner=job.owner
            )
            return changes

        return await self._change(job_id, compute)

    def _stop(
        self, changes: Changes, job: Job, because: str, *, then: str, outcome: Outcome | None = None
    ) -> None:
        """Tell the job's site to stop it; where nothing was sent yet, the job moves on at once along `then`."""
        placement = self._placement(job)
        if placement is None:
            if not job.terminal and allows(job.status, then):
                self._scribe.job(changes, job, then, because, outcome=outcome, placement=None)
            return
        sent = self._records.may_run(placement)
        self._scribe.stop(changes, placement, because, sent=sent)
        if not sent:
            self._scribe.job(changes, job, then, because, outcome=outcome, placement=None, pause_for=None)

    def _placement(self, job: Job) -> Placement | None:
        placement = self._records.placements.get(job.placement or "")
        return placement if placement is not None and not placement.ended else None

    def _job(self, job_id: str) -> Job:
        job = self._records.jobs.get(job_id)
        if job is None:
            raise NotFound(f"no job {job_id}")
        return job

    def _open(self, job_id: str) -> Job:
        job = self._job(job_id)
        if job.terminal:
            raise Conflict(f"{job.name} has ended: {job.status}", remedy="submit it again to run it again")
        return job

    async def _change(self, job_id: str, compute: Callable[[], Changes]) -> Job:
        await self._records.transact(compute)
        return self._job(job_id)


def _grouped(requests: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
    """In their order; what is written as one are single jobs that have nothing to do with each other."""
    group: list[Asked] = []
    names: set[str] = set()
    for asked in requests:
        alone = bool(asked.request.after or asked.request.array)
        if group and (alone or len(group) == GROUP or asked.client_id in names):
            yield group
            group, names = [], set()
        if alone:
            yield (asked,)
            continue
        group.append(asked)
        if asked.client_id is not None:
            names.add(asked.client_id)
    if group:
        yield group


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

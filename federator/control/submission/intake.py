"""Intake: what users ask for becomes records, durable before it is acknowledged.

Everything a person does to a job comes through here – submit, update, cancel, hold, release, requeue; to many of them, through `verbs` –
and changes only records; what has to happen at sites follows from them.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from federator.control.record.event_writer import EventWriter
from federator.control.record.holders import OnTheWay
from federator.control.record.records import Changes, Records
from federator.control.submission.acceptance import Acceptance, Accepted, Submission
from federator.control.submission.expansion import Expansion
from federator.control.submission.group_commit import GROUP, Asked, GroupCommit
from federator.control.submission.past_work import PastWork
from federator.control.submission.series import SeriesService
from federator.control.submission.verbs import Verbs
from federator.kernel.errors import Conflict, FederatorError, NotFound
from federator.model.arrays import JobArray
from federator.model.identity import Caller
from federator.model.jobs import Job
from federator.wire.http import JobAction, JobPatch, Submitted, Verb
from federator.wire.jobfile import JobRequest
from federator.wire.steps import StepsRequest

AHEAD = 2
"""Groups of one request that are on their way to the store at once. A commit of somebody else waits for them: with 25 it took 160 ms at p99, with 2 60 ms."""


class Intake:
    """Requests of people, made into records."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        acceptance: Acceptance,
        series: SeriesService,
        past: PastWork,
    ) -> None:
        self._past = past
        self._records = records
        self._event_writer = event_writer
        self.acceptance = acceptance
        self._series = series
        self.verbs = Verbs(records, event_writer, lambda: acceptance.authority)
        self.expansion = Expansion(records, event_writer)
        self._group_commit = GroupCommit(records, acceptance)

    async def submit(
        self, caller: Caller, request: JobRequest, *, client_id: str | None, body_hash: str
    ) -> Submitted:
        """Accept one job, one array, or a series of them. The same client id again gives the first answer. Raises the named refusal otherwise.

        Of an array the first tasks and what is left of it are one transaction; the answer waits until as many of its tasks are jobs as may wait at once.
        """
        if request.repeated is not None:
            return await self._series.submit(caller, request)
        await self._past.recall(caller, client_id)
        if request.after:
            request = await self._past.without_met(caller, request)
        asked = Submission(request, client_id, body_hash)
        folders = await self.acceptance.folders(request.spec.workdir)
        if not request.array:
            return await self._group_commit.submit(Asked(caller, folders, asked))
        return await self._submit_array(Asked(caller, folders, asked))

    async def _submit_array(self, asked: Asked) -> Submitted:
        accepted: list[Accepted] = []
        with OnTheWay(self._records.held_counts) as way:

            def compute() -> Changes:
                way.clear()
                changes = Changes()
                entry = self.acceptance.entry(asked.caller, asked.folders)
                accepted[:] = [self.acceptance.accept(changes, entry, asked.submission)]
                self.acceptance.write(changes, accepted[0])
                way.add(accepted[0].rows)
                return changes

            await self._records.transact(compute)
        if accepted[0].array is not None:
            await self.expansion.fill(accepted[0].array.id)
        return accepted[0].answer

    async def submit_steps(
        self, caller: Caller, asked: StepsRequest, *, client_id: str | None, body_hash: str
    ) -> Submitted:
        """Accept all steps of a pipeline in one transaction, or none; as `submit`, with the client id. Raises the named refusal with the step's field."""
        await self._past.recall(caller, client_id)
        folders = await self.acceptance.folders(*(step.request.spec.workdir for step in asked.steps))
        answers: list[Submitted] = []
        arrays: list[str] = []
        with OnTheWay(self._records.held_counts) as way:

            def compute() -> Changes:
                way.clear()
                changes, entry = Changes(), self.acceptance.entry(caller, folders)
                answer, made = self.acceptance.accept_steps(changes, entry, asked, client_id, body_hash)
                answers[:], arrays[:] = [answer], [each.id for each in made if isinstance(each, JobArray)]
                way.add(tuple(made))
                return changes

            await self._records.transact(compute)
        for array in arrays:
            await self.expansion.fill(array)
        return answers[0]

    async def submit_many(
        self, caller: Caller, requests: Sequence[Submission]
    ) -> list[Submitted | FederatorError]:
        """Accept many; each is accepted or refused by itself, though several are written as one.

        One that must follow others waits for those before it: they may be the ones that it names. Other people's requests have their turn
        after every group, since computing the rows of one takes a millisecond or two.
        """
        answers: list[asyncio.Future[list[Submitted | FederatorError]]] = []
        for group in _grouped(requests):
            if group[0].request.after:
                await asyncio.gather(*answers)
            if len(answers) >= AHEAD:
                await asyncio.wait([answers[-AHEAD]])
            answers.append(asyncio.ensure_future(self._answers(caller, group)))
            await asyncio.sleep(0)
        return [answer for part in await asyncio.gather(*answers) for answer in part]

    async def _answers(self, caller: Caller, group: Sequence[Submission]) -> list[Submitted | FederatorError]:
        for asked in group:
            await self._past.recall(caller, asked.client_id)
        if len(group) == 1:
            request, client_id, body_hash = group[0]
            try:
                return [await self.submit(caller, request, client_id=client_id, body_hash=body_hash)]
            except FederatorError as error:
                return [error]
        folders = await self.acceptance.folders(*(each.request.spec.workdir for each in group))
        return await self._group_commit.write([Asked(caller, folders, each) for each in group])

    async def update(self, caller: Caller, job_id: str, patch: JobPatch) -> Job:
        """Change what may be changed; a running job's new limit reaches its site."""
        return await self.act_on_one(caller, "update", job_id, patch)

    async def cancel(self, caller: Caller, job_id: str) -> Job:
        """End it. Cancelling what has ended changes nothing."""
        try:
            return await self.act_on_one(caller, "cancel", job_id)
        except Conflict:
            if not (job := self._job(job_id)).terminal:
                raise
            return job

    async def act_on_one(self, caller: Caller, verb: Verb, job_id: str, patch: JobPatch | None = None) -> Job:
        """Do it to one. Raises `Conflict` where the verb does not suit it."""
        action = JobAction(verb, (job_id,), patch)

        def compute() -> Changes:
            changes = Changes()
            for refused in self.verbs.write(changes, caller, action, [self._job(job_id)]):
                raise refused
            return changes

        return await self._change(job_id, compute)

    def _job(self, job_id: str) -> Job:
        job = self._records.known_job(job_id)
        if job is None:
            raise NotFound(f"no job {job_id}")
        return job

    async def _change(self, job_id: str, compute: Callable[[], Changes]) -> Job:
        await self._records.transact(compute)
        return self._job(job_id)


def _grouped(requests: Sequence[Submission]) -> Iterator[Sequence[Submission]]:
    """In their order; what is written as one are single jobs that have nothing to do with each other."""
    group: list[Submission] = []
    names: set[str] = set()
    for asked in requests:
        alone = bool(asked.request.after or asked.request.array or asked.request.repeated)
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

"""What a submission may have to do with jobs in the archive: it follows one, or repeats the request that made one."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from federator.control.administration.archive_search import ArchiveSearch
from federator.control.administration.visibility import Visibility
from federator.control.record.records import Records
from federator.control.submission.sources import check_source
from federator.kernel.errors import Invalid
from federator.model.arrays import JobArray, both, size
from federator.model.identity import Caller
from federator.model.jobs import Follows, Job, JobSpec, JobStatus
from federator.wire.jobfile import JobRequest


class PastWork:
    """Asks the archive before a submission is accepted."""

    def __init__(self, records: Records, search: ArchiveSearch, visibility: Visibility) -> None:
        self._records = records
        self._search = search
        self._visibility = visibility

    async def recall(self, caller: Caller, client_id: str | None) -> None:
        """Have at hand what was submitted under that client id."""
        if client_id is not None and self._search.there_are:
            await self._search.archived.recall_client(f"{caller.name}/{client_id}")

    async def without_met(self, caller: Caller, request: JobRequest) -> JobRequest:
        """The request without what it must follow that is in the archive and has come to that. Raises `Invalid` for what has not."""
        if not self._search.there_are:
            return request
        left: list[tuple[str, Follows]] = []
        ids: dict[str, str] = {}
        how = request.after_how or (Follows.OK,) * len(request.after)
        for name, wanted in zip(request.after, how, strict=True):
            first = None if self._in_memory(caller, name) else await self._first(caller, name)
            array = await self._search.array(first, name) if first is not None else None
            if first is None:
                left.append((name, wanted))
            elif not await self._is_met(caller, name, array, wanted, request.array):
                raise Invalid(
                    f"{first.name} has ended, and not so that a job may follow it ({wanted})",
                    field="$.after",
                    remedy="run it again (federator rerun), and name the new one",
                )
            else:
                ids[name] = first.id if first.array is None or name == first.id else first.array
                self._check_sources(caller, request, name, first, array)
        return replace(
            request,
            spec=_reading(request.spec, ids),
            after=tuple(name for name, _ in left),
            after_how=tuple(wanted for _, wanted in left) if request.after_how else (),
        )

    def _check_sources(
        self, caller: Caller, request: JobRequest, name: str, first: Job, array: JobArray | None
    ) -> None:
        """Raise what is wrong with reading the outputs of that job, where the request does."""
        for source in request.spec.inputs_from or ():
            if source.job == name:
                check_source(self._records, self._visibility.authority.now, caller, source, first, array)

    def _in_memory(self, caller: Caller, name: str) -> bool:
        records = self._records
        return (
            name in records.jobs
            or name in records.arrays
            or records.index.newest(name, caller.name) is not None
        )

    async def _first(self, caller: Caller, name: str) -> Job | None:
        job = await self._search.named(self._visibility.of(caller), caller.name, name)
        return job if job is not None and (job.owner == caller.name or name in {job.id, job.array}) else None

    async def _is_met(
        self, caller: Caller, name: str, array: JobArray | None, how: Follows, indices: Sequence[int]
    ) -> bool:
        """Of an array, by what is kept of it as one: the archive has no job for a task that was cancelled before it became one."""
        if array is None or array.archived is None:
            return _met(
                how, await self._search.selected(self._visibility.of(caller), caller.name, name), indices
            )
        if how is Follows.EACH:
            there = array.indices.places(indices)
            failed = (array.cancelled, *array.archived.ended.values())
            return 0 < len(indices) == size(there) and not any(both(there, spans) for spans in failed)
        return bool(how.met(map(JobStatus, array.archived.tasks)))


def _reading(spec: JobSpec, ids: Mapping[str, str]) -> JobSpec:
    """The spec with these ids in place of the names of jobs whose outputs it reads."""
    if not spec.inputs_from:
        return spec
    sources = tuple(replace(each, job=ids.get(each.job, each.job)) for each in spec.inputs_from)
    return replace(spec, inputs_from=sources)


def _met(how: Follows, before: Sequence[Job], indices: Sequence[int]) -> bool:
    if how is Follows.EACH:
        ended = {job.array_index: job for job in before}
        before = [ended[index] for index in indices if index in ended]
        if not indices or len(before) < len(indices):
            return False
    return bool(how.met(job.status for job in before))

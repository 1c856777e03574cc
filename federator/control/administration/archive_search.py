"""Jobs of the archive by what people call them, for who is shown them: the same as is done with those in memory, when nothing is found there."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from federator.control.administration.visibility import Sight
from federator.control.record.archived_jobs import MOST, ArchivedJobs
from federator.kernel.errors import Invalid
from federator.model.archive import ArchivedShare, ArchiveFilter, Column, UsageSum
from federator.model.arrays import NEVER_A_JOB, Archived, Indices, JobArray, Spans
from federator.model.jobs import Job
from federator.wire.addresses import begins_id, may_be_id, read_address

WHOLE_ID = 30
"""Letters of an id; fewer are how one begins."""
MOST_GROUPS = 10_001
"""One more than a report of use has, which refuses them then."""


class _AddedUp(msgspec.Struct):
    """What is asked of an array whose tasks have been added up."""

    indices: str
    tasks: dict[str, int]
    ended: dict[str, str] = {}


class ArchiveSearch:
    """Finds jobs of the archive."""

    def __init__(self, archived: ArchivedJobs) -> None:
        self.archived = archived

    @property
    def there_are(self) -> bool:
        """Whether there is anything to find."""
        return bool(self.archived.files())

    def shown(self, sight: Sight, where: ArchiveFilter) -> ArchiveFilter | None:
        """What of it somebody is shown; None: nothing."""
        if sight.everything:
            return where
        kinds = {
            (share.owner, share.queue, share.team) for file in self.archived.files() for share in file.shares
        }
        seen = tuple(sorted(each for each in kinds if sight.standing(each[0], each[1], each[2])))
        if len(seen) == len(kinds):
            return where
        return replace(where, shown=seen, sites=sight.sites) if seen or sight.sites else None

    def count(self, sight: Sight) -> int:
        """How many jobs of it somebody is shown, without those only at their sites."""
        return sum(
            share.jobs
            for file in self.archived.files()
            for share in file.shares
            if sight.standing(share.owner, share.queue, share.team)
        )

    async def usage(
        self, where: ArchiveFilter, by: Sequence[Column], counts: Callable[[ArchivedShare], bool]
    ) -> list[UsageSum]:
        """Jobs of those who count, added up by some keys: as the archive is when this begins."""
        shares = [share for file in self.archived.files() for share in file.shares]
        counted = tuple({(share.owner, share.queue, share.team) for share in shares if counts(share)})
        parts = self.archived.parts() if counted else []
        return await self.archived.usage(parts, replace(where, shown=counted), by, MOST_GROUPS)

    async def named(self, sight: Sight, owner: str, text: str) -> Job | None:
        """A job by id, by how its id begins, or by name, or a task as in `sweep[3]`: of a name the newest, that owner's first. Raises `Invalid` for several."""
        if not self.there_are:
            return None
        name, indices = read_address(text)
        if may_be_id(name):
            found = await self._of_id(sight, name, indices)
            if found is not None:
                return found
        where = ArchiveFilter(name=name, indices=tuple(indices[:1]))
        return await self._newest(sight, replace(where, owner=owner)) or await self._newest(sight, where)

    async def selected(self, sight: Sight, owner: str, text: str) -> list[Job]:
        """All jobs that are meant: one, the tasks of an array by its name, or some of them as in `sweep[3-7]`."""
        first = await self.named(sight, owner, text)
        if first is None:
            return []
        name, indices = read_address(text)
        if first.array is None or (not indices and begins_id(name, first.id)):
            return [first]
        tasks = await self.archived.jobs(ArchiveFilter(array=first.array, indices=tuple(indices)))
        if len(tasks) == MOST:
            raise Invalid(
                f"{name} has {MOST} tasks or more in the archive",
                field="JOB",
                remedy=f"name some: {name}[0-999]",
            )
        return list(sight.shown(tasks))

    async def array(self, first: Job, text: str) -> JobArray | None:
        """The array that is meant, or of which tasks are, by what the archive has of it as one: however many tasks it has, and those that never became jobs among them. `first`: what was found by that text. None where no array is meant, or it was kept without that."""
        name, indices = read_address(text)
        if first.array is None or (not indices and begins_id(name, first.id)):
            return None
        _, added = (await self.archived.arrays([first.array])).get(first.array, ("", ""))
        return await asyncio.to_thread(_as_it_ended, first, added) if added else None

    async def _of_id(self, sight: Sight, name: str, indices: Sequence[int]) -> Job | None:
        if len(name) < WHOLE_ID:
            found = await self._some(sight, ArchiveFilter(begins=name), 2)
            if len(found) > 1:
                several = ", ".join(job.id for job in found)
                raise Invalid(
                    f"the ids of several jobs begin with {name}: {several}",
                    field="JOB",
                    remedy="write more of the id",
                )
            return found[0] if found else None
        wheres = [ArchiveFilter(array=name, indices=tuple(indices[:1]))]
        if not indices:
            wheres.insert(0, ArchiveFilter(ids=(name,)))
        for where in wheres:
            if (job := await self._newest(sight, where)) is not None:
                return job
        return None

    async def _newest(self, sight: Sight, where: ArchiveFilter) -> Job | None:
        return next(iter(await self._some(sight, where, 1)), None)

    async def _some(self, sight: Sight, where: ArchiveFilter, limit: int) -> list[Job]:
        shown = self.shown(sight, where)
        return [] if shown is None else await self.archived.jobs(shown, limit=limit, events=True)


def _as_it_ended(task: Job, added: str) -> JobArray:
    """The array of that task, all of which is over, by its tasks added up."""
    of = msgspec.json.decode(added, type=_AddedUp)
    indices, ended = Indices.read(of.indices), dict[str, Spans]()
    for why, which in of.ended.items():
        ended[why] = indices.places(Indices.read(which))
    cancelled = ended.pop(NEVER_A_JOB, ())
    return JobArray(
        id=task.array or "",
        template=replace(task, array_index=None),
        runs=indices.runs,
        window=0,
        cancelled=cancelled,
        archived=Archived(tasks=of.tasks, ended=ended),
    )

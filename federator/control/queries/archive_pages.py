"""Pages of jobs of which some are in memory and some in the archive, as one list."""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

from federator.control.administration.archive_search import ArchiveSearch
from federator.control.administration.visibility import Sight
from federator.control.queries.job_lists import Sorting, Wanted
from federator.control.queries.job_sorting import Key
from federator.model.archive import ArchiveFilter, ArchivePage, FilePart
from federator.model.jobs import TERMINAL


class ArchivePages:
    """What of the archive belongs to a page."""

    def __init__(self, search: ArchiveSearch) -> None:
        self._search = search

    def parts(self) -> Sequence[FilePart]:
        """What counts of the archive at this moment, beside what is in memory at the same moment."""
        return self._search.archived.parts()

    async def page(
        self,
        parts: Sequence[FilePart],
        sight: Sight,
        wanted: Wanted,
        sorting: Sorting,
        *,
        after: Key | None,
        limit: int,
    ) -> tuple[list[Key], int]:
        """A page of what is wanted and shown, and how many there are in all."""
        none = not parts or wanted.pipeline or wanted.at_risk
        where = None if none else self._search.shown(sight, _where(wanted))
        if where is None or (wanted.statuses and not where.statuses):
            return [], 0
        page = ArchivePage(
            order=sorting.name or ("" if sorting.largest else "submitted"),
            largest=sorting.largest,
            after=after,
            limit=limit,
            collapse=wanted.collapse,
        )
        return await self._search.archived.page(parts, where, page)


def one_list(keys: Sequence[Sequence[Key]], sorting: Sorting, limit: int) -> list[Key]:
    """Sorted lists as one. An array that is just moving is in both, and once in this."""

    def once() -> Iterator[Key]:
        seen: set[str] = set()
        for key in merge(*keys, reverse=sorting.largest):
            if key[1] not in seen:
                seen.add(key[1])
                yield key

    return list(islice(once(), limit))


def _where(wanted: Wanted) -> ArchiveFilter:
    return ArchiveFilter(
        owner=wanted.owner,
        queue=wanted.queue,
        statuses=tuple(sorted(str(each) for each in wanted.statuses if each in TERMINAL)),
        name=wanted.name,
        text=wanted.text.lower(),
        site=wanted.site,
        reason=wanted.reason,
        since_at=wanted.since_at,
        until_at=wanted.until_at,
        array=wanted.array,
        series=wanted.series,
        labels=tuple(f"{key}={value}" for key, value in wanted.labels.items()),
    )

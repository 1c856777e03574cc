"""What agents fetch for a placement that reads the outputs of other jobs: which archives these are, and each of them.

The owner's right to read them was looked at when the job was submitted; an agent reaches what an open placement of its own member names, and nothing else.
"""

import asyncio

from aiohttp import web

from federator.api.agents import own_placement
from federator.api.exchange import Call
from federator.api.files import GZIP, by_rank
from federator.control.submission.sources import MOST_TASKS
from federator.kernel.errors import NotFound, TooLarge
from federator.model.archive import ArchiveFilter
from federator.model.jobs import InputFrom, Job
from federator.model.placements import Placement
from federator.wire.link import OutputArchive, PlacementInputs

MOST_ARCHIVES = 20_000
"""Of one placement: an answer of some MiB."""


async def found(call: Call) -> PlacementInputs:
    """Of each of the placement's `inputs_from` the archives, of the newest attempt of each job that has collected any."""
    placement = own_placement(call)
    found = tuple([await _archives(call, placement, each) for each in _sources(call, placement)])
    if sum(map(len, found)) > MOST_ARCHIVES:
        raise TooLarge(
            f"its inputs are over {MOST_ARCHIVES} archives",
            remedy="have a job collect them into fewer, and read that one's outputs",
        )
    return PlacementInputs(found)


async def archive(call: Call) -> web.StreamResponse:
    """One of them."""
    wanted, digest = call.path("job"), call.path("hash")
    names = {each.job for each in _sources(call, own_placement(call))}
    job = await _known(call, wanted)
    outputs = call.core.records.known_outputs(wanted)
    reads = job is not None and bool(names & {job.id, job.array})
    if not reads or outputs is None or all(part.digest != digest for part in outputs.parts):
        raise NotFound("this placement reads no such outputs")
    file = await asyncio.to_thread(call.core.blobs.open, digest)
    if file is None:
        raise NotFound(f"the outputs of {wanted} are no longer kept", remedy="run it again (federator rerun)")
    return await call.send(file, GZIP)


def _sources(call: Call, placement: Placement) -> tuple[InputFrom, ...]:
    return call.core.records.spec(placement.spec_hash).inputs_from or ()


async def _archives(call: Call, placement: Placement, source: InputFrom) -> tuple[OutputArchive, ...]:
    """Those of one input. Raises `NotFound` where there are none."""
    records, found, names = call.core.records, list[OutputArchive](), source.job
    for job in await _jobs(call, placement, source):
        names = f"{job.name} ({source.job})" if not source.each else f"{job.label} ({job.id})"
        below = str(job.array_index) if job.array == source.job and not source.each else ""
        outputs = records.known_outputs(job.id)
        if outputs is not None:
            attempt = records.known_placement(outputs.placement)
            parts = by_rank(outputs.parts, attempt.members if attempt is not None else ())
            found += [OutputArchive(job.id, job.label, part.digest, part.size_bytes, below) for part in parts]
    if not found:
        raise NotFound(
            f"{names} has left no outputs",
            remedy="have it write files that its outputs match, run it again and submit this job again",
        )
    return tuple(found)


async def _jobs(call: Call, placement: Placement, source: InputFrom) -> list[Job]:
    """The jobs whose outputs are read: one, or tasks of an array in the order of their indices."""
    records = call.core.records
    if source.job not in records.arrays and (job := await _known(call, source.job)) is not None:
        return [job]
    reader = records.known_job(placement.job)
    index = reader.array_index if reader is not None and source.each else None
    only = () if index is None else (index,)
    where = ArchiveFilter(array=source.job, indices=only)
    archived = await call.core.views.search.archived.jobs(where, limit=MOST_TASKS + 1)
    tasks = {job.id: job for job in (*archived, *records.arrays.get(source.job, {}).values())}
    if only == () and len(tasks) > MOST_TASKS:
        raise TooLarge(
            f"{source.job} has over {MOST_TASKS} tasks; the outputs of so many are not read as a whole",
            remedy="follow each task with one of an array of your own: after: {each: …}",
        )
    wanted = (job for job in tasks.values() if index is None or job.array_index == index)
    return sorted(wanted, key=lambda job: job.array_index or 0)


async def _known(call: Call, name: str) -> Job | None:
    """A job by its id, also one of the archive."""
    known = call.core.records.known_job(name)
    if known is not None:
        return known
    return next(iter(await call.core.views.search.archived.jobs(ArchiveFilter(ids=(name,)), limit=1)), None)

"""The verbs about jobs: submit, look, change, follow, fetch."""

import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from federator.client.progress import Step, Tell
from federator.client.streams import follow_log, follow_stream, log_parts
from federator.client.transport import Transport, in_query
from federator.kernel.errors import Invalid, NotFound
from federator.model.events import Event
from federator.model.jobs import JobStatus
from federator.model.plans import Explanation
from federator.wire import fields
from federator.wire.addresses import begins_id, read_address
from federator.wire.http import (
    ActedOn,
    ArrayDetail,
    ForecastMove,
    GpuCurve,
    JobAction,
    JobDetail,
    JobPage,
    JobPatch,
    JobRow,
    OutputList,
    Preview,
    Rerun,
    SubmitResult,
    Submitted,
    Verb,
)
from federator.wire.jsontext import Reader
from federator.wire.log_times import LogPart

if TYPE_CHECKING:
    from federator.client.workdir import Packed

PAGE = 500
BATCH = 1000
WORKDIR_MIB = 512
"""How much of a folder goes along with a job, packed."""
FIRST_LOOK_S, POLL_S = 0.02, 0.5
_event: Reader[Event] = Reader(Event)
_results: Reader[SubmitResult] = Reader(SubmitResult)
JobFile = Mapping[str, object]
"""A job file as decoded YAML or JSON."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list; what is not set admits all. `label` is `key=value`."""

    mine: bool = False
    owner: str | None = None
    queue: str | None = None
    status: str | None = None
    """One status, or several with commas between."""
    name: str | None = None
    text: str | None = None
    """What the name has somewhere, or the id begins with."""
    reason: str | None = None
    """The kind of the reason why it waits, or is as it is."""
    at_risk: bool = False
    """Not over, and by the newest plan not done by its deadline."""
    since: float | None = None
    """Submitted at that time or after it (seconds since the epoch),"""
    until: float | None = None
    """and before this one."""
    site: str | None = None
    array: str | None = None
    series: str | None = None
    pipeline: str | None = None
    """By name, of the newest, or by id."""
    label: str | None = None
    collapse: bool = False
    """An array as one line."""
    sort: str | None = None
    """By what: `deadline`, or `-spent` for the largest first; see `JobOrder`. None: the newest first."""

    def query(self) -> dict[str, str]:
        """As the query of a request."""
        return in_query(msgspec.structs.asdict(self))


class JobVerbs:
    """What users do with jobs. A job is named by its id, or by its name: then the newest of that name, the caller's own first."""

    transport: Transport
    progress: Tell | None

    async def submit(self, job: JobFile | str, *, workdir: Path | str | None = None) -> Submitted:
        """Submit a job file (decoded, or YAML text); durable when this returns.

        `workdir` is packed and uploaded, unless the dispatcher has it already. Repeated while the dispatcher restarts: the
        client id, made up where the file has none, sees to it that the job is there once.
        """
        document = await self._prepared(job, workdir)
        key = str(document.get("client_id") or secrets.token_hex(16))
        headers = {"Idempotency-Key": key}
        return await self.transport.call("POST", "/v1/jobs", Submitted, sends=document, headers=headers)

    async def submit_many(self, jobs: Iterable[JobFile]) -> AsyncIterator[SubmitResult]:
        """Submit job files as NDJSON, in batches; one result per job in their order, `line` counting from 1 over all of them."""
        first, batch = 0, []
        for job in jobs:
            # A series is known by its name.
            key = {} if "every" in job else {"client_id": secrets.token_hex(16)}
            batch.append({**key, **job})
            if len(batch) == BATCH:
                for result in await self._batch(batch, first):
                    yield result
                first, batch = first + len(batch), []
        for result in await self._batch(batch, first) if batch else ():
            yield result

    async def _batch(self, batch: list[dict[str, object]], first: int) -> list[SubmitResult]:
        body = b"".join(json.dumps(job).encode() + b"\n" for job in batch)

        async def once() -> list[SubmitResult]:
            headers = {"Content-Type": "application/x-ndjson"}
            async with self.transport.open("POST", "/v1/jobs", body=body, headers=headers) as response:
                return _results.decode_lines(await response.read())

        results = await self.transport.patiently(once)
        return [msgspec.structs.replace(result, line=first + at) for at, result in enumerate(results, 1)]

    async def preview(self, job: JobFile | str) -> Preview:
        """What would become of this job file now. Nothing is stored; its folder does not matter."""
        document = {key: value for key, value in read_job_mapping(job).items() if key != "workdir"}
        return await self.transport.call("POST", "/v1/preview", Preview, sends=document)

    async def upload(self, folder: Path) -> "Packed":
        """Pack a folder and see to it that the dispatcher has it; answers what it is called there."""
        from tempfile import TemporaryDirectory

        from federator.client.workdir import pack

        with TemporaryDirectory(prefix="federator-") as scratch:
            archive = Path(scratch) / "workdir.tar.gz"
            packed = await self.transport.offload(
                pack,
                folder,
                archive,
                limit_mib=WORKDIR_MIB,
                progress=partial(self._tell, "packing"),
            )
            path = f"/v1/blobs/{packed.hash}"
            try:
                await self.transport.call("HEAD", path, type(None))
            except NotFound:
                await self.transport.put_file(path, archive, packed.size_bytes, self.progress)
        return packed

    def _tell(self, what: str, done: int = 0, total: int = 0) -> None:
        if self.progress is not None:
            self.progress(Step(what, done, total))

    async def _prepared(self, job: JobFile | str, workdir: Path | str | None) -> dict[str, object]:
        document = dict(read_job_mapping(job))
        if workdir is not None:
            from federator.wire.jobfile import BLOB_PREFIX

            document["workdir"] = BLOB_PREFIX + (await self.upload(Path(workdir))).hash
        return document

    async def jobs(
        self, which: JobFilter | None = None, *, after: str | None = None, limit: int = PAGE
    ) -> JobPage:
        """One page of jobs in the order of the filter; `next_after` of the answer is the next call's `after`."""
        query = {**(which or JobFilter()).query(), "limit": limit, "after": after or None}
        return await self.transport.call("GET", "/v1/jobs", JobPage, query=query)

    async def all_jobs(self, which: JobFilter | None = None) -> AsyncIterator[JobRow]:
        """All jobs that pass the filter, page after page."""
        after: str | None = None
        while True:
            page = await self.jobs(which, after=after)
            for row in page.jobs:
                yield row
            after = page.next_after
            if not after:
                return

    async def job(self, job: str) -> JobDetail:
        """The record, the spec, and where it is."""
        return await self.transport.call("GET", _job(job), JobDetail)

    async def array(self, job: str) -> ArrayDetail:
        """The tasks of an array, added up; named by its id or name. Raises `NotFound` for what is no array."""
        return await self.transport.call("GET", _job(job, "/array"), ArrayDetail)

    async def tasks(self, job: str) -> list[str]:
        """The ids to wait for: all tasks of an array that is named by its name, those of `sweep[3-7]`, else the one job."""
        name, indices = read_address(job)
        if len(indices) > 1:
            return [(await self.job(f"{name}[{index}]")).job.id for index in indices]
        found = (await self.job(job)).job
        if found.array is None or indices or begins_id(job, found.id):
            return [found.id]
        return sorted([row.id async for row in self.all_jobs(JobFilter(array=found.array))])

    async def steps(self, pipeline: str) -> list[JobRow]:
        """The steps of a pipeline by its name (of the newest) or id, in their order; an array is one line. Raises `NotFound`."""
        found = self.all_jobs(JobFilter(pipeline=pipeline, collapse=True))
        return sorted([row async for row in found], key=lambda row: row.id)

    async def preview_change(self, job: str, patch: JobPatch) -> Preview:
        """What would become of a job that waits, if it were changed so. Nothing is changed."""
        return await self.transport.call("POST", _job(job, "/preview"), Preview, sends=patch)

    async def cancel(self, job: str) -> JobDetail:
        """Cancel; a running job is CANCELLING until its site confirms."""
        return await self.transport.call("DELETE", _job(job), JobDetail)

    async def act(self, verb: Verb, jobs: Sequence[str], patch: JobPatch | None = None) -> list[ActedOn]:
        """Do it to many in one request: ids or names, an array's for all its tasks, or some of them as in `sweep[3-7]`; `patch` goes with `update`. Those that the verb does not suit are left as they are."""
        sends = JobAction(verb, tuple(jobs), patch)
        return await self.transport.call("POST", "/v1/jobs/actions", list[ActedOn], sends=sends)

    async def rerun(self, job: str, *, failed: bool = False) -> Submitted:
        """Submit again what has ended, as it was: a job, an array, or tasks as in `sweep[3-7]`; with `failed` those that failed."""
        sends, headers = Rerun(job, failed), {"Idempotency-Key": secrets.token_hex(16)}
        return await self.transport.call("POST", "/v1/jobs/rerun", Submitted, sends=sends, headers=headers)

    async def explain(self, job: str) -> Explanation:
        """Why it waits, and why not elsewhere; or why it ran where it did."""
        return await self.transport.call("GET", _job(job, "/explain"), Explanation)

    async def gpus(self, job: str) -> list[GpuCurve]:
        """Use over time of each GPU of its newest attempt, as far as its site measures it."""
        return await self.transport.call("GET", _job(job, "/gpus"), list[GpuCurve])

    async def forecasts(self, job: str, *, since: float = 0.0) -> list[ForecastMove]:
        """What moved its forecast since then (seconds since the epoch), oldest first."""
        query = {"since": since}
        return await self.transport.call("GET", _job(job, "/forecasts"), list[ForecastMove], query=query)

    async def events(self, job: str, *, after: str = "") -> AsyncIterator[Event]:
        """All that happens to a job from `after` (an event's id) on, until it is terminal."""
        async for event in follow_stream(self.transport, _job(job, "/events"), {}, _event, after=after):
            yield event

    async def history(self, job: str) -> list[Event]:
        """All that has happened to a job so far."""
        return await self.transport.call("GET", _job(job, "/events"), list[Event], query={"follow": "false"})

    async def wait(self, job: str, *, running: bool = False) -> JobDetail:
        """Return when the job has ended, or, with `running`, as soon as it runs. Bound it with `asyncio.timeout`."""
        last, until = "", {JobStatus.RUNNING} if running else set[str]()
        pauses = _pauses()
        while True:
            detail = await self.job(job)
            if detail.job.terminal or detail.job.status in until:
                return detail
            self._tell(f"{detail.job.label} {detail.job.status}")
            async for event in self.events(detail.job.id, after=last):
                last = event.id
                self._tell(f"{detail.job.label} {event.status}")
                if event.status in until:
                    break
            await self.transport.sleep(next(pauses))

    async def wait_all(self, array: str, *, running: bool = False) -> ArrayDetail:
        """Return when all tasks of an array have ended, or, with `running`, as soon as one of them runs; named by its id or name."""
        pauses = _pauses()
        while True:
            detail = await self.array(array)
            if detail.finished_at is not None or (running and JobStatus.RUNNING in detail.tasks):
                return detail
            await self.transport.sleep(next(pauses))

    async def logs(
        self,
        job: str,
        *,
        node: int = 0,
        tail: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
        since: float = 0.0,
    ) -> AsyncIterator[bytes]:
        """What a node has written; with `follow`, until the job has ended, over all its attempts from the present one on.

        `attempt` counts from 1, and then only that one is read. `since`: what was written from then on, in seconds since the epoch.
        """
        parts = self.log_parts(job, node=node, tail=tail, follow=follow, attempt=attempt, since=since)
        async for part in parts:
            yield part.data

    async def log_parts(
        self,
        job: str,
        *,
        node: int = 0,
        tail: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
        since: float = 0.0,
        times: bool = False,
    ) -> AsyncIterator[LogPart]:
        """The same in parts; with `times`, each with when it was written, as far as that was recorded."""
        query = in_query({"node": node, "times": times, "since": since or None, "attempt": attempt})
        seen, pauses = "", _pauses()
        while follow:
            record = (await self.job(job)).job
            if attempt is not None or (record.placement and record.placement != seen):
                asked = query | {"follow": "true"}
                if attempt is None:
                    seen = record.placement or ""
                    asked["placement"] = seen
                async for part in follow_log(self.transport, _job(record.id, "/logs"), asked, tail=tail):
                    yield part
                if attempt is not None:
                    return
                tail = None
            elif record.terminal:
                break
            else:
                await self.transport.sleep(next(pauses))
        if not seen:
            async for part in self._log_so_far(job, query, tail):
                yield part

    async def _log_so_far(self, job: str, query: dict[str, str], tail: int | None) -> AsyncIterator[LogPart]:
        asked = query | in_query({"tail": tail})
        path = _job(job, "/logs")
        async with self.transport.open("GET", path, query=asked, headers={"Accept": "*/*"}) as response:
            async for part in log_parts(response, 0):
                yield part

    async def download_all(self, array: ArrayDetail, into: Path) -> list[Path]:
        """Fetch the outputs of all tasks of an array that have any, each below a folder with its index, a few tasks at once; answers the files written."""
        indices = fields.indices(array.outputs, "outputs") if array.outputs else ()
        fetched = 0

        async def fetch(index: int) -> list[Path]:
            nonlocal fetched
            files = await self._fetched(f"{array.id}[{index}]", into / str(index), lambda *_: None)
            fetched += 1
            self._tell(f"downloaded {fetched} of {len(indices)} tasks")
            return files

        return [file for files in await self.transport.each(fetch, indices) for file in files]

    async def outputs(self, job: str) -> OutputList:
        """Which files were collected of a job, with their sizes. Raises `NotFound` where there are none."""
        return await self.transport.call("GET", _job(job, "/outputs/files"), OutputList)

    async def download(self, job: str, into: Path | str) -> list[Path]:
        """Fetch the job's outputs and unpack them below `into`; answers the files written. The archive is on the same disk meanwhile, in a file without a name. Raises `TooLarge` where there is no room for it."""
        return await self._fetched(job, Path(into), partial(self._tell, "downloading"))

    async def _fetched(self, job: str, into: Path, tell: Callable[[int, int], None]) -> list[Path]:
        """Outputs as `download` fetches them; `tell` hears of how many bytes so many have come."""
        from tempfile import TemporaryFile

        from federator.client.workdir import nearest_folder, refuse_without_room, unpack

        folder = nearest_folder(into)
        with TemporaryFile(prefix=".federator-download-", dir=folder) as archive:

            async def once() -> None:
                archive.seek(0)
                archive.truncate()
                headers = {"Accept": "application/gzip"}
                async with self.transport.open("GET", _job(job, "/outputs"), headers=headers) as response:
                    total = int(response.header("Content-Length") or 0)
                    refuse_without_room(folder, total)
                    async for chunk in response.chunks():
                        archive.write(chunk)
                        tell(archive.tell(), total)

            await self.transport.patiently(once)
            archive.seek(0)
            return await self.transport.offload(unpack, archive, into)


def read_job_mapping(job: JobFile | str) -> JobFile:
    """A job file as a mapping; text is read as YAML. Raises `Invalid`."""
    if isinstance(job, str):
        from federator.wire.yamltext import read_document

        document = read_document(job).value
    else:
        document = job
    if not isinstance(document, Mapping):
        raise Invalid("a job file is a mapping", field="$", remedy="write for example 'run: python train.py'")
    return document


def _pauses() -> Iterator[float]:
    """Seconds between looks at what may change at any moment: short ones first, for much has changed by the second look."""
    pause_s = FIRST_LOOK_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, POLL_S)


def _job(job: str, verb: str = "") -> str:
    return f"/v1/jobs/{quote(job, safe='')}{verb}"

"""Jobs: submit one or thousands, list, show, change, explain, preview."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar, get_args

import msgspec
from aiohttp import web
from msgspec.structs import replace

from federator.api.access import relations
from federator.api.attempts import attempt_rows, refuse_array
from federator.api.exchange import JSON, MIB, NDJSON, YAML, Call, Moment, require_type
from federator.api.filters import refuse_unknown
from federator.api.job_cursors import cursor_of, read_cursor
from federator.api.parser_threads import in_thread
from federator.api.problems import problem_of
from federator.control.queries.ahead import ahead_of
from federator.control.queries.forecast_moves import forecast_moves
from federator.control.queries.job_lists import NEWEST_FIRST, Sorting, Wanted
from federator.control.submission.acceptance import Submission
from federator.kernel.errors import FederatorError, Invalid, NotFound, TooLarge, TooMany
from federator.kernel.ids import content_hash
from federator.model.identity import Scope
from federator.model.jobs import Job, JobStatus
from federator.model.plans import Explanation
from federator.model.rights import MAY_CHANGE, MAY_EXEC, MAY_READ
from federator.wire.addresses import names_array
from federator.wire.http import (
    ArrayDetail,
    ForecastMove,
    GpuCurve,
    JobDetail,
    JobOrder,
    JobPage,
    JobPatch,
    JobRow,
    Preview,
    SubmitResult,
    Submitted,
)
from federator.wire.jobfile import JobRequest, read_in_lines, read_job
from federator.wire.jsontext import decode_json
from federator.wire.steps import StepsRequest, has_steps, read_steps
from federator.wire.yamltext import read_document

CHUNK_LINES = 200
"""Lines that are accepted together: one wait for the disk, and one stretch of the loop in which all their rows are kept."""
STEP_LINES = 20
"""Lines that are read before others have their turn: some 70 µs each."""
JOB_MIB = 1
"""Of one job file, or of one line of many: what is in it is kept with the job."""
_CLIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
ORDERS: dict[str, JobOrder] = {name: name for name in get_args(JobOrder)}
Request = TypeVar("Request")
_canonical = msgspec.json.Encoder(order="deterministic")


class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs to list; all that are given must hold. `status` is a comma list, `label` is KEY=VALUE and may repeat. Times are seconds since the epoch."""

    mine: bool = False
    owner: str = ""
    queue: str = ""
    status: str = ""
    name: str = ""
    text: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """What the name has somewhere, or the id begins with; capitals do not matter."""
    reason: str = ""
    """The kind of the reason why it waits, or is as it is: see Kinds of reasons."""
    at_risk: bool = False
    """Whether only jobs that are not over, and by the newest plan not done by their deadline."""
    since: Moment | None = None
    """Submitted at that time or after it,"""
    until: Moment | None = None
    """and before this one."""
    site: str = ""
    array: str = ""
    series: str = ""
    pipeline: str = ""
    """Its name, of the newest, or its id."""
    collapse: bool = False
    """Whether an array is one line."""
    label: tuple[str, ...] = ()
    sort: str = ""
    """By deadline, ends, finished, gpus, name, owner, priority, queue, reason, site, spent, started, starts, status or submitted, with `-` before it the largest first; left out: the newest first. An array comes where the first of its tasks does."""
    after: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._:-]{1,600}$")] | None = None
    """What the page before this one, in the same order, gave as `next_after`."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


async def submit(call: Call) -> Submitted | web.StreamResponse:
    """Accept one job, durable before it is answered; or, as NDJSON, many."""
    kind = require_type(call.request, JSON, *YAML, NDJSON)
    if kind == NDJSON:
        return await _submit_lines(call)
    request, _, body_hash = await read_sent(call, kind, _read_any)
    client_id = client_id_of(call.request.headers.get("Idempotency-Key"), request)
    if isinstance(request, StepsRequest):
        steps = call.core.intake.submit_steps
        return await steps(call.caller, request, client_id=client_id, body_hash=body_hash)
    return await call.core.intake.submit(call.caller, request, client_id=client_id, body_hash=body_hash)


async def list_jobs(call: Call) -> JobPage:
    """A page of jobs, newest first or in the order that was asked for."""
    query = call.query(JobsQuery)
    if query.mine and query.owner:
        raise Invalid("is given beside mine", field="?owner", remedy="leave out one of them")
    wanted = Wanted(
        owner=call.caller.name if query.mine else query.owner,
        queue=query.queue,
        statuses=frozenset(_statuses(query.status)),
        name=query.name,
        text=query.text,
        site=query.site,
        reason=query.reason,
        at_risk=query.at_risk,
        since_at=query.since,
        until_at=query.until,
        array=query.array,
        series=query.series,
        pipeline=_pipeline(call, query.pipeline),
        collapse=query.collapse,
        labels=_labels(query.label),
    )
    sorting = _sorting(query.sort)
    after = None if query.after is None else read_cursor(query.after, sorting)
    page, last = await call.core.views.page(
        call.caller, wanted, sorting=sorting, after=after, limit=query.limit
    )
    if not page.jobs and after is None:
        refuse_unknown(call, site=query.site, queue=query.queue)
    next_after = None if last is None else cursor_of(last, sorting)
    return replace(page, jobs=_as_theirs(call, page.jobs), next_after=next_after)


def _pipeline(call: Call, name: str) -> str:
    """The id of the pipeline that is meant. Raises `NotFound`."""
    found = call.core.views.pipeline(call.caller, name) if name else ""
    if name and not found:
        raise NotFound(
            f"no pipeline {name}",
            remedy="federator list shows jobs; those of a pipeline are called NAME.STEP",
        )
    return found


def _as_theirs(call: Call, rows: tuple[JobRow, ...]) -> tuple[JobRow, ...]:
    """Lines that say which of them the caller may change."""
    if call.caller.scopes and Scope.CHANGE not in call.caller.scopes:
        return rows
    authority, known = call.core.authority.now, dict[tuple[str, str, str], bool]()
    for row in rows:
        key = (row.owner, row.queue, row.team)
        if key not in known:
            stands = authority.standing(call.caller, owner=row.owner, queue=row.queue, team=row.team)
            known[key] = bool(stands & MAY_CHANGE)
    return tuple(
        replace(row, may_change=True) if known[row.owner, row.queue, row.team] else row for row in rows
    )


async def show(call: Call) -> JobDetail:
    """Everything about one job."""
    detail = call.core.views.detail(call.job, seen_by=call.caller)
    return replace(
        detail,
        series=call.core.series.of_run(call.job),
        attempts=await attempt_rows(call, call.job),
        may=_may(call),
    )


def _may(call: Call) -> tuple[Scope, ...]:
    """What the caller may do with the job, as it stands to it and as its token is limited."""
    stands, scopes = relations(call.core, call.caller, call.job), call.caller.scopes
    lets = {Scope.READ: MAY_READ, Scope.CHANGE: MAY_CHANGE, Scope.EXEC: MAY_EXEC}
    return tuple(scope for scope, who in lets.items() if stands & who and (not scopes or scope in scopes))


async def show_array(call: Call) -> ArrayDetail:
    """The tasks of an array, added up."""
    return await call.core.views.array(call.caller, call.job)


async def update(call: Call) -> JobDetail:
    """Change what may be changed while the job lives."""
    await refuse_array(call, "update")
    patch = await call.body(JobPatch)
    return call.core.views.detail(await call.core.intake.update(call.caller, call.job.id, patch))


async def cancel(call: Call) -> JobDetail:
    """Cancel; the site may take a while to confirm."""
    await refuse_array(call, "cancel")
    return call.core.views.detail(await call.core.intake.cancel(call.caller, call.job.id))


def _explained(call: Call) -> tuple[Job, dict[str, int]]:
    """The job that is named; of an array that is, the task that is told for all, and how many tasks are in each status."""
    living = call.job.array in call.core.records.arrays
    if call.job.array is not None and living and names_array(call.path("id"), call.job):
        return call.core.views.told_for_all(call.job.array)
    return call.job, {}


async def explain(call: Call) -> Explanation:
    """Why it waits, or why it runs where it does, and why not elsewhere; of an array, that of the task that is told for all."""
    core, sight = call.core, call.sight
    job, tasks = _explained(call)
    found = await core.views.explain(job, call.caller, whole_array=bool(tasks))
    ahead = ahead_of(
        core.records,
        core.turn,
        job,
        found,
        finish_at=lambda job: core.views.row(job).expected_finish_at,
        may_see=sight.job,
    )
    return replace(found, name=job.label, tasks=tasks, series=core.series.of_run(job), ahead=ahead)


class ForecastsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`since` in seconds since the epoch."""

    since: Moment = 0.0


async def forecasts(call: Call) -> list[ForecastMove]:
    """What moved the forecast of a job since then."""
    core, since_at = call.core, call.query(ForecastsQuery).since
    job, _ = _explained(call)
    return await forecast_moves(core.records, core.turn, core.decisions, job, since_at, call.sight.job)


async def gpus(call: Call) -> list[GpuCurve]:
    """Use over time of each GPU of a job's newest attempt."""
    return call.core.views.gpu_curves(call.core.views.find_job(call.caller, call.path("id")))


async def preview(call: Call) -> Preview:
    """What would become of this job file; nothing is changed."""
    kind = require_type(call.request, JSON, *YAML)
    request, document, _ = await read_sent(call, kind, read_job)
    found = await call.core.views.preview(call.caller, request)
    return found if kind == JSON else replace(found, file=document)


async def preview_change(call: Call) -> Preview:
    """What would become of a job that waits, if it were changed so; nothing is changed."""
    patch = await call.body(JobPatch)
    return await call.core.views.preview_of(*call.core.intake.verbs.patched(call.caller, call.job, patch))


def _read_any(document: object, *, now: float) -> JobRequest | StepsRequest:
    """A job, or a pipeline."""
    return read_steps(document, now=now) if has_steps(document) else read_job(document, now=now)


async def read_sent(call: Call, kind: str, read_as: Callable[..., Request]) -> tuple[Request, object, str]:
    """What was sent, the same as data, and a hash of it."""
    data = await call.read(JOB_MIB)
    now = call.core.clock.now()
    if kind == JSON:
        value = decode_json(data)
        return read_as(value, now=now), value, hash_of(value)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Invalid("this is not UTF-8", field="$") from None

    def read(text: str) -> tuple[Request, object]:
        document = read_document(text)
        return read_in_lines(document, partial(read_as, now=now)), document.value

    return *await in_thread(read, text), content_hash(data)


async def _submit_lines(call: Call) -> web.StreamResponse:
    """One answer per line, in order.

    Answers are written by a task of their own: a client that sends everything before it reads must not be left waiting for us to read while
    we wait for it. What is held for it meanwhile is bounded by the limit on lines.
    """
    response = await call.stream(NDJSON)
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def write() -> None:
        while data := await answers.get():
            await response.write(data)

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        first, before, earlier = 1, _nothing(group), _nothing(group)
        room = _Room(call.core.settings.limits.batch_jobs)
        try:
            async for lines in _lines(call):
                await earlier
                chunk = _answer_chunk(call, first, lines, before, answers, room)
                earlier, before = before, group.create_task(chunk)
                first += len(lines)
            await before
        except FederatorError as error:
            # The lines before this one are accepted and answered; the rest is not read.
            await before
            answers.put_nowait(msgspec.json.encode(SubmitResult(first, problem=problem_of(error))) + b"\n")
        answers.put_nowait(b"")
    await response.write_eof()
    return response


@dataclass
class _Room:
    """How many more jobs one request may bring: a line may be an array of thousands."""

    left: int

    def take(self, jobs: int) -> None:
        """Raises `TooMany` where they are too many."""
        if jobs > self.left:
            raise TooMany(
                f"only {self.left} more jobs fit into this request (limits.batch_jobs), and this line has {jobs}",
                remedy="send the rest in another request",
            )
        self.left -= jobs


def _nothing(group: asyncio.TaskGroup) -> asyncio.Task[None]:
    """What is before the first chunk."""
    return group.create_task(asyncio.sleep(0))


async def _answer_chunk(
    call: Call,
    first: int,
    lines: list[bytes],
    before: asyncio.Task[None],
    answers: asyncio.Queue[bytes],
    room: "_Room",
) -> None:
    """Read a chunk while the one before it is on its way to the disk, and answer it after that one."""
    results = await _submit_chunk(call, first, lines, before, room)
    await before
    answers.put_nowait(b"".join(msgspec.json.encode(result) + b"\n" for result in results))


async def _lines(call: Call) -> AsyncIterator[list[bytes]]:
    """The body's lines, up to CHUNK_LINES at once. Raises `TooLarge` for a long line, `TooMany` for too many."""
    limits = call.core.settings.limits
    seen, rest = 0, b""
    async for part in call.parts():
        *lines, rest = (rest + part).split(b"\n")
        if max(map(len, (rest, *lines))) > JOB_MIB * MIB:
            raise TooLarge(f"a line is longer than {JOB_MIB} MiB")
        for start in range(0, len(lines), CHUNK_LINES):
            chunk = lines[start : start + CHUNK_LINES]
            seen += len(chunk)
            if seen > limits.batch_jobs:
                raise TooMany(f"over {limits.batch_jobs} lines", remedy="send the rest in another request")
            yield chunk
    if rest:
        yield [rest]


async def _submit_chunk(
    call: Call, first: int, lines: list[bytes], before: Awaitable[None], room: "_Room"
) -> list[SubmitResult]:
    now = call.core.clock.now()
    results: dict[int, SubmitResult] = {}
    requests: list[Submission] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, first):
        if (number - first) % STEP_LINES == 0:
            await asyncio.sleep(0)
        if not line.strip():
            continue
        try:
            document = decode_json(line)
            request = read_job(document, now=now)
            room.take(min(len(request.array), call.core.settings.limits.array_waiting) or 1)
            requests.append(Submission(request, client_id_of(None, request), hash_of(document)))
            numbers.append(number)
        except FederatorError as error:
            results[number] = SubmitResult(number, problem=problem_of(error))
    if any(asked.request.after for asked in requests):
        await before  # it may have what they name
    answers = await call.core.intake.submit_many(call.caller, requests) if requests else []
    for number, answer in zip(numbers, answers, strict=True):
        if isinstance(answer, Submitted):
            results[number] = SubmitResult(number, submitted=answer)
        else:
            results[number] = SubmitResult(number, problem=problem_of(answer))
    return [results[number] for number in sorted(results)]


def hash_of(document: object) -> str:
    """Of what was sent: the same for documents that mean the same, whatever the order of their keys."""
    return content_hash(_canonical.encode(document))


def client_id_of(header: str | None, request: JobRequest | StepsRequest) -> str | None:
    """Under which it is submitted, by its header or the job itself. Raises `Invalid`."""
    if header is not None and request.client_id not in (None, header):
        raise Invalid(
            "differs from the header Idempotency-Key", field="$.client_id", remedy="send one of them"
        )
    client_id = header if header is not None else request.client_id
    if client_id is not None and not _CLIENT_ID.fullmatch(client_id):
        field = "Idempotency-Key" if header is not None else "$.client_id"
        raise Invalid("is not a client id", field=field, remedy="up to 128 of letters, digits and . _ : @ -")
    return client_id


def _sorting(text: str) -> Sorting:
    """By what, and from which end. Raises `Invalid`."""
    if text in ("", "-submitted"):
        return NEWEST_FIRST
    name = text.removeprefix("-")
    if name not in ORDERS:
        raise Invalid(f"there is no {name[:80]!r}", field="?sort", remedy=f"known: {', '.join(ORDERS)}")
    return Sorting(ORDERS[name], text.startswith("-"))


def _statuses(text: str) -> tuple[JobStatus, ...]:
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    if unknown := [word for word in words if word not in set(JobStatus)]:
        known = ", ".join(JobStatus)
        raise Invalid(f"there is no status {unknown[0][:80]!r}", field="?status", remedy=f"known: {known}")
    return tuple(map(JobStatus, words))


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise Invalid(f"{pair[:80]!r} is not KEY=VALUE", field="?label")
        labels[key] = value
    return labels

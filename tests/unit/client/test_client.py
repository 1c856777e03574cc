"""What the client says, what it makes of the answers, and how it outlives a dispatcher that restarts."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from federator.client import AsyncClient, Client, JobFilter, Verbs, jobs, transport
from federator.client.faults import error_in
from federator.client.workdir import pack
from federator.kernel import errors
from federator.kernel.ids import content_hash
from federator.model.events import Event
from federator.model.jobs import Job, JobSpec, JobStatus, Outcome, TerminalReason
from federator.wire.http import JobDetail, JobPage, JobPatch, JobRow, Problem, SubmitResult, Submitted
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.waiting import PATIENCE_S


def detail(
    status: JobStatus = JobStatus.RUNNING, placement: str | None = "pl-1", **fields: object
) -> JobDetail:
    job = Job(
        id="job-1", name="train", owner="ada", queue="default", status=status, spec_hash="0", submitted_at=0.0,
        placement=placement, outcome=Outcome(TerminalReason.DONE, exit_code=0) if status is JobStatus.SUCCEEDED else None,
    )  # fmt: skip
    return JobDetail(msgspec.structs.replace(job, **fields), JobSpec(name="train"))


def event(number: int, status: str = "RUNNING") -> Event:
    return Event(f"ev-{number}", "job-1", 0.0, "x", status, f"event {number}")


def frame(shown: Event) -> bytes:
    return b"id: " + shown.id.encode() + b"\ndata: " + msgspec.json.encode(shown) + b"\n\n"


async def test_a_submission_carries_the_token_and_a_client_id_made_up_once(
    client: Verbs, fake: FakeDispatcher
) -> None:
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    fake.drops = 2
    assert (await client.submit("run: python train.py\n")).jobs == ("job-1",)
    (heard,) = fake.of("POST /v1/jobs")
    assert heard.headers["Authorization"] == "Bearer secret"
    assert len(heard.headers["Idempotency-Key"]) == 32
    assert json.loads(heard.body) == {"run": "python train.py"}


async def test_a_repeated_submission_has_the_same_client_id(client: Verbs, fake: FakeDispatcher) -> None:
    """Or a dispatcher that died between storing and answering would have the job twice."""
    fake.answer("POST /v1/jobs", None, 503)
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    await client.submit({"run": "x"})
    first, second = fake.of("POST /v1/jobs")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


async def test_a_client_id_of_the_file_is_the_key(client: Verbs, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    await client.submit({"run": "x", "client_id": "nightly"})
    assert fake.of("POST /v1/jobs")[0].headers["Idempotency-Key"] == "nightly"


def code(tmp_path: Path) -> tuple[Path, str]:
    """A folder, and what it is called at the dispatcher."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    return folder, pack(folder, tmp_path / "archive", limit_mib=1).hash


async def test_a_folder_is_uploaded_once_and_named_by_its_hash(
    client: Verbs, fake: FakeDispatcher, tmp_path: Path
) -> None:
    folder, digest = code(tmp_path)
    fake.answer(f"PUT /v1/blobs/{digest}", None, 201)
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    await client.submit({"run": "x", "workdir": "."}, workdir=folder)
    assert [heard.method for heard in fake.heard] == ["HEAD", "PUT", "POST"]
    assert content_hash(fake.heard[1].body) == digest
    assert json.loads(fake.heard[2].body)["workdir"] == f"sha256:{digest}"


async def test_a_folder_that_is_there_is_not_sent_again(
    client: Verbs, fake: FakeDispatcher, tmp_path: Path
) -> None:
    folder, digest = code(tmp_path)
    fake.answer(f"HEAD /v1/blobs/{digest}")
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    await client.submit({"run": "x"}, workdir=folder)
    assert [heard.method for heard in fake.heard] == ["HEAD", "POST"]


async def test_a_large_folder_goes_on_where_its_upload_was_cut(
    client: Verbs, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RESUMED_BYTES", 1)
    folder, digest = code(tmp_path)
    come = bytearray()

    async def put(request: web.Request) -> web.Response:
        body, begun = await request.read(), len(come)
        come.extend((body if begun else body[: len(body) // 2])[begun - int(request.query["offset"]) :])
        if len(come) != begun and not begun:
            fake.drops = 1  # aiohttp sends it once more by itself
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"length": len(come)}, status=201)

    fake.handle(f"PUT /v1/blobs/{digest}", put)
    assert (await client.upload(folder)).hash == digest
    assert content_hash(bytes(come)) == digest
    assert len(fake.heard[-1].body) == len(come) - len(come) // 2
    assert fake.heard[-1].query == {"size": str(len(come)), "offset": str(len(come) // 2)}


async def test_a_large_folder_goes_whole_to_an_older_dispatcher(
    client: Verbs, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RESUMED_BYTES", 1)
    folder, digest = code(tmp_path)
    problem = Problem("about:blank", "Bad Request", 400, "there is no ?offset", "invalid")
    fake.answer(f"PUT /v1/blobs/{digest}", problem, 400)
    fake.answer(f"PUT /v1/blobs/{digest}", None, 201)
    assert (await client.upload(folder)).hash == digest
    assert content_hash(fake.heard[-1].body) == digest


async def test_many_jobs_go_as_lines_and_each_has_its_result(client: Verbs, fake: FakeDispatcher) -> None:
    problem = Problem("about:blank", "Bad Request", 400, "no", "invalid")
    lines = [SubmitResult(1, Submitted(("job-1",), "a")), SubmitResult(2, problem=problem)]
    fake.answer("POST /v1/jobs", b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    results = [result async for result in client.submit_many([{"run": "a"}, {"run": "b"}])]
    assert [(result.line, result.problem is None) for result in results] == [(1, True), (2, False)]
    sent = [json.loads(line) for line in fake.of("POST /v1/jobs")[0].body.splitlines()]
    assert [job["run"] for job in sent] == ["a", "b"]
    assert sent[0]["client_id"] != sent[1]["client_id"]


@pytest.mark.parametrize(
    "code",
    [errors.NotSupported.code, errors.Forbidden.code, errors.ClientIdReused.code, errors.NotFound.code],
)
async def test_a_problem_becomes_the_error_that_the_server_raised(
    code: str, client: Verbs, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/sites", Problem("about:blank", "x", 422, "that is wrong", code, "$.x", "do y"), 422)
    with pytest.raises(errors.FederatorError, match=r"\$\.x: that is wrong \(do y\)") as caught:
        await client.sites()
    assert type(caught.value).code == code


def test_an_answer_that_is_no_problem_is_told_by_its_status() -> None:
    assert isinstance(error_in(502, b"<html>", "GET /"), errors.Unavailable)
    assert isinstance(error_in(404, b"", "GET /"), errors.NotFound)
    assert isinstance(error_in(418, b"teapot", "GET /"), errors.Permanent)
    assert isinstance(error_in(500, b"", "GET /"), errors.Bug)


async def test_an_answer_of_another_version_is_told(client: Verbs, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/sites", {"sites": []})
    with pytest.raises(errors.Bug, match="same version"):
        await client.sites()


async def test_what_may_not_be_repeated_is_not(client: Verbs, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/policies", None, 503)
    with pytest.raises(errors.Unavailable):
        await client.apply_policies("", "why")
    assert len(fake.heard) == 1


async def test_a_dispatcher_that_stays_away_is_named(fake: FakeDispatcher) -> None:
    async with AsyncClient("http://127.0.0.1:9", patience_s=0.0) as away:
        with pytest.raises(
            errors.Unavailable, match=r"127\.0\.0\.1:9: connection refused \(is `federator serve`"
        ):
            await away.sites()
    async with AsyncClient("not a server", patience_s=0.0) as wrong:
        with pytest.raises(errors.Unavailable, match="not the address of a server"):
            await wrong.sites()


async def test_pages_are_read_to_the_last(client: Verbs, fake: FakeDispatcher) -> None:
    rows = [
        JobRow(
            id=f"job-{n}",
            name="x",
            owner="a",
            queue="q",
            status="PENDING",
            priority=1,
            nodes=1,
            gpus=0,
            models="",
        )
        for n in (1, 2)
    ]
    fake.answer("GET /v1/jobs", JobPage((rows[0],), "cursor", 2))
    fake.answer("GET /v1/jobs", JobPage((rows[1],), None, 2))
    assert [row.id async for row in client.all_jobs(JobFilter(mine=True, label="team=x"))] == [
        "job-1",
        "job-2",
    ]
    first, second = fake.heard
    assert (first.query["mine"], first.query["label"]) == ("true", "team=x")
    assert second.query["after"] == "cursor"


async def test_a_line_of_the_ledger_that_has_no_end_is_refused(client: Verbs, fake: FakeDispatcher) -> None:
    """It was the reader's own error, without a word of what was read."""

    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"{}\n" + b"x" * (2**20 + 1))

    fake.handle("GET /v1/ledger/export", handle)
    lines = client.ledger_parts()
    assert await anext(lines) == b"{}\n"
    with pytest.raises(errors.TooLarge, match="a line"):
        await anext(lines)


async def test_an_update_sends_only_what_is_to_change(client: Verbs, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs/actions", [])
    await client.act("update", ["job-1"], JobPatch(priority=0, deadline="none"))
    patch = {"priority": 0, "deadline": "none"}
    assert json.loads(fake.heard[0].body) == {"verb": "update", "jobs": ["job-1"], "patch": patch}


async def seen_by(client_has: threading.Event) -> None:
    """Break off no sooner than the client has what was sent: what is on its way when a connection breaks may be lost."""
    await asyncio.to_thread(client_has.wait, PATIENCE_S)


async def read(log: AsyncIterator[bytes], client_has: threading.Event) -> bytes:
    """All of it; whoever sends it is told of the first part."""
    parts = []
    async for part in log:
        parts.append(part)
        client_has.set()
    return b"".join(parts)


async def test_events_go_on_where_the_connection_broke(client: Verbs, fake: FakeDispatcher) -> None:
    client_has = threading.Event()

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b": alive\n\n" + frame(event(1)) + frame(event(2))[:-9])
        await seen_by(client_has)
        assert request.transport is not None
        request.transport.abort()
        return response

    fake.handle("GET /v1/jobs/job-1/events", broken)
    fake.answer("GET /v1/jobs/job-1/events", frame(event(2)) + frame(event(3)))
    seen = []
    async for each in client.events("job-1"):
        seen.append(each.id)
        client_has.set()
    assert seen == ["ev-1", "ev-2", "ev-3"]
    assert fake.heard[1].headers["Last-Event-ID"] == "ev-1"


async def test_waiting_ends_with_the_job_and_not_with_the_stream(client: Verbs, fake: FakeDispatcher) -> None:
    for status in (JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.SUCCEEDED):
        fake.answer("GET /v1/jobs/train", detail(status))
    fake.answer("GET /v1/jobs/job-1/events", frame(event(1)))
    assert (await client.wait("train")).job.status is JobStatus.SUCCEEDED


async def test_what_waits_is_looked_at_again_soon_and_then_less_often(
    client: Verbs, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that starts at once is followed at once; one that waits for days is asked about twice a second."""
    monkeypatch.setattr(jobs, "POLL_S", 0.5)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(client.transport, "sleep", sleep)
    for _ in range(7):
        fake.answer("GET /v1/jobs/train", detail(JobStatus.PENDING, None))
    fake.answer("GET /v1/jobs/train", detail(JobStatus.CANCELLED, None))
    fake.answer("GET /v1/jobs/train/logs", b"")
    assert [chunk async for chunk in client.logs("train", follow=True)] == []
    assert slept == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


async def test_a_log_goes_on_where_the_connection_broke_and_over_attempts(
    client: Verbs, fake: FakeDispatcher
) -> None:
    client_has = threading.Event()

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\ntw")
        await seen_by(client_has)
        assert request.transport is not None
        request.transport.abort()
        return response

    fake.answer("GET /v1/jobs/train", detail(JobStatus.PENDING, None))
    fake.answer("GET /v1/jobs/train", detail(placement="pl-1"))
    fake.answer("GET /v1/jobs/train", detail(placement="pl-2"))
    fake.answer("GET /v1/jobs/train", detail(JobStatus.SUCCEEDED, "pl-2"))
    fake.handle("GET /v1/jobs/job-1/logs", broken)
    fake.answer("GET /v1/jobs/job-1/logs", b"o\n")
    fake.answer("GET /v1/jobs/job-1/logs", b"three\n")
    assert await read(client.logs("train", follow=True), client_has) == b"one\ntwo\nthree\n"
    asked = [
        (heard.query["placement"], heard.query["offset"]) for heard in fake.of("GET /v1/jobs/job-1/logs")
    ]
    assert asked == [("pl-1", "0"), ("pl-1", "6"), ("pl-2", "0")]


async def test_the_tail_of_a_log_goes_on_from_where_the_server_says_it_began(
    client: Verbs, fake: FakeDispatcher
) -> None:
    client_has = threading.Event()

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-Federator-Offset": "100"})
        await response.prepare(request)
        await response.write(b"last\n")
        await seen_by(client_has)
        assert request.transport is not None
        request.transport.abort()
        return response

    fake.answer("GET /v1/jobs/train", detail())
    fake.answer("GET /v1/jobs/train", detail(JobStatus.SUCCEEDED))
    fake.handle("GET /v1/jobs/job-1/logs", broken)
    fake.answer("GET /v1/jobs/job-1/logs", b"more\n")
    assert await read(client.logs("train", tail=1, follow=True), client_has) == b"last\nmore\n"
    first, second = fake.of("GET /v1/jobs/job-1/logs")
    assert (first.query["tail"], second.query["offset"]) == ("1", "105")


async def test_the_dispatchers_time_is_taken_from_its_answers(client: Verbs, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/sites", [], headers={"X-Federator-Time": "12345.0"})
    await client.sites()
    assert abs(client.now() - 12345.0) < 60


def test_the_same_verbs_without_asyncio(fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/job-1", detail(JobStatus.SUCCEEDED))
    fake.answer("GET /v1/jobs/job-1/events", frame(event(1)) + frame(event(2)))
    with Client(fake.url) as client:
        assert client.job("job-1").job.name == "train"
        assert [seen.id for seen in client.events("job-1")] == ["ev-1", "ev-2"]


def test_no_verb_is_missing_from_the_blocking_client() -> None:
    verbs = {
        name for name in dir(AsyncClient) if not name.startswith("_") and callable(getattr(AsyncClient, name))
    }
    tunnels = {"tunnel", "copy_from", "copy_to", "outputs_so_far"}  # which go both ways at once
    assert verbs - {"close", "now"} - tunnels <= set(dir(Client))


async def test_an_answer_that_breaks_off_is_said_in_words(client: Verbs, fake: FakeDispatcher) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"[")
        assert request.transport is not None
        request.transport.abort()
        return response

    fake.handle("GET /v1/sites", broken)
    client.transport.patience_s = 0.0
    with pytest.raises(
        errors.Unavailable, match=r"the connection broke in the middle of an answer|connection reset"
    ):
        await client.sites()

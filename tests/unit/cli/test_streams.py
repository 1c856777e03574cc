"""The verbs that stay with a job: run, wait, logs, download. They end as the job does."""

import asyncio
import json
import shutil
import signal
import threading
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from federator.cli import run
from federator.client.workdir import pack
from federator.model.jobs import JobStatus
from federator.model.plans import Waiting
from federator.wire.http import (
    JobPage,
    OutputFile,
    OutputList,
    Problem,
    Submitted,
)
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import an_array, detail, frames, row
from tests.unit.cli.conftest import Command


def test_run_streams_output_and_passes_the_exit_code_on(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sh"), 201)
    fake.answer("GET /v1/jobs/job-1", detail())
    fake.answer("GET /v1/jobs/job-1", detail(JobStatus.FAILED, 7))
    fake.answer("GET /v1/jobs/job-1/events", frames("PENDING", "RUNNING", "FAILED"))
    fake.answer("GET /v1/jobs/job-1/logs", b"hello\n")
    ran = federator(
        "run", "--gpus", "A100:2", "--env", "A=1", "--name", "x", "--", "sh", "-c", "exit 7", "--name", "y"
    )
    assert (ran.code, ran.out) == (7, "hello\n")
    assert "federator: PENDING: it is PENDING\n" in ran.err
    assert json.loads(fake.of("POST /v1/jobs")[0].body) == {
        "command": ["sh", "-c", "exit 7", "--name", "y"],
        "name": "x",
        "resources": {"gpus": "A100:2"},
        "env": {"A": "1"},
    }


def test_run_of_a_gang_marks_each_line_with_its_rank(federator: Command, fake: FakeDispatcher) -> None:
    async def log(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"line of {request.query['node']}\nrest")

    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sh"), 201)
    fake.answer("GET /v1/jobs/job-1", detail())
    fake.answer("GET /v1/jobs/job-1", detail())
    fake.answer("GET /v1/jobs/job-1", detail(JobStatus.SUCCEEDED, 0))
    fake.answer("GET /v1/jobs/job-1/events", frames("SUCCEEDED"))
    fake.handle("GET /v1/jobs/job-1/logs", log)
    ran = federator("run", "-q", "--nodes", "2", "--", "hostname")
    assert sorted(ran.out.splitlines()) == ["[0] line of 0", "[0] rest", "[1] line of 1", "[1] rest"]
    assert (ran.code, ran.err) == (0, "")


def test_run_says_why_it_waits(
    federator: Command, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per reason: or a person would stare at PENDING."""
    monkeypatch.setattr(run, "REASON_S", 0.01)
    route = "GET /v1/jobs/job-1"

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while len(fake.of(route)) < 5:
            await asyncio.sleep(0.01)
        await response.write(frames("SUCCEEDED"))
        return response

    async def show(_request: web.Request) -> web.StreamResponse:
        over = len(fake.of(route)) >= 5
        shown = detail(JobStatus.SUCCEEDED, 0) if over else detail(JobStatus.PENDING, placement=None)
        waiting = None if over else Waiting(job="job-1", kind="capacity", because="north is full")
        return web.Response(body=msgspec.json.encode(msgspec.structs.replace(shown, waiting=waiting)))

    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sh"), 201)
    fake.handle(route, show)
    fake.handle("GET /v1/jobs/job-1/events", events)
    fake.answer("GET /v1/jobs/job-1/logs", b"")
    ran = federator("run", "--", "x")
    assert (ran.code, ran.err.count("federator: waits: north is full\n")) == (0, 1)


def test_run_takes_the_folder_along_when_the_command_names_a_file_in_it(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path / "code")
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)

    async def accept(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=201)

    fake.handle_any("PUT", accept)
    assert federator("run", "--detach", "--", "python", "train.py").out == "job-1\n"
    assert federator("run", "--detach", "--workdir", "none", "--", "python", "train.py").code == 0
    assert federator("run", "--detach", "--", "hostname").code == 0
    taken = ["workdir" in json.loads(heard.body) for heard in fake.of("POST /v1/jobs")]
    assert taken == [True, False, False]


def test_run_refuses_what_a_job_file_would_not_take(federator: Command, fake: FakeDispatcher) -> None:
    ran = federator("run", "--gpus", "1.5", "--", "x")
    assert ran.code == 2
    assert "$.resources.gpus: asks for 1.5 GPUs" in ran.err
    assert (
        federator("run", "--env", "A", "--", "x").err
        == "error: --env: 'A' gives no value (write NAME=VALUE)\n"
    )
    assert fake.heard == []


def test_ctrl_c_cancels_the_job_and_the_output_is_read_to_its_end(
    federator: Command, fake: FakeDispatcher
) -> None:
    cancelled = threading.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(frames("RUNNING"))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while not cancelled.is_set():
            await asyncio.sleep(0.01)
        await response.write(frames("CANCELLING", "CANCELLED"))
        return response

    async def cancel(_request: web.Request) -> web.StreamResponse:
        cancelled.set()
        return web.Response(body=msgspec.json.encode(detail(JobStatus.CANCELLING)))

    async def show(_request: web.Request) -> web.StreamResponse:
        shown = detail(JobStatus.CANCELLED) if cancelled.is_set() else detail()
        return web.Response(body=msgspec.json.encode(shown))

    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sleep"), 201)
    fake.handle("GET /v1/jobs/job-1", show)
    fake.handle("GET /v1/jobs/job-1/events", events)
    fake.answer("GET /v1/jobs/job-1/logs", b"saving\n")
    fake.handle("DELETE /v1/jobs/job-1", cancel)
    ran = federator("run", "--", "sleep", "100")
    assert ran.code == 130
    assert ran.out == "saving\n"
    assert "press Ctrl-C again to leave at once" in ran.err
    assert len(fake.of("DELETE /v1/jobs/job-1")) == 1


def test_wait_exits_as_the_first_job_that_failed(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/a", detail(JobStatus.SUCCEEDED, 0, id="a"))
    fake.answer("GET /v1/jobs/b", detail(JobStatus.FAILED, 3, id="b"))
    assert federator("wait", "a", "b").code == 3
    assert federator("wait", "a").code == 0


def test_wait_may_be_for_the_start_only(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/a", detail(JobStatus.PENDING, id="a"))
    fake.answer("GET /v1/jobs/a", detail(JobStatus.RUNNING, id="a"))
    fake.answer("GET /v1/jobs/a/events", b"")
    fake.answer("GET /v1/jobs/b", detail(JobStatus.FAILED, 3, id="b"))
    ran = federator("wait", "a", "--for", "running")
    assert (ran.code, ran.out.split()[0]) == (0, "RUNNING")
    assert federator("wait", "b", "--for", "running").code == 3, "it came to nothing before it ran"
    fake.answer("GET /v1/jobs/sweep", detail(JobStatus.PENDING, id="job-8", array="job-0"))
    fake.answer("GET /v1/jobs/job-0/array", an_array(finished_at=None, tasks={"PENDING": 2}))
    fake.answer("GET /v1/jobs/job-0/array", an_array(finished_at=None, tasks={"PENDING": 1, "RUNNING": 1}))
    ran = federator("wait", "sweep", "--for", "running")
    assert (ran.code, "1 RUNNING" in ran.out) == (0, True)


def test_wait_for_an_array_by_name_waits_for_every_task(federator: Command, fake: FakeDispatcher) -> None:
    """Not only for the newest task: that others still run would be learned too late."""
    fake.answer("GET /v1/jobs/sweep", detail(JobStatus.SUCCEEDED, 0, id="job-8", array="job-0"))
    fake.answer(
        "GET /v1/jobs",
        JobPage((row(8, array_index=4, status="SUCCEEDED"), row(7, array_index=3, status="FAILED")), None, 2),
    )
    fake.answer("GET /v1/jobs/job-7", detail(JobStatus.FAILED, 5, id="job-7", array="job-0", array_index=3))
    fake.answer("GET /v1/jobs/job-0/array", an_array(finished_at=None))
    fake.answer("GET /v1/jobs/job-0/array", an_array())
    ran = federator("wait", "sweep")
    assert ran.code == 5
    assert len(fake.of("GET /v1/jobs/job-0/array")) == 2
    assert [line.split()[0] for line in ran.out.splitlines()] == ["FAILED", "SUCCEEDED"]


def test_wait_gives_up_after_its_timeout(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/a", detail(id="a"))
    fake.answer("GET /v1/jobs/a/events", b"")
    assert federator("wait", "a", "--timeout", "100ms").code == 124
    for verb in (("wait", "a"), ("local", "wait", "a")):
        refused = federator(*verb, "--timeout", "soon")
        assert (refused.code, "--timeout: 'soon' is not a duration" in refused.err) == (2, True)


def test_wait_goes_on_where_no_dispatcher_answers_yet(federator: Command, fake: FakeDispatcher) -> None:
    """One that is being restarted when the wait begins is waited for like one that is restarted later."""
    asked: list[str] = []

    async def restarting(_request: web.Request) -> web.StreamResponse:
        asked.append("again")
        if len(asked) < 3:
            away = Problem("about:blank", "Not now", 503, "it starts", "unavailable", retry_after_s=0.01)
            return web.Response(status=503, body=msgspec.json.encode(away))
        return web.Response(body=msgspec.json.encode(detail(JobStatus.SUCCEEDED, 0, id="a")))

    fake.handle("GET /v1/jobs/a", restarting)
    ran = federator("wait", "a")
    assert (ran.code, ran.err) == (0, "waiting: it starts; trying again for up to 10m\n")
    assert len(asked) >= 3


def test_wait_where_nobody_answers_gives_up_after_its_timeout(
    federator: Command, fake: FakeDispatcher
) -> None:
    ran = federator("wait", "a", "--timeout", "300ms", "--server", "http://127.0.0.1:1")
    assert ran.code == 124
    assert "waiting: cannot reach the dispatcher at http://127.0.0.1:1" in ran.err
    assert not fake.heard


def test_logs_of_one_task_of_an_array(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/sweep[4]", detail(id="job-8", array="job-0"))
    fake.answer("GET /v1/jobs/job-8/logs", b"task four\n")
    ran = federator("logs", "sweep[4]", "--tail", "5", "--node", "0")
    assert (ran.code, ran.out) == (0, "task four\n")
    assert fake.of("GET /v1/jobs/job-8/logs")[0].query == {"node": "0", "tail": "5"}


def test_what_the_disk_has_no_room_for_is_not_fetched(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    fake.answer("GET /v1/jobs/train", detail(JobStatus.SUCCEEDED, 0))
    fake.answer("GET /v1/jobs/job-1/outputs", b"x" * 100)
    ran = federator("download", "train")
    assert (ran.code, "and the disk of" in ran.err) == (2, True), ran.err
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_listed_and_not_fetched(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = OutputList((OutputFile("results/\x1b[2Jmodel.pt", 2_500_000),), complete=False)
    fake.answer("GET /v1/jobs/train/outputs/files", found)
    ran = federator("download", "train", "--list")
    assert ran.out.split()[:2] == ["FILE", "SIZE"]
    assert "2.5 MB" in ran.out
    assert "\x1b[2J" not in ran.out
    assert "only the first are listed" in ran.err + ran.out
    assert list(tmp_path.iterdir()) == []


def test_download_unpacks_below_a_folder_with_the_jobs_name(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made/results").mkdir(parents=True)
    (tmp_path / "made/results/x.txt").write_text("1")
    pack(tmp_path / "made", tmp_path / "archive", limit_mib=1)
    monkeypatch.chdir(tmp_path)
    fake.answer("GET /v1/jobs/train", detail(JobStatus.SUCCEEDED, 0))
    fake.answer("GET /v1/jobs/job-1/outputs", (tmp_path / "archive").read_bytes())
    ran = federator("download", "train")
    assert (ran.code, ran.out) == (0, "train/results/x.txt\n")
    assert federator("download", "train", "--into", "here").out == "here/results/x.txt\n"

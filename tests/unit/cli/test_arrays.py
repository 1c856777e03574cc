"""An array as one: in lists, in `show`, run again, and its results."""

import asyncio
import json
import tarfile
from pathlib import Path

from aiohttp import web

from federator.client import pooled
from federator.wire.http import JobPage, Submitted
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import TIME, an_array, detail, row
from tests.unit.cli.conftest import Command


def test_list_shows_an_array_as_one_line_unless_tasks_are_asked_for(
    federator: Command, fake: FakeDispatcher
) -> None:
    line = row(
        1,
        id="job-0",
        name="sweep",
        status="RUNNING",
        indices="0-9",
        tasks={"RUNNING": 10},
        because="10 RUNNING",
    )
    fake.answer("GET /v1/jobs", JobPage((line,), None, 1), headers=TIME)
    out = federator("list").out
    assert "sweep[0-9]" in out
    assert "10 RUNNING" in out
    federator("list", "--tasks")
    federator("list", "--array", "job-0")
    assert [heard.query.get("collapse") for heard in fake.of("GET /v1/jobs")] == ["true", None, None]


def test_show_of_an_array_adds_it_up_and_of_a_task_does_not(federator: Command, fake: FakeDispatcher) -> None:
    task = detail(id="job-3", name="sweep", array="job-0", array_index=3)
    fake.answer("GET /v1/jobs/sweep", task, headers=TIME)
    fake.answer("GET /v1/jobs/sweep[3]", task, headers=TIME)
    fake.answer("GET /v1/jobs/job-3/events", [])
    fake.answer("GET /v1/jobs/job-0/array", an_array(), headers=TIME)
    out = federator("show", "sweep").out
    for said in (
        "sweep[0-9]",
        "2 FAILED, 8 SUCCEEDED",
        "sweep[3,7]  FAILED, exit-code 1",
        "1.50 USD, 2.00 GPU-hours",
        "1m30s",
    ):
        assert said in out
    assert json.loads(federator("show", "sweep", "-o", "json").out)["ended"] == {"FAILED, exit-code 1": "3,7"}
    assert "running at north" in federator("show", "sweep[3]").out


def test_rerun_of_what_failed_prints_the_new_ids(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs/rerun", Submitted(("job-11", "job-12"), "sweep"), 201)
    ran = federator("rerun", "sweep", "--failed")
    assert (ran.code, ran.out) == (0, "job-11\njob-12\n")
    assert json.loads(fake.heard[0].body) == {"job": "sweep", "failed": True}


def test_the_outputs_of_all_tasks_come_with_one_command(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    fake.answer("GET /v1/jobs/sweep", detail(id="job-3", name="sweep", array="job-0", array_index=3))
    fake.answer("GET /v1/jobs/job-0/array", an_array())
    for index in range(3):
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "results/loss.txt").write_text(str(index))
        with tarfile.open(tmp_path / "archive", "w:gz") as archive:
            archive.add(tmp_path / "results", "results")
        fake.answer(f"GET /v1/jobs/job-0[{index}]/outputs", (tmp_path / "archive").read_bytes())
    ran = federator("download", "sweep", "--into", str(tmp_path / "all"))
    assert ran.code == 0
    assert [(tmp_path / f"all/{index}/results/loss.txt").read_bytes() for index in range(3)] == [
        b"0",
        b"1",
        b"2",
    ]


def test_a_few_tasks_at_once_are_downloaded(federator: Command, fake: FakeDispatcher, tmp_path: Path) -> None:
    """The second answer comes only while a third is asked for, and no more than a few are asked for at once."""
    fake.answer("GET /v1/jobs/sweep", detail(id="job-3", name="sweep", array="job-0", array_index=3))
    fake.answer("GET /v1/jobs/job-0/array", an_array(outputs="0-9"))
    with tarfile.open(tmp_path / "archive", "w:gz"):
        pass
    asked: list[str] = []
    most, under_way, second = 0, 0, asyncio.Event()

    async def outputs(request: web.Request) -> web.StreamResponse:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        asked.append(request.path)
        if len(asked) > 2:
            second.set()
        await second.wait()
        under_way -= 1
        return web.Response(body=(tmp_path / "archive").read_bytes())

    for index in range(10):
        fake.handle(f"GET /v1/jobs/job-0[{index}]/outputs", outputs)
    assert federator("download", "sweep", "--into", str(tmp_path / "all")).code == 0
    assert (len(asked), 3 <= most <= pooled.AT_ONCE) == (10, True)


def test_logs_of_an_array_ask_which_task(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/sweep", detail(id="job-3", name="sweep", array="job-0", array_index=3))
    fake.answer("GET /v1/jobs/job-0/array", an_array())
    ran = federator("logs", "sweep")
    assert ran.code == 2
    assert "sweep is an array of 10 tasks (name the first that failed: federator logs 'sweep[3]')" in ran.err

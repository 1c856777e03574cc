"""Finished jobs move to the archive while the dispatcher is killed: real processes, with the files in a folder and in a bucket."""

import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.cli.demo.federation import DemoFederation
from federator.client import AsyncClient
from federator.client.jobs import JobFilter
from federator.wire.http import SubmitResult
from tests.support.waiting import until
from tests.testbeds.s3 import settings_for, shared_server

pytestmark = pytest.mark.system

SPEED = 600.0
"""Jobs may move ten minutes after their end: a second."""
CROWD = 1000
ENDED = JobFilter(status="SUCCEEDED,FAILED,CANCELLED")
SITE = {
    "site": "lab",
    "kind": "onprem",
    "pools": [{"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 8, "cpus_per_node": 64}],
}
WORK: tuple[dict[str, Any], ...] = (
    {"name": "train", "run": "echo trained; echo 7 > loss.txt", "outputs": ["loss.txt"], "labels": {"model": "large"}},
    {"name": "broken", "run": "echo lost; exit 3"},
    {"name": "sweep", "run": "echo task $FEDERATOR_ARRAY_INDEX; [ $FEDERATOR_ARRAY_INDEX != 2 ]", "array": "0-3"},
)  # fmt: skip


class Keeping(DemoFederation):
    """Keeps so many finished jobs in memory, and looks each half second."""

    store: dict[str, object] | None = None
    recent_jobs = 50_000

    def _settings(self) -> dict[str, Any]:
        retention = {"recent_jobs": self.recent_jobs, "sweep_s": SPEED / 2}
        return {**super()._settings(), "store": {"s3": self.store}, "retention": retention}

    async def start_again(self, recent_jobs: int) -> None:
        """Start it with another limit."""
        self.recent_jobs = recent_jobs
        (self.folder / "dispatcher.yaml").unlink()
        await self.start_dispatcher()


@pytest.fixture(params=["folder", "bucket"])
async def federation(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keeping]:
    made = Keeping(tmp_path, SPEED)
    if request.param == "bucket":
        made.store = msgspec.to_builtins(settings_for(tmp_path / "s3", shared_server()))
    try:
        await made.start_dispatcher()
        await made.start_sites([SITE])
        yield made
    finally:
        await made.end()


async def test_a_dispatcher_killed_while_jobs_move_has_each_of_them_once(federation: Keeping) -> None:
    people = federation.admin
    for job in WORK:
        await people.submit({"resources": {"gpus": 1}, **job})
    await until(lambda: _counts(people, 6), "all work is over")
    crowd = [{"name": f"crowd-{n}", "run": "x", "resources": {"gpus": 64}} for n in range(CROWD)]
    await people.act("cancel", [_accepted(each) async for each in people.submit_many(crowd)])
    total = CROWD + 6  # the work's tasks are the oldest, so they move
    await until(lambda: _counts(people, total), "all jobs are over")
    before = await told(people)

    federation.kill_dispatcher()
    await federation.start_again(10)
    await until(lambda: 0 < rows(federation, "job/") < total - 100, "some of the jobs have moved")
    federation.kill_dispatcher()
    left = rows(federation, "job/")
    assert 10 < left < total, "the move was cut short"
    assert rows(federation, "archive/") == 1

    await federation.start_dispatcher()
    assert await told(people) == before
    await until(lambda: rows(federation, "job/") <= 10, "the move goes on")
    assert rows(federation, f"job/{before['train']['id']}") == 0
    assert await told(people) == before
    assert (await people.rerun("sweep", failed=True)).jobs
    after = await people.submit({"run": "echo then", "after": ["train"], "resources": {"gpus": 1}})
    assert (await people.wait(after.jobs[0])).job.status == "SUCCEEDED"


async def told(people: AsyncClient) -> dict[str, Any]:
    """What list, show, logs, download and usage say of what has ended."""
    answers: dict[str, Any] = {"list": [msgspec.to_builtins(row) async for row in people.all_jobs(ENDED)]}
    for name in ("train", "broken", "sweep[2]", "crowd-700"):
        answers[name] = msgspec.to_builtins((await people.job(name)).job)
        answers[f"{name} events"] = [event.text for event in await people.history(name)]
    for name in ("train", "broken", "sweep[1]"):
        answers[f"{name} log"] = b"".join([part async for part in people.logs(name)])
    with tempfile.TemporaryDirectory() as folder:
        answers["outputs"] = [file.read_text() for file in await people.download("train", folder)]
    answers["sweep"] = msgspec.to_builtins(await people.array("sweep"))
    answers["usage"] = msgspec.to_builtins((await people.usage(by=("queue",))).rows)
    return answers


def _accepted(result: SubmitResult) -> str:
    assert result.submitted is not None, result
    return result.submitted.jobs[0]


async def _counts(people: AsyncClient, total: int) -> bool:
    return (await people.jobs(ENDED, limit=1)).total == total


def rows(federation: Keeping, prefix: str) -> int:
    """How many rows of a kind the store has, whoever writes to it."""
    with contextlib.closing(sqlite3.connect(federation.folder / "dispatcher" / "store.db")) as store:
        ((count,),) = store.execute("SELECT count(*) FROM item WHERE key GLOB ?", (f"{prefix}*",))
    return int(count)

"""A large array on real processes: its tasks become jobs as others start, each once, though the dispatcher is killed again and again."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from federator.cli.demo.federation import DemoFederation
from tests.support.waiting import until

pytestmark = pytest.mark.system

SPEED = 600.0
"""Jobs may move to the archive ten minutes after their end: a second."""
TASKS, CANCELLED, WINDOW = 160, 40, 10
SITE = {"site": "lab", "kind": "onprem", "pools": [{"name": "main", "nodes": 1, "cpus_per_node": 16}]}


class Small(DemoFederation):
    """Few tasks of an array wait as jobs, and few that have ended stay in memory."""

    def _settings(self) -> dict[str, Any]:
        kept = {"limits": {"array_waiting": WINDOW}, "retention": {"recent_jobs": 20, "sweep_s": SPEED / 2}}
        return {**super()._settings(), **kept}


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Small]:
    made = Small(tmp_path, SPEED)
    try:
        await made.start_dispatcher()
        await made.start_sites([SITE])
        yield made
    finally:
        await made.end()


async def test_each_task_runs_once_though_the_dispatcher_is_killed(federation: Small, tmp_path: Path) -> None:
    people, ran = federation.admin, tmp_path / "ran"
    sweep = {"name": "sweep", "run": f"echo $FEDERATOR_ARRAY_INDEX >> {ran}", "resources": {"cpus": 1}}
    answer = await people.submit({**sweep, "array": f"0-{TASKS - 1}"})
    last = await people.job(f"sweep[{TASKS - 1}]")
    assert (last.job.id, last.job.array_index) == (answer.jobs[-1], TASKS - 1)
    (acted,) = await people.act("cancel", [f"sweep[{TASKS - CANCELLED}-{TASKS - 1}]"])
    assert (acted.changed, acted.status) == (CANCELLED, {"CANCELLED": CANCELLED})

    def lines() -> list[int]:
        return sorted(map(int, ran.read_text().split())) if ran.exists() else []

    async def so_many(count: int) -> bool:
        return len(lines()) >= count

    for count in (20, 60):
        await until(partial(so_many, count), f"{count} tasks have run")
        federation.kill_dispatcher()
        await federation.start_dispatcher()
    shown = await people.wait_all("sweep")
    assert lines() == list(range(TASKS - CANCELLED)), "each ran, and once"
    assert shown.tasks == {"CANCELLED": CANCELLED, "SUCCEEDED": TASKS - CANCELLED}
    assert (await people.job("sweep[3]")).job.status == "SUCCEEDED", "though it is in the archive"

"""A job of several forms is described by one rule: while it waits, by all of them; once it runs, by the one that it has."""

from typing import Any

import msgspec
import pytest

from federator.cli.columns import job_columns
from federator.model.jobs import JobSpec
from federator.wire.http import JobRow
from federator.wire.jobfile import read_job
from tests.support.dispatch import make_world
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW, TIME, detail, row
from tests.unit.cli.conftest import Command

ANY: dict[str, Any] = {"resources": {"any_of": [{"gpus": "H100:8"}, {"gpus": "A100:4"}]}}


def gpus(shown: JobRow) -> str:
    """The cell of the list."""
    (column,) = [each for each in job_columns(NOW) if each.title == "GPUS"]
    return str(column.value(shown))


def spec(**fields: object) -> JobSpec:
    """Of a job file."""
    return read_job({"run": "x", **fields}, now=NOW).spec


async def test_the_list_says_all_forms_of_a_job_that_waits_and_the_one_of_a_job_that_runs() -> None:
    world = await make_world()
    waits = await world.submit(**ANY)
    assert gpus(world.core.views.row(world.job(waits))) == "4-8 GPUs H100|A100"
    await world.add_site("lab", nodes=1, gpus=4)
    await world.turn()
    assert gpus(world.core.views.row(world.job(waits))) == "4 A100 (4 of 4-8 GPUs)"
    wide = await world.submit(min_nodes=1, max_nodes=8, resources={"gpus": 2})
    assert gpus(world.core.views.row(world.job(wide))) == "1-8 nodes of 2"
    assert gpus(row(1)) == "1"


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        (ANY, "8 H100 GPUs, 1 CPU, or 4 A100 GPUs, 1 CPU"),
        ({"resources": {"gpus": "A100:1..8"}}, "1-8 GPUs per node; at least 1 A100 GPU, 1 CPU"),
    ],
)
def test_show_says_what_it_asks_for_in_every_entry_and_which_it_has(
    federator: Command, fake: FakeDispatcher, fields: dict[str, Any], asks: str
) -> None:
    told = msgspec.structs.replace(detail(), spec=spec(**fields), form=1)
    fake.answer("GET /v1/jobs/train", told, headers=TIME)
    fake.answer("GET /v1/jobs/job-1/events", [])
    out = federator("show", "train").out
    assert asks in " ".join(out.split())
    assert any(line.startswith("has ") for line in out.splitlines())

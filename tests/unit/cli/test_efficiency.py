"""What jobs really use, as people read it."""

import pytest

from federator.model.placements import Used
from federator.wire.http import JobPage
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import row
from tests.unit.cli.conftest import Command

GOOD = Used(
    sampled_s=3600.0,
    cpu_s=3600.0,
    memory_peak_mib=2048,
    gpus_sampled_s=3600.0,
    gpus_busy_s=3240.0,
    gpu_memory_peak_mib=1024,
    power_sampled_s=3600.0,
    energy_kwh=1.25,
)
WAITS = Used(sampled_s=3600.0, cpu_s=7200.0, gpus_sampled_s=3600.0, gpus_busy_s=360.0)
IDLE = Used(sampled_s=3600.0, cpu_s=36.0, gpus_sampled_s=3600.0, gpus_busy_s=0.0, idle_s=3600.0)


def test_the_worst_comes_first_with_advice(federator: Command, fake: FakeDispatcher) -> None:
    rows = (
        row(1, name="good", used=GOOD),
        row(2, name="waits", used=WAITS),
        row(3, name="idle", used=IDLE, status="RUNNING"),
        row(4, name="unknown"),
    )
    fake.answer("GET /v1/jobs", JobPage(rows, total=4))
    ran = federator("efficiency")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert [
        next(word for word in line.split() if word in ("good", "waits", "idle")) for line in lines[1:]
    ] == ["idle", "waits", "good"]
    assert "does the program use them?" in lines[1]
    assert "more workers" in lines[2]
    assert "90%" in lines[3]
    assert ["1.25 kWh" in line for line in lines[1:]] == [False, False, True]
    assert "unknown" not in ran.out


def test_where_nothing_is_known_it_says_so(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs", JobPage((row(1),), total=1))
    ran = federator("efficiency")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing is known" in ran.err


@pytest.mark.parametrize("output", ["table", "wide"])
@pytest.mark.parametrize("known", [False, True])
def test_lists_say_how_busy_gpus_are_where_that_is_known(
    federator: Command, fake: FakeDispatcher, output: str, *, known: bool
) -> None:
    rows = (row(1), row(2, used=GOOD)) if known else (row(1),)
    fake.answer("GET /v1/jobs", JobPage(rows, total=len(rows)))
    out = federator("list", "-o", output).out
    assert ("BUSY" in out, "90%" in out) == (known, known)

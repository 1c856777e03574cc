"""What `show` says of what people were told first."""

import pytest
from msgspec.structs import replace

from federator.cli.job_facts import job_facts
from federator.model.jobs import FirstForecast, JobStatus
from federator.model.placements import Used
from tests.unit.cli.answers import detail

NOW = 1_000_000.0
TOLD = FirstForecast(
    at=NOW, start_at=NOW + 3600, start_high_at=NOW + 7200, finish_at=NOW + 7200, finish_high_at=NOW + 10_800, spent_usd=2.0
)  # fmt: skip


def said(used: Used | None = None, **fields: object) -> dict[str, str]:
    shown = replace(detail(JobStatus.SUCCEEDED), used=used)
    job = replace(shown.job, submitted_at=NOW - 5, first_forecast=TOLD, **fields)
    return {name: str(value) for name, value in job_facts(replace(shown, job=job), NOW)}


def test_a_job_that_waits_is_shown_with_the_time_of_its_plan() -> None:
    facts = job_facts(replace(detail(JobStatus.PENDING), planned_at=NOW - 20.0), NOW)
    assert str(dict(facts)["as planned"]).startswith("20s ago (")


def test_energy_of_the_job_and_of_its_newest_attempt() -> None:
    used = Used(sampled_s=10.0, cpu_s=10.0, power_sampled_s=10.0, energy_kwh=0.0312)
    facts = said(gpu_s=7200.0, energy_kwh=1.25, used=used)
    assert facts["spent"].endswith("2.00 GPU-hours, 1.25 kWh")
    assert "0.031 kWh by its GPUs" in facts["really uses"]
    assert "kWh" not in str(said(gpu_s=7200.0, used=replace(used, power_sampled_s=0.0, energy_kwh=0.0)))


def test_what_was_told() -> None:
    facts = said(started_at=None, finished_at=None)
    assert facts["told first"].startswith("start in 1h (")
    assert "2.00 USD; said 5s after the submission" in facts["told first"]


@pytest.mark.parametrize(
    ("started_s", "finished_s", "usd", "came"),
    [
        (3605.0, 7195.0, 2.0, "start as told, end as told"),
        (600.0, 3600.0, 1.5, "start 50m sooner, end 1h sooner, 0.50 USD less"),
        (9000.0, 10_000.0, 3.25, "start 1h30m later (later than 90 of 100), end 46m40s later, 1.25 USD more"),
    ],
)
def test_what_came_of_it(started_s: float, finished_s: float, usd: float, came: str) -> None:
    facts = said(started_at=NOW + started_s, finished_at=NOW + finished_s, spent_usd=usd)
    assert facts["then came"] == came

"""Advice with numbers, and the verb that follows it."""

import json

import pytest
from msgspec.structs import replace

from federator.model.changes import AskFor, Change, MoreHosts, Remedy, WaitUntil
from federator.model.plans import Ahead, Explanation
from federator.wire.http import ActedOn, ForecastMove
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW
from tests.unit.cli.conftest import Command


def told(*changes: Change) -> Explanation:
    remedies = tuple(Remedy(f"advice {number}", (change,)) for number, change in enumerate(changes, 1))
    return Explanation(
        job="job-1",
        status="PENDING",
        because="north is full",
        remedies=remedies,
        changes=tuple(remedy.text for remedy in remedies),
        ahead=(
            Ahead(job="job-7", name="hog", owner="ada", gpus=8, site="north", until_at=NOW + 720),
            Ahead(job="", name="another team's job", owner="", gpus=1, waits=True),
        ),
    )


DEADLINE = AskFor("job-1", "deadline_at", 1_800_000_000.2)


def test_advice_has_numbers_and_who_is_before_it_names(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/train/explain", told(WaitUntil(NOW), DEADLINE))
    out = " ".join(federator("explain", "train").out.split())
    assert "1. advice 1 2. advice 2" in out
    assert "federator apply train NUMBER" in out
    assert "hog of ada (8 GPUs, at north until" in out
    assert "another team's job (1 GPU, waits before it)" in out


@pytest.mark.parametrize(
    ("change", "patch"),
    [
        (DEADLINE, {"deadline": "2027-01-15T08:00:01Z"}),
        (AskFor("job-1", "deadline_at", None), {"deadline": "none"}),
        (AskFor("job-1", "value_usd", 40.5), {"value": "40.5 USD"}),
        (AskFor("job-1", "max_cost_usd", 12.0), {"max_cost": "12.0 USD"}),
        (AskFor("job-1", "max_duration_s", 3600.5), {"max_duration": "3601s"}),
        (AskFor("job-1", "queue", "research"), {"queue": "research"}),
        (AskFor("job-1", "priority", 60), {"priority": 60}),
        (AskFor("job-1", "models", ("A100", "H100")), {"models": "A100|H100"}),
        (AskFor("job-1", "nodes", 2), {"nodes": 2}),
        (AskFor("job-1", "gpus", 4), {"gpus": 4}),
        (AskFor("job-1", "gpu_memory_mib", 40960), {"gpu_memory": "40960MiB"}),
        (AskFor("job-1", "cpus_milli", 1500), {"cpus": 1.5}),
        (AskFor("job-1", "memory_mib", 2000), {"memory": "2000MiB"}),
        (AskFor("job-1", "sites", ("north", "south")), {"sites": "north|south"}),
        (AskFor("job-1", "not_sites", ()), {"not_sites": "none"}),
    ],
)
def test_what_is_the_jobs_own_is_done(
    federator: Command, fake: FakeDispatcher, change: AskFor, patch: dict[str, object]
) -> None:
    fake.answer("GET /v1/jobs/train/explain", told(WaitUntil(NOW), change))
    fake.answer("POST /v1/jobs/actions", [ActedOn("job-1", "train", 1, 0, {"PENDING": 1})])
    ran = federator("apply", "train", "2")
    assert ran.code == 0, ran.err
    assert "now has advice 2" in ran.out
    asked = json.loads(fake.of("POST /v1/jobs/actions")[0].body)
    given = {key: value for key, value in asked["patch"].items() if value is not None}
    assert (asked["jobs"], given) == (["job-1"], patch)


def test_of_an_array_one_task_is_explained_and_all_are_changed(
    federator: Command, fake: FakeDispatcher
) -> None:
    of_one = replace(told(DEADLINE), name="sweep[4]", tasks={"RUNNING": 4, "PENDING": 96})
    fake.answer("GET /v1/jobs/sweep/explain", of_one)
    fake.answer("POST /v1/jobs/actions", [ActedOn("sweep", "sweep[0-99]", 100, 0, {"PENDING": 100})])
    out = " ".join(federator("explain", "sweep").out.split())
    assert out.startswith("4 RUNNING, 96 PENDING; this is of sweep[4]:")
    assert "sweep[0-99]  now has advice 1" in federator("apply", "sweep", "1").out
    assert json.loads(fake.of("POST /v1/jobs/actions")[0].body)["jobs"] == ["sweep"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (WaitUntil(NOW), "federator wait job-1"),
        (MoreHosts("north/a100", 1), "ask a user with the role platform"),
        (AskFor("job-1", "kinds", ("edge",)), "change its file"),
        (AskFor("job-1", "models", ("A100",), form=1), "change its file"),
        (AskFor("job-1", "approved_usd", 9.0), "federator burst approve job-1"),
        (AskFor("job-2", "deadline_at", 1.0), "ask a user with the role platform"),
    ],
)
def test_what_is_not_is_refused_with_what_to_do(
    federator: Command, fake: FakeDispatcher, change: Change, said: str
) -> None:
    fake.answer("GET /v1/jobs/train/explain", told(change))
    ran = federator("apply", "train", "1")
    assert ran.code != 0
    assert said in ran.err
    assert not fake.of("POST /v1/jobs/actions")


def test_a_number_that_there_is_not(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/train/explain", told(DEADLINE))
    ran = federator("apply", "train", "2")
    assert ran.code == 2
    assert "it is 1 to 1" in ran.err


def test_what_moved_the_forecast_is_told_since_then(federator: Command, fake: FakeDispatcher) -> None:
    because = ("urgent of bob came, and is to start before it", "north has 4 GPUs fewer")
    moves = [
        ForecastMove(NOW, "dec-1", NOW + 60, NOW + 120),
        ForecastMove(NOW + 9, "dec-2", None, None, because),
    ]
    fake.answer("GET /v1/jobs/train/forecasts", moves)
    ran = federator("explain", "train", "--since", "yesterday")
    assert ran.code == 0, ran.err
    assert "; ".join(because) in " ".join(ran.out.split())
    assert float(fake.heard[-1].query["since"]) % 3600 == 0

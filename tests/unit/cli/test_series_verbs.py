"""The verbs about series: what they send, and what they show."""

import json
from pathlib import Path

import msgspec
import pytest

from federator.cli.series import MOST_BELOW, begun, show_below
from federator.model.series import Recurrence, SeriesNote
from federator.wire.http import JobPage, Problem, SeriesDetail, SeriesRow, SubmitResult, Submitted
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW, row
from tests.unit.cli.conftest import Command

SERIES = SeriesRow(
    name="nightly",
    owner="ada",
    queue="default",
    every="6h",
    overlap="skip",
    status="ACTIVE",
    next_at=NOW + 7200.0,
    runs=3,
    last="nightly-3",
    last_status="RUNNING",
    because="next run in 2h",
)
DETAIL = SeriesDetail(
    series=SERIES,
    every=Recurrence(interval_s=21600.0),
    notes=(
        SeriesNote(NOW - 60.0, "the run due at 2025-10-09 08:53:20 UTC is skipped: nightly-2 is not over"),
    ),
)


def test_of_very_many_some_stand_below_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    show_below([SERIES] * 50, NOW, "table")
    assert capsys.readouterr().out.count("nightly-3 RUNNING") == MOST_BELOW


def test_a_file_that_begins_one_prints_its_name(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("run: x\nname: nightly\nevery: 6h\n")
    answer = Submitted((), "nightly", series="nightly", next_at=1_760_000_000.0)
    fake.answer("POST /v1/jobs", answer, 201)
    ran = federator("submit", str(file))
    assert (ran.code, ran.out) == (0, "nightly\n")
    assert begun(answer) == (
        "series nightly submitted, next run at 2025-10-09 08:53:20 UTC; next: federator series show nightly"
    )
    assert json.loads(fake.of("POST /v1/jobs")[0].body) == {"run": "x", "name": "nightly", "every": "6h"}


def test_the_list_of_jobs_shows_them_below_unless_a_filter_asks_for_some_jobs(
    federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/jobs", JobPage((row(1),), total=1))
    fake.answer("GET /v1/series", [SERIES])
    shown = federator("list").out
    assert "nightly-3 RUNNING" in shown
    assert "in 2h" in shown
    assert "nightly-3" not in federator("list", "--queue", "vision").out
    assert "nightly-3" not in federator("list", "-o", "json").out


def test_one_is_shown_with_what_did_not_come(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/series/nightly", DETAIL)
    shown = federator("series", "show", "nightly").out
    assert "next run in 2h" in shown
    assert "is skipped: nightly-2 is not over" in shown
    assert json.loads(federator("series", "show", "nightly", "-o", "json").out)["series"]["runs"] == 3


def test_the_verbs_name_whose_it_is(federator: Command, fake: FakeDispatcher) -> None:
    for verb, request in (
        ("pause", "POST /v1/series/nightly/pause"),
        ("resume", "POST /v1/series/nightly/resume"),
        ("cancel", "DELETE /v1/series/nightly"),
    ):
        fake.answer(request, DETAIL)
        ran = federator("series", verb, "nightly", "--owner", "bob")
        assert ran.code == 0, ran.err
        assert "nightly  next run in 2h" in ran.out
        assert fake.of(request)[0].query == {"owner": "bob"}


def test_where_there_is_none_it_is_said_how_one_begins(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/series", [])
    assert "every: 6h" in federator("series").err


def test_the_list_of_series(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/series", [SERIES])
    assert "nightly" in federator("series", "--mine", "--ended").out
    assert fake.of("GET /v1/series")[-1].query == {"mine": "true", "ended": "true"}


def test_a_file_for_a_paused_series_says_that_no_run_comes() -> None:
    answer = Submitted(
        (), "nightly", series="nightly", paused="paused by ada: no runs are submitted until it is resumed"
    )
    assert begun(answer) == (
        "series nightly submitted, paused by ada: no runs are submitted until it is resumed"
        " (federator series resume nightly); next: federator series show nightly"
    )


@pytest.mark.parametrize("verb", ["submit", "preview"])
def test_what_the_dispatcher_refuses_has_its_line(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, verb: str
) -> None:
    """By its clock an end may be past that a file's reader knows nothing of."""
    file = tmp_path / "job.yaml"
    file.write_text("run: x\nname: nightly\nevery:\n  interval: 6h\n  end: 2025-01-01T00:00:00Z\n")
    problem = Problem(
        "about:blank", "Invalid", 422, "leaves no time for a run", "invalid", field="$.every.end"
    )
    fake.answer("POST /v1/jobs" if verb == "submit" else "POST /v1/preview", problem, 422)
    ran = federator(verb, str(file))
    assert ran.code != 0
    assert f"$.every.end: {file}, line 5: leaves no time for a run" in ran.err


def test_of_many_that_are_sent_each_refusal_has_its_line(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("run: x\n---\nrun: y\nqueue: nowhere\n")
    problem = Problem("about:blank", "Invalid", 422, "no queue 'nowhere'", "invalid", field="$.queue")
    lines = (SubmitResult(1, submitted=Submitted(("job-1",), "x")), SubmitResult(2, problem=problem))
    fake.answer("POST /v1/jobs", b"\n".join(msgspec.json.encode(line) for line in lines), 200)
    ran = federator("submit", str(file))
    assert f"error: $.queue: {file}, line 4: no queue 'nowhere'" in ran.err

"""The keys `every` and `overlap` of a job file: what they mean, and what is said of mistakes."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.series import Overlap, Recurrence
from federator.wire.every import Repeated
from federator.wire.jobfile import read_job

NOW = 1_772_323_200.0


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"every": "10s"}, "$.every", "at least 60s"),
        ({"every": "0 3 * *"}, "$.every", "five fields"),
        ({"every": 5}, "$.every", "is not a text"),
        ({"every": {}}, "$.every", "exactly one of at and interval"),
        ({"every": {"cron": "0 3 * * *"}}, "$.every.cron", "did you mean at?"),
        ({"every": {"at": "0 3 * * *", "timezone": "Mars/Base"}}, "$.every.timezone", "no time zone"),
        (
            {"every": {"interval": "6h", "timezone": "Europe/Berlin"}},
            "$.every.timezone",
            "cannot be combined with interval",
        ),
        ({"every": {"interval": "6h", "end": "2020-01-01T00:00:00Z"}}, "$.every.end", "no time for a run"),
        ({"every": {"interval": "6h", "keep": 0}}, "$.every.keep", "from 1 to 100000"),
        ({"every": "6h", "overlap": "allow"}, "$.overlap", "queue, replace or skip"),
        ({"every": "6h", "deadline": "2027-01-01T00:00:00Z"}, "$.deadline", "finish_within"),
        ({"every": "6h", "client_id": "x"}, "$.client_id", "known by its name"),
        ({"every": "6h", "name": "n" * 60}, "$.name", "may have 52"),
        ({"every": "6h", "name": None}, "$.name", "known by its name"),
        ({"every": None, "overlap": "skip"}, "$.overlap", "no effect without every"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(given: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_job({"run": "true", "name": "nightly", **given}, now=NOW)
    assert refused.value.field == field
    assert says in refused.value.describe()


def test_what_is_written_is_what_is_read() -> None:
    every = {
        "at": " 0  3 * * mon ",
        "timezone": "Europe/Berlin",
        "start": "2027-01-01T00:00:00Z",
        "end": "2028-01-01T00:00:00Z",
        "submit_within": "2h",
        "keep": 7,
    }
    request = read_job({"run": "true", "name": "nightly", "every": every, "overlap": "queue"}, now=NOW)
    assert request.repeated == Repeated(
        Recurrence(
            cron="0 3 * * mon",
            timezone="Europe/Berlin",
            start_at=1_798_761_600.0,
            end_at=1_830_297_600.0,
            submit_within_s=7200.0,
            keep=7,
            overlap=Overlap.QUEUE,
        ),
        '{"name":"nightly","run":"true"}',
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("6h", Recurrence(interval_s=21600.0)),
        ("@daily", Recurrence(cron="@daily")),
        ("0 3 * * *", Recurrence(cron="0 3 * * *")),
        ({"interval": "1h30m"}, Recurrence(interval_s=5400.0)),
    ],
)
def test_short_ways_to_write_it(written: object, read: Recurrence) -> None:
    request = read_job({"run": "true", "name": "nightly", "every": written}, now=NOW)
    assert request.repeated is not None
    assert request.repeated.every == read

"""A forecast is shown with the moments between which it may well be."""

import msgspec
import pytest

from federator.cli.phrases import between, when_about
from federator.wire.http import JobPage
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW, TIME, detail, row
from tests.unit.cli.conftest import Command

HOUR = 3600.0
RANGES = {
    "expected_start_at": NOW + 2 * HOUR, "start_low_at": NOW + HOUR, "start_high_at": NOW + 5 * HOUR,
    "expected_finish_at": NOW + 4 * HOUR, "finish_low_at": NOW + 3 * HOUR, "finish_high_at": NOW + 9 * HOUR,
}  # fmt: skip


def test_show_says_between_when(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/train", msgspec.structs.replace(detail(), **RANGES), headers=TIME)
    fake.answer("GET /v1/jobs/job-1/events", [])
    out = federator("show", "train").out
    assert "expected start   in 2h (2025-10-09 10:53:20 UTC)  between in 1h and in 5h" in out
    assert "expected finish  in 4h (2025-10-09 12:53:20 UTC)  between in 3h and in 9h" in out


def test_a_list_has_both_where_there_is_room(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs", JobPage((row(1, **RANGES), row(2)), None, 2), headers=TIME)
    title, first, second = federator("list").out.splitlines()
    assert title[title.index("STARTS") :].split() == ["STARTS", "ENDS", "BECAUSE"]
    assert "in 2h (1h-5h)  in 4h (3h-9h)" in first
    assert second[title.index("STARTS") : title.index("BECAUSE")].split() == ["-", "-"]


@pytest.mark.parametrize(
    ("low_h", "high_h", "said"),
    [(1.0, 5.0, "in 2h (1h-5h)"), (-1.0, 5.0, "in 2h (now-5h)"), (2.0, 2.01, "in 2h"), (None, None, "in 2h")],
)
def test_a_moment_with_its_range_takes_little_room(
    low_h: float | None, high_h: float | None, said: str
) -> None:
    low_at, high_at = (None if each is None else NOW + each * HOUR for each in (low_h, high_h))
    assert when_about(NOW + 2 * HOUR, low_at, high_at, NOW) == said
    assert bool(between(low_at, high_at, NOW)) == ("(" in said)

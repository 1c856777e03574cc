"""Times as cron writes them: what matches, by the clock of a time zone, also where clocks are put forward and back."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.model.cron import check_cron, first_after, last_until


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def following(cron: str, zone: str, begin: str, count: int) -> list[str]:
    found, now = [], at(begin)
    for _ in range(count):
        now = first_after(cron, zone, now)
        found.append(datetime.fromtimestamp(now, UTC).strftime("%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "times"),
    [
        ("0 3 * * *", "UTC", ["03-28T03:00", "03-29T03:00", "03-30T03:00"]),
        # Two o'clock does not exist on the 29th of March: half past two is due right after the gap.
        ("30 2 * * *", "Europe/Berlin", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        ("*/20 3 * * sun", "UTC", ["03-29T03:00", "03-29T03:20", "03-29T03:40"]),
        ("0 0 1 * mon", "UTC", ["03-30T00:00", "04-01T00:00", "04-06T00:00"]),
        ("0 12 29 2 *", "UTC", ["02-29T12:00"]),
        ("15 22-23,0 * * 7", "UTC", ["03-29T00:15", "03-29T22:15", "03-29T23:15"]),
        ("0 0 L * *", "UTC", ["03-31T00:00", "04-30T00:00", "05-31T00:00"]),
        ("0 0 * * mon#2", "UTC", ["04-13T00:00", "05-11T00:00", "06-08T00:00"]),
        ("@monthly", "America/New_York", ["04-01T04:00", "05-01T04:00"]),
    ],
)
def test_times_follow_each_other(cron: str, zone: str, times: list[str]) -> None:
    assert following(cron, zone, "2026-03-27T12:00", len(times)) == times


def test_an_hour_that_comes_twice_counts_once_unless_each_hour_counts() -> None:
    assert following("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == ["10-25T00:30", "10-26T01:30"]
    assert following("30 * * * *", "Europe/Berlin", "2026-10-24T23:45", 3) == [
        "10-25T00:30",
        "10-25T01:30",
        "10-25T02:30",
    ]


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 3 * *", "has 4 of the five fields"),
        ("60 3 * * *", "not a valid minute"),
        ("0 24 * * *", "not a valid hour"),
        ("0 0 0 * *", "not a valid day of the month"),
        ("0 0 * 13 *", "not a valid month"),
        ("0 0 * * 8", "not a valid weekday"),
        ("0 0 * * xyz", "not a valid weekday"),
        ("*/0 0 * * *", "not a valid minute"),
        ("*/+5 0 * * *", "not a valid minute"),
        ("*/1_0 0 * * *", "not a valid minute"),
        ("*/90 * * * *", r"write at most \*/59, or an interval instead"),
        ("0 */24 * * *", r"write at most \*/23"),
        ("5-1 0 * * *", "not a valid minute"),
        ("0 0 30 feb *", "none of its months"),
        ("0 0 31 4,6,9,11 *", "none of its months"),
        ("*/1/2 * * * *", "not a valid minute"),
        ("0 0 3-1-2 * *", "not a valid day of the month"),
        ("0 0 * * mon#6", "not a valid weekday"),
        ("0 0 L/99 * *", r"write at most \*/31"),
        ("0 0 */31 * sun#5", "none of its months"),
        ("0 " * 100, "has 100 of the five fields"),
        ("@sometimes", "five fields"),
        ("", "five fields"),
    ],
)
def test_what_is_wrong_is_said(cron: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_cron(cron)


fields = st.tuples(
    st.sampled_from(["*", "0", "*/15", "7,38", "10-20/5"]),
    st.sampled_from(["*", "0", "2", "3", "1-4", "*/6"]),
    st.sampled_from(["*", "1", "29", "31", "*/10", "L"]),
    st.sampled_from(["*", "2,3", "10", "jan-dec/3"]),
    st.sampled_from(["*", "sun", "1-5", "7", "fri#2"]),
).map(" ".join)
ALL_YEAR = ("UTC", "Asia/Kolkata")
CHANGING = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana")
minutes = st.integers(0, 366 * 1440)


@given(fields, st.sampled_from(ALL_YEAR + CHANGING), minutes)
def test_the_next_time_is_ahead_and_the_last_one_is_not(cron: str, zone: str, minute: int) -> None:
    """Whatever the clocks do: else a series would be due again at once, or never."""
    begin = at("2026-01-01T00:00") + minute * 60.0
    assert last_until(cron, zone, begin) <= begin < first_after(cron, zone, begin)


@given(fields, st.sampled_from(ALL_YEAR), minutes)
def test_there_and_back_are_the_same_times(cron: str, zone: str, minute: int) -> None:
    begin = at("2026-01-01T00:00") + minute * 60.0 + 0.5
    found, before = first_after(cron, zone, begin), last_until(cron, zone, begin)
    assert (last_until(cron, zone, found), first_after(cron, zone, before)) == (found, found)
    assert last_until(cron, zone, found - 0.5) == before


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Havana"])
def test_a_time_that_has_repeated_is_not_due_again(zone: str) -> None:
    """In the hour that comes twice, the clock shows the same times once more."""
    second_hour = at("2026-10-25T01:10") if zone == "Europe/Berlin" else at("2026-11-01T05:10")
    for minute in range(0, 60, 5):
        now = second_hour + minute * 60.0
        assert last_until("45 0,2 * * *", zone, now) <= now < first_after("45 0,2 * * *", zone, now)


def test_a_day_of_every_minute_has_as_many() -> None:
    cron, begin = "* * * * *", at("2026-11-01T00:00")
    now, end, count = begin - 1, begin + timedelta(days=1).total_seconds(), 0
    while (now := first_after(cron, "America/New_York", now)) < end:
        count += 1
    assert count == 1440


def test_a_29th_of_february_on_a_sunday_is_found_though_it_is_decades_away() -> None:
    after = first_after("0 0 29 2 */7", "UTC", at("2088-03-01"))
    assert after == at("2128-02-29")


def test_what_is_due_just_after_a_fraction_of_a_second_is_not_left_out() -> None:
    due = at("2026-03-01T01:00")
    just_before = math.nextafter(due, 0.0)
    assert first_after("0 * * * *", "Europe/Berlin", just_before) == due
    assert last_until("0 * * * *", "Europe/Berlin", just_before) == due - 3600.0

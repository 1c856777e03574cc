"""Times as cron writes them: what matches, by the clock of a time zone, also where clocks are put forward and back."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.cron import first_after, last_until, parse_cron


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def following(cron: str, zone: str, begin: str, count: int) -> list[str]:
    found, now = [], at(begin)
    for _ in range(count):
        now = first_after(parse_cron(cron), zone, now)
        found.append(datetime.fromtimestamp(now, UTC).strftime("%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "times"),
    [
        ("0 3 * * *", "UTC", ["03-28T03:00", "03-29T03:00", "03-30T03:00"]),
        # Two o'clock does not exist on the 29th of March: half past two comes as half past three.
        ("30 2 * * *", "Europe/Berlin", ["03-28T01:30", "03-29T01:30", "03-30T00:30"]),
        ("*/20 3 * * sun", "UTC", ["03-29T03:00", "03-29T03:20", "03-29T03:40"]),
        ("0 0 1 * mon", "UTC", ["03-30T00:00", "04-01T00:00", "04-06T00:00"]),
        ("0 12 29 2 *", "UTC", ["02-29T12:00"]),
        ("15 22-23,0 * * 7", "UTC", ["03-29T00:15", "03-29T22:15", "03-29T23:15"]),
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
        ("@sometimes", "five fields"),
        ("", "five fields"),
    ],
)
def test_what_is_wrong_is_said(cron: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_cron(cron)


fields = st.tuples(
    st.sampled_from(["*", "0", "*/15", "7,38", "10-20/5"]),
    st.sampled_from(["*", "0", "2", "3", "1-4", "*/6"]),
    st.sampled_from(["*", "1", "29", "31", "*/10"]),
    st.sampled_from(["*", "2,3", "10", "jan-dec/3"]),
    st.sampled_from(["*", "sun", "1-5", "7"]),
).map(" ".join)
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])


@given(fields, zones, st.integers(0, 366 * 1440))
def test_every_time_is_one_that_matches_and_none_is_left_out(cron: str, zone: str, minute: int) -> None:
    """Against the plainest reading: minute by minute, of all minutes whose clock shows what is written."""
    try:
        known = parse_cron(cron)
    except ValueError:
        return
    begin = at("2026-01-01T00:00") + minute * 60.0
    found = first_after(known, zone, begin)
    assert last_until(known, zone, found) == found
    assert last_until(known, zone, begin) <= begin < found
    assert first_after(known, zone, last_until(known, zone, begin)) == found
    local = datetime.fromtimestamp(found, ZoneInfo(zone))
    moved = local.utcoffset() != datetime.fromtimestamp(found - 7200, ZoneInfo(zone)).utcoffset()
    assert moved or (local.minute in known.minutes and local.hour in known.hours)
    assert known.on(local.date())
    for step in range(1, min(int((found - begin) // 60), 600)):
        seen = datetime.fromtimestamp(begin - begin % 60 + step * 60.0, ZoneInfo(zone))
        shows = seen.minute in known.minutes and seen.hour in known.hours and known.on(seen.date())
        assert not shows or (seen.fold and not known.each_hour) or seen.timestamp() <= begin


def test_a_day_of_every_minute_has_as_many() -> None:
    cron, begin = parse_cron("* * * * *"), at("2026-11-01T00:00")
    now, end, count = begin - 1, begin + timedelta(days=1).total_seconds(), 0
    while (now := first_after(cron, "America/New_York", now)) < end:
        count += 1
    assert count == 1440


def test_a_29th_of_february_on_a_sunday_is_found_though_it_is_decades_away() -> None:
    after = first_after(parse_cron("0 0 29 2 */7"), "UTC", at("2088-03-01"))
    assert after == at("2128-02-29")

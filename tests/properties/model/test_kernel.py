"""Ids keep their order whatever the clock does, and quantities survive being written and read."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.clock import ManualClock
from federator.kernel.ids import ALPHABET, LENGTH, IdSource
from federator.kernel.quantities import (
    MAX_DURATION_S,
    format_duration,
    format_instant,
    format_mib,
    parse_duration_s,
    parse_instant,
    parse_usd,
)
from federator.wire.fields import size_mib


@given(st.lists(st.tuples(st.floats(-100.0, 100.0), st.integers(0, 2**80 - 1)), min_size=2, max_size=20))
def test_ids_of_one_source_differ_and_never_go_back_even_when_the_clock_does(
    draws: list[tuple[float, int]],
) -> None:
    clock = ManualClock(1_700_000_000.0)
    bits = iter([value for _, value in draws])
    source = IdSource(clock, lambda _: next(bits))
    made = []
    for step_s, _ in draws:
        clock.at += step_s
        made.append(source.new("job"))
    assert made == sorted(set(made))
    assert all(len(name) == len("job-") + LENGTH and set(name[4:]) <= set(ALPHABET) for name in made)


@given(st.floats(0.001, MAX_DURATION_S))
def test_a_duration_that_is_written_reads_back_within_what_two_units_can_say(seconds: float) -> None:
    back = parse_duration_s(format_duration(seconds))
    # Two units at most: days and hours leave out less than an hour, and so on down to half a second or millisecond.
    coarse = 3600.0 if seconds >= 86_399.5 else 60.0 if seconds >= 3599.5 else 0.5 if seconds >= 1 else 0.0005
    assert abs(back - seconds) <= coarse + 0.5 * (seconds >= 3599.5) + 1e-9


@given(st.integers(0, 9), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_units_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration_s(f"{days}d{hours}h{minutes}m{seconds}s") == total


@given(st.sampled_from(["", " ", "5", "m", "5 parsecs", "-5m", "1h-", "h1"]))
def test_what_is_no_duration_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="for example"):
        parse_duration_s(text)


@given(st.integers(1, 2**40))
def test_a_size_that_is_written_reads_back_to_four_digits(mib: int) -> None:
    text = format_mib(mib)
    if "e" not in text:  # four digits of a number beyond 9999 TiB
        assert math.isclose(size_mib(text, "$", high_mib=2**41), mib, rel_tol=1e-3, abs_tol=1)


@given(st.integers(1, 2**30))
def test_a_size_in_mib_is_exact_and_bytes_round_up(mib: int) -> None:
    assert size_mib(f"{mib}MiB", "$", high_mib=2**41) == mib
    assert size_mib(f"{mib * 2**20 - 1}B", "$", high_mib=2**41) == mib
    assert size_mib(f"{(mib - 1) * 2**20 + 1}B", "$", high_mib=2**41) == mib


@given(st.integers(0, 10**9), st.integers(0, 99))
def test_money_reads_in_every_spelling(dollars: int, cents: int) -> None:
    number = f"{dollars}.{cents:02}"
    assert parse_usd(f"${number}") == parse_usd(f"{number} USD") == parse_usd(number) == float(number)


@given(st.integers(0, 4_000_000_000))
def test_an_instant_that_is_written_reads_back_exactly(at: int) -> None:
    assert parse_instant(format_instant(float(at))) == at

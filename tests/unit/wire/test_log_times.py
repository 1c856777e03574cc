"""When the bytes of a log were written, as it is said beside a chunk."""

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.wire.log_times import MOST_TIMES, LogTime, read_times, times_text, within
from tests.support.examples import examples

TIMES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 2**31)), max_size=MOST_TIMES).map(
    lambda pairs: sorted(LogTime(offset, float(at)) for offset, at in pairs)
)


@settings(max_examples=examples(50))
@given(TIMES)
def test_what_is_said_is_understood(times: list[LogTime]) -> None:
    assert read_times(times_text(times)) == times


@settings(max_examples=examples(100))
@given(st.text(alphabet="0123456789=,.einfa- \u0663", max_size=200))
def test_nonsense_is_left_out(text: str) -> None:
    assert all(each.offset >= 0 for each in read_times(text))


def test_of_too_many_the_last_are_said() -> None:
    times = [LogTime(number, float(number)) for number in range(MOST_TIMES + 50)]
    assert read_times(times_text(times)) == times[50:]
    assert len(read_times(",".join(["1=1"] * 1000))) <= MOST_TIMES


def test_a_chunk_begins_with_the_time_of_its_first_byte() -> None:
    times = [LogTime(0, 1.0), LogTime(10, 2.0), LogTime(20, 3.0)]
    assert within(times, 12, 20) == [(12, 2.0)]
    assert within(times, 12, 21) == [(12, 2.0), (20, 3.0)]
    assert within(times, 10, 15) == [(10, 2.0)]
    assert within(times, 30, 30) == []
    assert within(times[1:], 0, 15) == [(10, 2.0)], "of what comes before them nothing is known"

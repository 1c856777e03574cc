"""Lines of a log, cut from parts that know nothing of lines."""

import pytest

from federator.cli import log_lines
from federator.cli.log_lines import LogLines
from federator.kernel.errors import Invalid
from federator.wire.log_times import LogPart

AT = 1_767_225_600.25


def lines(made: LogLines, *parts: LogPart) -> list[bytes]:
    return [line for part in parts for line in made.take(part)] + list(made.end())


@pytest.mark.usefixtures("berlin")
def test_a_line_has_the_time_of_its_first_byte() -> None:
    found = lines(
        LogLines(None, timestamps=True),
        LogPart(0, b"one\ntw", AT),
        LogPart(6, b"o\nthree", AT + 60),
        LogPart(13, b"", None),
    )
    assert found == [
        b"2026-01-01T01:00:00.250+01:00 one\n",
        b"2026-01-01T01:00:00.250+01:00 two\n",
        b"2026-01-01T01:01:00.250+01:00 three\n",
    ]


def test_a_line_without_a_time_says_so() -> None:
    assert lines(LogLines(None, timestamps=True), LogPart(0, b"old\n")) == [b"- old\n"]


def test_only_lines_that_match_over_the_edges_of_parts() -> None:
    made = LogLines(r"^step \d+$", timestamps=False)
    assert lines(made, LogPart(0, b"step 1\r\nnote\nst"), LogPart(2, b"ep 22\nstep x")) == [
        b"step 1\r\n",
        b"step 22\n",
    ]


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "LONGEST", 10)
    assert lines(LogLines("x", timestamps=False), LogPart(0, b"x" * 25)) == [b"x" * 25]
    made = LogLines("x", timestamps=False)
    taken = [line for number in range(5) for line in made.take(LogPart(4 * number, b"xxxx"))]
    assert taken == [b"x" * 12]


def test_what_is_no_expression_is_said() -> None:
    with pytest.raises(Invalid, match="regular expression") as caught:
        LogLines("(", timestamps=False)
    assert caught.value.field == "--grep"

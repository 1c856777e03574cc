"""Tables fit the terminal and lose nothing in a pipe; times read as people say them; nothing steers the terminal."""

import io
import json
from itertools import takewhile

import msgspec
import pytest
from rich.console import Console

from federator.cli.columns import job_columns
from federator.cli.exit_codes import EXITS, MEANINGS, exit_of
from federator.cli.layout import table
from federator.cli.output import say_error, show_data, show_rows
from federator.cli.phrases import ago, gpus, plain, usd, when
from federator.kernel import errors
from federator.model.jobs import Job, JobStatus, Outcome, TerminalReason
from federator.wire.http import GpuPoint, JobRow
from federator.wire.usage import UsageReport, UsageRow

NOW = 1_760_000_000.0
REASON = "no GPUs are free at north before 14:00, and policy research-burst does not permit renting for waiting alone"
ROW = JobRow(
    id="job-01m7y3s7tdr9f6p6y33mb1cjfs", name="train\x1b[2J", owner="ada", queue="research", status="PENDING", priority=50,
    nodes=2, gpus=4, models="A100", submitted_at=NOW - 200, deadline_at=NOW + 7300, because=REASON,
)  # fmt: skip


def drawn(width: int, *, wide: bool = False) -> list[str]:
    out = Console(file=io.StringIO(), width=width)
    out.print(table([ROW], job_columns(NOW), width=width, wide=wide))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_line_of_a_list_is_one_line_and_keeps_the_id_whole(width: int) -> None:
    lines = drawn(width)
    rows = list(takewhile(lambda line: not line.startswith("(no room for"), lines))
    assert len(rows) == 2
    assert max(len(line) for line in lines) <= width
    assert ROW.id in lines[1]


def test_where_there_is_room_for_nothing_else_even_ids_are_wrapped() -> None:
    lines = drawn(40)
    assert max(len(line) for line in lines) <= 40
    assert "".join(line.split()[0] for line in lines[1:]).startswith(ROW.id)


def test_what_there_is_no_room_for_is_said() -> None:
    assert " ".join(drawn(80)[2].split()) == "(no room for GPUS, DEADLINE; widen the terminal)"
    assert len(drawn(120)) == 2
    assert len(drawn(60, wide=True)) == 2


def test_on_a_narrow_terminal_what_says_nothing_makes_room_for_what_does() -> None:
    rows = [msgspec.structs.replace(ROW, name="a", deadline_at=None, because="done")]
    out = Console(file=io.StringIO(), width=80)
    out.print(table(rows, job_columns(NOW), width=80))
    assert isinstance(out.file, io.StringIO)
    (titles, _) = out.file.getvalue().splitlines()
    assert titles.split() == ["ID", "NAME", "STATUS", "GPUS", "AGE", "BECAUSE"]


def test_columns_come_with_the_width_of_the_terminal() -> None:
    assert "DEADLINE" not in drawn(80)[0]
    assert "DEADLINE" in drawn(120)[0]
    assert "QUEUE" in drawn(300, wide=True)[0]


def test_a_pipe_gets_every_word(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([ROW], job_columns(NOW), "table", empty="none")
    out = capsys.readouterr().out
    assert REASON in out
    assert not any(line.endswith(" ") for line in out.splitlines())
    assert "\x1b" not in out


def test_an_empty_list_is_said_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], job_columns(NOW), "table", empty="no jobs")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "no jobs\n")
    show_rows([], job_columns(NOW), "json", empty="no jobs")
    assert capsys.readouterr().out == "[]\n"


def test_json_and_yaml_have_the_fields_of_the_api_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    show_data([ROW], "json")
    assert capsys.readouterr().out.splitlines()[2] == f'    "id": "{ROW.id}",'
    show_data([ROW], "yaml")
    assert capsys.readouterr().out.startswith(f"- id: {ROW.id}\n  name: ")


def test_times_read_as_people_say_them() -> None:
    assert when(NOW + 7380, NOW) == "in 2h3m"
    assert when(NOW - 61, NOW) == "1m1s ago"
    assert when(NOW + 0.2, NOW) == "now"
    assert when(NOW + 9 * 86400 + 3601, NOW) == "in 9d1h"
    assert when(None, NOW) == "-"
    assert ago(NOW - 3700, NOW) == "1h2m"
    assert ago(NOW - 0.3, NOW) == "0s"
    assert ago(NOW + 5, NOW) == "0s"


def test_money_and_gpus() -> None:
    assert [usd(0), usd(0.0123), usd(1234.5), usd(None)] == ["0.00 USD", "0.012 USD", "1,234.50 USD", "-"]
    assert [gpus(1, 0), gpus(1, 4, "A100"), gpus(2, 4), gpus(2, 0)] == ["-", "4 A100", "2x4", "2x0"]


def test_text_from_elsewhere_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[2Jb\r\nc\x07é") == "a [2Jb  c é"


def ended(status: JobStatus, reason: TerminalReason, exit_code: int | None = None) -> Job:
    return Job(
        id="j", name="n", owner="o", queue="q", status=status, spec_hash="", submitted_at=0.0,
        outcome=Outcome(reason, exit_code=exit_code),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (ended(JobStatus.SUCCEEDED, TerminalReason.DONE, 0), 0),
        (ended(JobStatus.FAILED, TerminalReason.EXIT_CODE, 7), 7),
        (ended(JobStatus.FAILED, TerminalReason.EXIT_CODE, -9), 137),
        (ended(JobStatus.FAILED, TerminalReason.EXIT_CODE, 256), 125),
        (ended(JobStatus.FAILED, TerminalReason.MAX_DURATION, 143), 124),
        (ended(JobStatus.FAILED, TerminalReason.STAGING_FAILED), 125),
        (ended(JobStatus.FAILED, TerminalReason.OUT_OF_MEMORY, 137), 137),
        (ended(JobStatus.CANCELLED, TerminalReason.CANCELLED), 125),
        (ended(JobStatus.FAILED, TerminalReason.RETRIES_SPENT, 0), 125),
    ],
)
def test_a_jobs_end_as_an_exit_code_is_never_0_unless_it_succeeded(job: Job, code: int) -> None:
    assert exit_of(job) == code


def test_every_exit_code_has_a_meaning_and_every_error_a_code() -> None:
    assert set(EXITS.values()) <= set(MEANINGS)
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.FederatorError)
    ]
    assert kinds
    for kind in kinds:
        assert any(base in EXITS for base in kind.__mro__), kind


class Screen(io.StringIO):
    """A terminal, as far as `isatty` can tell."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals_and_not_for_those_who_want_none(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], coloured: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    out, err = (Screen(), Screen()) if terminal else (io.StringIO(), io.StringIO())
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    show_rows([ROW], job_columns(NOW), "table", empty="")
    say_error("something")
    assert ("\x1b[" in out.getvalue()) is coloured
    assert ("\x1b[" in err.getvalue()) is coloured


def test_every_instant_is_written_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    usage = UsageReport(whose="ada", since=NOW, until=NOW + 60, rows=(), total=UsageRow())
    show_data((usage, GpuPoint(NOW, 5.0, 0.0)), "json")
    first, second = json.loads(capsys.readouterr().out)
    assert (first["since"], first["until"]) == ("2025-10-09T08:53:20Z", "2025-10-09T08:54:20Z")
    assert second["at"] == first["since"]

"""What jobs, users and agents write reaches terminals and logs as letters, and never as orders."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from rich.console import Console

from federator.cli import columns
from federator.cli.layout import table
from federator.cli.output import say_error, show_data
from federator.cli.sanitize import LogOutput, harmless
from federator.cli.series import series_columns
from federator.model.events import Event, LedgerEntry, LedgerKind
from federator.telemetry import configure_logging, get_logger
from federator.wire.http import JobRow, MemberRow, QueueRow, SeriesRow, SiteRow
from federator.wire.yamltext import read_document

HOSTILE = (
    "x\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\x7f\u202e[red]y[/red][link=http://evil]z[/link]\ninfo: forged"
)
STEERS = set(map(chr, range(32))) - set("\n\t") | {chr(number) for number in range(0x7F, 0xA0)} | {"\u202e"}


class Terminal(io.TextIOWrapper):
    """Standard output that says it is a terminal, or a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def sent(self) -> bytes:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


def stdout(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> Terminal:
    out = Terminal(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", out)
    return out


def test_a_log_cannot_steer_the_terminal_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stdout(monkeypatch, terminal=True)
    log = (HOSTILE + "\r\nplain\ttext, größer\n").encode()
    shown = LogOutput()
    for at in range(len(log)):  # letters of several bytes are cut wherever a chunk ends
        shown.write(log[at : at + 1])
    text = out.sent.decode()
    assert not STEERS & set(text.replace("\r\n", "\n"))
    assert "\u241b[2J" in text
    assert "<U+009B>31m" in text
    assert "plain\ttext, größer\n" in text


@pytest.mark.parametrize(("terminal", "raw"), [(False, False), (True, True)])
def test_pipes_and_those_who_ask_for_it_get_all_bytes(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool, raw: bool
) -> None:
    out = stdout(monkeypatch, terminal=terminal)
    log = HOSTILE.encode() + b"\xff\xfe\x00"
    LogOutput(raw=raw).write(log)
    assert out.sent == log


def test_bytes_that_are_no_text_are_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stdout(monkeypatch, terminal=True)
    LogOutput().write(b"\x9b2J\xff\x00 end\n")
    assert not STEERS & set(out.sent.decode())
    assert out.sent.endswith(b" end\n")


def hostile(row: type, /, **fields: Any) -> Any:
    """A row all of whose texts are hostile."""
    texts = {
        each.name: HOSTILE
        for each in msgspec.structs.fields(row)
        if each.type is str or each.type == (str | None)
    }
    return row(**{**texts, **fields})


LISTS: list[tuple[Any, Callable[[], Any]]] = [
    (hostile(JobRow, priority=1, nodes=1, gpus=1), lambda: columns.job_columns(0.0)),
    (hostile(SiteRow), columns.site_columns),
    (hostile(MemberRow), columns.member_columns),
    (hostile(QueueRow), columns.queue_columns),
    (hostile(Event, at=0.0), lambda: columns.event_columns(0.0)),
    (hostile(LedgerEntry, at=0.0, kind=LedgerKind.ACT), columns.ledger_columns),
    (hostile(SeriesRow), lambda: series_columns(0.0)),
]


@pytest.mark.parametrize(("row", "make"), LISTS, ids=lambda each: type(each).__name__)
def test_a_list_cannot_steer_the_terminal_or_style_itself(row: Any, make: Callable[[], Any]) -> None:
    out = Console(file=io.StringIO(), width=4000, color_system=None, markup=False)
    out.print(table([row], make(), width=4000, wide=True))
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert not STEERS & set(text)
    assert "[red]y[/red][link=http://evil]z[/link]" in text


def test_json_and_errors_hold_nothing_that_steers(capsys: pytest.CaptureFixture[str]) -> None:
    show_data({"name": HOSTILE}, "json")
    said = capsys.readouterr().out
    assert not STEERS & set(said)
    assert json.loads(said)["name"] == HOSTILE
    show_data({"name": HOSTILE}, "yaml")
    said = capsys.readouterr().out
    assert not STEERS & set(said)
    assert read_document(said).value == {"name": HOSTILE}
    show_data({"name": "größer"}, "yaml")
    assert capsys.readouterr().out == "name: größer\n"
    say_error(f"no job {HOSTILE}")
    assert not STEERS & set(capsys.readouterr().err)


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """What is logged as lines for people."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_what_an_agent_says_is_one_line_of_the_dispatchers_log(logs: io.StringIO) -> None:
    get_logger("hub").info(HOSTILE, member=HOSTILE)
    logging.getLogger("federator_agent").warning("a checkpoint of %s is not pushed", HOSTILE)
    lines = logs.getvalue().splitlines()
    assert len(lines) == 2
    assert not STEERS & set("".join(lines))
    assert not [line for line in lines if line.startswith("info: forged")]
    assert "\\ninfo: forged" in lines[0]


def raise_it() -> None:
    raise ValueError(HOSTILE)


def test_a_traceback_forges_no_colours(logs: io.StringIO) -> None:
    try:
        raise_it()
    except ValueError:
        logging.getLogger("federator").exception("failed")
    assert not STEERS & set(logs.getvalue())


def test_signs_stand_for_letters_one_by_one() -> None:
    assert harmless("a\tb\nc\x00\x1b\x7f") == "a\tb\nc\u2400\u241b\u2421"

"""How answers are shown: tables for people (`layout`), or JSON and YAML for programs.

Programs read `-o json`, whose fields are those of the HTTP API.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from federator.cli.layout import PIPE_WIDTH, Column, Row, table
from federator.cli.phrases import NONE, between, plain, when_exactly
from federator.cli.sanitize import harmless, harmless_json
from federator.kernel.quantities import format_instant_exactly

Format = Literal["table", "wide", "json", "yaml"]
ListFormat = Literal["table", "wide", "csv", "json", "yaml"]
Output = Annotated[Format, Parameter(name=("-o", "--output"), help="How to show it.")]
ListOutput = Annotated[ListFormat, Parameter(name=("-o", "--output"), help="How to show it.")]

INSTANTS = {"at", "since", "until", "now"}
LAST_INSTANT = 253_402_300_800.0
"""The end of the year 9999; what is later is shown as a number."""
STYLES = {
    "RUNNING": "green", "SUCCEEDED": "green", "READY": "green", "PLACED": "cyan", "STARTING": "cyan", "BOOTING": "cyan",
    "LAUNCHING": "cyan", "REQUESTED": "cyan", "PENDING": "yellow", "HELD": "magenta", "SUSPENDING": "magenta",
    "CANCELLING": "magenta", "DRAINING": "magenta", "RECOVERING": "red", "FAILED": "bold red", "LOST": "bold red",
    "UNREACHABLE": "red", "DEGRADED": "yellow", "INTERRUPTED": "red", "CANCELLED": "dim", "GONE": "dim",
    "ACTIVE": "green", "PAUSED": "magenta", "ENDED": "dim", "UNRENTED": "dim",
}  # fmt: skip


def coloured() -> bool:
    """Whether colours and bold letters are wanted: not with NO_COLOR, nor on a terminal that knows none."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def console() -> Console:
    """The terminal, or a pipe of any width. Colours only on a terminal, whatever FORCE_COLOR says, and not with NO_COLOR."""
    terminal = sys.stdout.isatty()
    plain_letters = not (terminal and coloured())
    return Console(
        width=None if terminal else PIPE_WIDTH,
        color_system=None if plain_letters else "auto",
        force_terminal=terminal,
        highlight=False,
        emoji=False,
        markup=False,
    )


def width() -> int:
    """How many letters a line may have."""
    return console().width


def show(*parts: RenderableType, whole: bool = False) -> None:
    """Print parts below each other; the terminal wraps texts, and all that is `whole`. No line ends in blanks."""
    out = console()
    if whole:
        out.width = PIPE_WIDTH
    with out.capture() as capture:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str | Text))
    text = capture.get()
    print("\n".join(line.rstrip() for line in text.split("\n")), end="")


def status(word: str) -> Text:
    """A status in its colour."""
    return Text(plain(word), style=STYLES.get(word, ""))


def show_rows(rows: Sequence[Row], columns: Iterable[Column[Row]], output: ListFormat, *, empty: str) -> None:
    """A list, in the format that was asked for. `empty` is said when there is nothing to list."""
    if output == "csv":
        show_csv(rows)
    elif output in ("json", "yaml"):
        show_data(rows, output)
    elif rows:
        wide = output == "wide"
        show(table(rows, columns, width=width(), wide=wide, says_how=True), whole=wide)
    else:
        print(empty, file=sys.stderr)


def show_csv(rows: Sequence[object], fields: Sequence[str] = ()) -> None:
    """Records as CSV with a line of titles: all their fields, or these. What is no text or number is JSON."""
    import csv
    from io import StringIO

    records = with_instants(rows)
    assert isinstance(records, list)
    text = StringIO()
    names = list(fields or dict.fromkeys(name for record in records for name in record))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_as_cell(record.get(name)) for name in names] for record in records)
    print(harmless(text.getvalue()) if sys.stdout.isatty() else text.getvalue(), end="")


def _as_cell(value: object) -> object:
    plain_value = value is None or isinstance(value, str | int | float)
    return value if plain_value else msgspec.json.encode(value).decode()


def with_instants(value: object) -> object:
    """Records as JSON has them, with each instant (a number in a field of `INSTANTS`, or that ends in `_at`) as RFC 3339 in UTC."""
    return _with_instants(msgspec.to_builtins(value))


def _with_instants(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        return {key: _with_instants(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_instants(each, name) for each in value]
    named = name.endswith("_at") or name in INSTANTS
    is_instant = named and isinstance(value, int | float) and 0 <= value < LAST_INSTANT
    return format_instant_exactly(value) if is_instant and isinstance(value, int | float) else value


def show_data(value: object, output: ListFormat, *, as_it_is: bool = False) -> None:
    """A value as JSON or YAML. `as_it_is`: a file of ours that programs read back, with its instants as numbers."""
    value = msgspec.to_builtins(value) if as_it_is else with_instants(value)
    if output == "yaml":
        from federator.wire.yamltext import write_document

        text = write_document(value)
        print(text if text == harmless(text) else write_document(value, ascii_only=True), end="")
    else:
        print(harmless_json(msgspec.json.format(msgspec.json.encode(value)).decode()))


def facts(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and values below each other; pairs whose value is empty or a dash are left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if str(value) not in ("", NONE):
            grid.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return grid


def expected(at: float | None, low_at: float | None, high_at: float | None, now: float) -> Text:
    """When something is expected, and between when it may well be; a dash where nobody knows."""
    return within(when_exactly(at, now), low_at, high_at, now)


def within(moment: str | Text, low_at: float | None, high_at: float | None, now: float) -> Text:
    """A moment, and between which it may well be."""
    text = Text(moment) if isinstance(moment, str) else moment
    if said := between(low_at, high_at, now):
        text.append(f"  {said}", style="dim")
    return text


def say(text: str) -> None:
    """A remark for a person: on stderr, and only where a person reads it."""
    if sys.stderr.isatty():
        print(harmless(text), file=sys.stderr)


def say_error(sentence: str) -> None:
    """One line on stderr, in red where a person reads it and wants colours."""
    mark = "\033[31merror:\033[0m" if sys.stderr.isatty() and coloured() else "error:"
    print(f"{mark} {harmless(sentence)}", file=sys.stderr)

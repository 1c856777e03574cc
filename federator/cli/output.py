"""How answers are shown: tables for people (`layout`), or JSON and YAML for programs.

Programs read `-o json`, whose fields are those of the HTTP API.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from federator.cli.harmless import harmless, harmless_json
from federator.cli.layout import PIPE_WIDTH, Column, Row, table
from federator.cli.phrases import NONE, between, plain, when_exactly
from federator.cli.settings import coloured

Format = Literal["table", "wide", "json", "yaml"]
Output = Annotated[Format, Parameter(name=("-o", "--output"), help="How to show it.")]

STYLES = {
    "RUNNING": "green", "SUCCEEDED": "green", "READY": "green", "PLACED": "cyan", "STARTING": "cyan", "BOOTING": "cyan",
    "LAUNCHING": "cyan", "REQUESTED": "cyan", "PENDING": "yellow", "HELD": "magenta", "SUSPENDING": "magenta",
    "CANCELLING": "magenta", "DRAINING": "magenta", "RECOVERING": "red", "FAILED": "bold red", "LOST": "bold red",
    "UNREACHABLE": "red", "DEGRADED": "yellow", "INTERRUPTED": "red", "CANCELLED": "dim", "GONE": "dim",
    "ACTIVE": "green", "PAUSED": "magenta", "ENDED": "dim",
}  # fmt: skip


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


def show_rows(rows: Sequence[Row], columns: Iterable[Column[Row]], output: Format, *, empty: str) -> None:
    """A list, in the format that was asked for. `empty` is said when there is nothing to list."""
    if output in ("json", "yaml"):
        show_data(rows, output)
    elif rows:
        wide = output == "wide"
        show(table(rows, columns, width=width(), wide=wide, says_how=True), whole=wide)
    else:
        print(empty, file=sys.stderr)


def show_data(value: object, output: Format) -> None:
    """A value as JSON or YAML."""
    if output == "yaml":
        from federator.wire.yamltext import write_document

        plain_value = msgspec.to_builtins(value)
        text = write_document(plain_value)
        print(text if text == harmless(text) else write_document(plain_value, ascii_only=True), end="")
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

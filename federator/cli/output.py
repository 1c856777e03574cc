"""How answers are shown: tables that fit the terminal, or JSON and YAML for programs.

Tables are for people: on narrow terminals the less important columns are left out, which is said below, and the last one is cut; when the output is a
pipe, nothing is cut. Programs read `-o json`, whose fields are those of the HTTP API.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Generic, Literal, NamedTuple, TypeVar

import msgspec
from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from federator.cli.phrases import NONE, between, plain, when_exactly
from federator.cli.settings import coloured

Row = TypeVar("Row")
Format = Literal["table", "wide", "json", "yaml"]
Output = Annotated[Format, Parameter(name=("-o", "--output"), help="How to show it.")]
PIPE_WIDTH = 100_000
GAP = 2
LEAST_FLOW = 20
NARROW = 100
"""On a terminal that has less, columns without any content make room."""

STYLES = {
    "RUNNING": "green", "SUCCEEDED": "green", "READY": "green", "PLACED": "cyan", "STARTING": "cyan", "BOOTING": "cyan",
    "LAUNCHING": "cyan", "REQUESTED": "cyan", "PENDING": "yellow", "HELD": "magenta", "SUSPENDING": "magenta",
    "CANCELLING": "magenta", "DRAINING": "magenta", "RECOVERING": "red", "FAILED": "bold red", "LOST": "bold red",
    "UNREACHABLE": "red", "DEGRADED": "yellow", "INTERRUPTED": "red", "CANCELLED": "dim", "GONE": "dim",
    "ACTIVE": "green", "PAUSED": "magenta", "ENDED": "dim",
}  # fmt: skip


class Column(NamedTuple, Generic[Row]):
    """A column of a table. `least` is the terminal's width from which on it is shown; `wide` ones come with `-o wide`.

    A column that flows has what the others leave: its text is cut there, or wrapped. `cap` bounds the width of another.
    """

    title: str
    value: Callable[[Row], str | Text]
    wide: bool = False
    right: bool = False
    least: int = 0
    cap: int = 1000
    flow: Literal["", "cut", "fold"] = ""


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


def table(
    rows: Iterable[Row],
    columns: Iterable[Column[Row]],
    *,
    width: int,
    wide: bool = False,
    says_how: bool = False,
) -> Table:
    """Rows under their titles, without lines. With `wide` nothing is left out or cut; else what is left out for lack of room is named below."""
    rows = list(rows)
    usual = [column for column in columns if wide or not column.wide]
    shown = [column for column in usual if wide or width >= column.least]
    if width < NARROW and not wide:
        usual = [usual[0], *(column for column in usual[1:] if _says_anything(column, rows))]
        shown = _with_room(usual, shown, rows, width)
    missing = [column for column in usual if column not in shown and _says_anything(column, rows)]
    lines = [[_cell(column.value(row)) for column in shown] for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    if missing:
        made.caption = f"(no room for {', '.join(column.title for column in missing)}; widen the terminal{', or -o wide' if says_how else ''})"
        made.caption_justify, made.caption_style = "left", "dim"
    for column, room in zip(shown, _widths(shown, lines, PIPE_WIDTH if wide else width), strict=True):
        made.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=room,
            no_wrap=column.flow != "fold",
            overflow="fold" if column.flow == "fold" else "ellipsis",
        )
    for line in lines:
        made.add_row(*line)
    return made


def _with_room(
    usual: Sequence[Column[Row]], shown: Sequence[Column[Row]], rows: Sequence[Row], width: int
) -> list[Column[Row]]:
    """Of the usual columns those that are shown, and of the others, the most important first, as many as there is room for."""
    kept = [column for column in usual if column in shown]
    for column in sorted(usual, key=lambda column: column.least):
        more = [each for each in usual if each in kept or each is column]
        if column not in kept and sum(_needs(each, rows) + GAP for each in more) - GAP <= width:
            kept = more
    return kept


def _needs(column: Column[Row], rows: Sequence[Row]) -> int:
    """Letters for a column; one that flows makes do with some."""
    texts = [column.title, *(str(column.value(row)) for row in rows)]
    longest = max(cell_len(part) for text in texts for part in text.split("\n"))
    return min(longest, LEAST_FLOW if column.flow else column.cap)


def _says_anything(column: Column[Row], rows: Sequence[Row]) -> bool:
    return any(str(column.value(row)) not in ("", NONE) for row in rows)


def _widths(columns: Sequence[Column[Row]], lines: Sequence[Sequence[Text]], width: int) -> list[int]:
    """How many letters each column has. The first one names the row, so it is the last to be cut."""
    cap = width < PIPE_WIDTH
    widths = []
    for index, column in enumerate(columns):
        longest = max(
            [
                cell_len(column.title),
                *(cell_len(part) for line in lines for part in line[index].plain.split("\n")),
            ]
        )
        widths.append(min(longest, column.cap) if cap else longest)
    flowing = next((index for index, column in enumerate(columns) if column.flow), None)
    spare = width - sum(widths) - GAP * (len(widths) - 1)
    if flowing is not None and spare < 0:
        given = min(-spare, max(0, widths[flowing] - LEAST_FLOW))
        widths[flowing] -= given
        spare += given
    while spare < 0 and len(widths) > 1 and max(widths[1:]) > 1:
        widest = max(range(1, len(widths)), key=lambda index: widths[index])
        widths[widest] -= 1
        spare += 1
    return widths


def _cell(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(plain(value) or NONE)


def show_data(value: object, output: Format) -> None:
    """A value as JSON or YAML."""
    if output == "yaml":
        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        yaml.dump(msgspec.to_builtins(value), sys.stdout)
    else:
        print(msgspec.json.format(msgspec.json.encode(value)).decode())


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
        print(text, file=sys.stderr)


def say_error(sentence: str) -> None:
    """One line on stderr, in red where a person reads it and wants colours."""
    mark = "\033[31merror:\033[0m" if sys.stderr.isatty() and coloured() else "error:"
    print(f"{mark} {sentence}", file=sys.stderr)

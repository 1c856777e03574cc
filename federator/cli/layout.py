"""Tables that fit the terminal, and where they cannot, lose what matters least.

Figures are never cut: names wrap, columns are left out (which is said below), and the last text is cut. With `-o wide`, and in a pipe, everything is there.

Why not by `rich` alone: it draws these tables, but of one that is too wide it cuts off the right edge, through figures as well, and knows no column that may be left out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from federator.cli.phrases import NONE, plain

Row = TypeVar("Row")
PIPE_WIDTH = 100_000
ANY = PIPE_WIDTH
GAP = 2
LEAST_FLOW = 20
LEAST_CUT = 8
"""On very narrow terminals, so that the first column stays whole: texts that are cut anyway."""
LEAST_NAME = 12
"""Names are wrapped at so many letters, before anything is left out; where nothing else helps the first column's, too."""
NARROW = 100
"""On a terminal that has less, columns without any content make room."""


class Column(NamedTuple, Generic[Row]):
    """A column of a table. `least` is the terminal's width from which on it is shown; `wide` ones come with `-o wide`.

    A column that flows has what the others leave: its text is cut there, or wrapped. `cap` bounds the width of another. One that is `right` or `whole`
    has figures, which have their room or are left out.
    """

    title: str
    value: Callable[[Row], str | Text]
    wide: bool = False
    right: bool = False
    least: int = 0
    cap: int = ANY
    flow: Literal["", "cut", "fold"] = ""
    whole: bool = False
    wraps: int = ANY
    """On a narrow terminal what is longer is wrapped there."""


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
    if not wide:
        if width < NARROW:
            usual = [usual[0], *(column for column in usual[1:] if _says_anything(column, rows))]
            shown = _with_room(usual, shown, rows, width)
        shown = _without_the_least(shown, rows, width)
    missing = [column for column in usual if column not in shown and _says_anything(column, rows)]
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    if missing:
        made.caption = f"(no room for {', '.join(column.title for column in missing)}; widen the terminal{', or -o wide' if says_how else ''})"
        made.caption_justify, made.caption_style = "left", "dim"
    for column, room in zip(shown, _widths(shown, rows, PIPE_WIDTH if wide else width), strict=True):
        cut = column.flow == "cut" or column.cap < ANY or (wide and column.flow != "fold")
        made.add_column(
            column.title,
            justify="right" if column.right else "left",
            width=room,
            no_wrap=cut,
            overflow="ellipsis" if cut else "fold",
        )
    for row in rows:
        made.add_row(*(_cell(column.value(row)) for column in shown))
    return made


def _with_room(
    usual: Sequence[Column[Row]], shown: Sequence[Column[Row]], rows: Sequence[Row], width: int
) -> list[Column[Row]]:
    """Of the usual columns those that are shown, and of the others, the most important first, as many as there is room for."""
    kept = [column for column in usual if column in shown]
    for column in sorted(usual, key=lambda column: column.least):
        more = [each for each in usual if each in kept or each is column]
        if column not in kept and _needs([_length(each, rows, width) for each in more]) <= width:
            kept = more
    return kept


def _without_the_least(shown: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[Column[Row]]:
    """Without as many of those that may be left out, the least important first, as have no room beside names that are wrapped."""

    def fit(columns: Sequence[Column[Row]]) -> bool:
        return _needs([_floor(column, number, rows, width) for number, column in enumerate(columns)]) <= width

    kept, out = list(shown), sorted(shown[1:], key=lambda column: column.least)
    while not fit(kept) and out and out[-1].least:
        kept.remove(out.pop())
    for column in sorted(set(shown) - set(kept), key=lambda column: column.least):
        # One that is narrower may have room where a wider one had none.
        more = [each for each in shown if each in kept or each is column]
        kept = more if fit(more) else kept
    return kept


def _needs(lengths: Sequence[int]) -> int:
    return sum(lengths) + GAP * (len(lengths) - 1)


def _length(column: Column[Row], rows: Sequence[Row], width: int) -> int:
    """Letters for a column; one that flows makes do with some."""
    longest = _longest(column, rows, width)
    return min(longest, LEAST_FLOW) if column.flow else longest


def _floor(column: Column[Row], number: int, rows: Sequence[Row], width: int) -> int:
    """The fewest letters that it can be read with. The first one names the row, to be copied from there."""
    length = _length(column, rows, width)
    return length if number == 0 or _is_figure(column) or column.flow else min(length, LEAST_NAME)


def _is_figure(column: Column[Row]) -> bool:
    return column.right or column.whole


def _longest(column: Column[Row], rows: Sequence[Row], width: int) -> int:
    texts = [column.title, *(_cell(column.value(row)).plain for row in rows)]
    longest = max(cell_len(part) for text in texts for part in text.split("\n"))
    if width == PIPE_WIDTH:
        return longest
    return min(longest, column.cap, column.wraps if width < NARROW else longest)


def _says_anything(column: Column[Row], rows: Sequence[Row]) -> bool:
    return any(str(column.value(row)) not in ("", NONE) for row in rows)


def _widths(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> list[int]:
    """How many letters each column has: what flows gives first, then names, then the first column, and figures only where nothing else is left."""
    widths = [_longest(column, rows, width) for column in columns]
    names = [n for n, column in enumerate(columns) if n and not (_is_figure(column) or column.flow)]
    flowing = [n for n, column in enumerate(columns) if column.flow]
    _take(widths, flowing, LEAST_FLOW, width)
    _take(widths, names, LEAST_NAME, width)
    _take(widths, flowing, LEAST_CUT, width)
    _take(widths, [n for n in names if columns[n].cap < ANY], LEAST_CUT, width)
    _take(widths, [0], LEAST_NAME, width)
    _take(widths, range(len(widths)), 1, width)
    return widths


def _take(widths: list[int], of: Sequence[int], least: int, width: int) -> None:
    """Make these narrower, the widest first, until all fit or none of them has more than that."""
    while _needs(widths) > width and (more := [n for n in of if widths[n] > least]):
        widths[max(more, key=lambda n: widths[n])] -= 1


def _cell(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(plain(value) or NONE)

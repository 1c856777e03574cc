"""Files that somebody names on the command line, read within limits.

Such a file may come from anybody: 1 MiB of gzip expands to 1 GiB, one line may be as long as the file, and a pipe has no end. So each reader says how
much it takes, and what is more is refused with the name of the file. A name that ends in .gz is unpacked as it is read.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

from federator.kernel.errors import TooLarge
from federator.wire.faults import told_in, unreadable

TABLE_BYTES = 256 * 2**20
"""A table may be so large, unpacked."""
TEXT_BYTES = 64 * 2**20
"""And a document that is read whole."""
LINE_BYTES = 2**20
MOST_LINES = 1_000_000
MOST_COLUMNS = 1_000
LARGEST = 1e10
"""No number of a table is larger: what is more is a mistake, as is what is no number."""
PACKED = ".gz"
UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)
"""What reading a damaged file raises."""

Row = dict[str, str]
_BEYOND = "\0"
"""Where the cells beyond the columns go."""


class Table(NamedTuple):
    """What a CSV file has. `rows`: each with the number of its line; a cell that is not there is empty."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[int, Row]]


def read_lines(path: Path, *, most_bytes: int) -> Iterator[bytes]:
    """Each line of a file. Raises `OSError`, `EOFError`, `zlib.error` for what cannot be read, `TooLarge` for what is over the limits."""
    left = most_bytes
    with _opened(path) as file:
        while line := file.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                raise TooLarge(f"it has a line of over {LINE_BYTES >> 20} MiB", remedy="name another file")
            left -= len(line)
            if left < 0:
                raise _over(path, most_bytes)
            yield line


def read_whole(path: Path, *, most_bytes: int = TEXT_BYTES) -> bytes:
    """All of a file that is not unpacked here. Raises `OSError`, or `TooLarge` over the limit."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise _over(path, most_bytes)
    return data


def read_text(path: Path, field: str | None = None) -> str:
    """The same as text with one character at the end of each line. Raises `Invalid` for `field` where it cannot be read, and `TooLarge`, each with the file's name."""
    try:
        with told_in(path):
            return read_whole(path).decode().replace("\r\n", "\n")
    except UNREADABLE as error:
        raise unreadable(path, error, field) from None


@contextmanager
def read_table(path: Path, field: str) -> Iterator[Table]:
    """A CSV file, whose rows are read inside. Raises `Invalid` for `field` where it cannot be read, and `TooLarge`, each with the file's name."""
    try:
        reader = csv.DictReader(_texts(path), restkey=_BEYOND, restval="")
        columns = tuple(reader.fieldnames or ())
        if len(columns) > MOST_COLUMNS:
            raise TooLarge(f"{path} has over {MOST_COLUMNS} columns", field=field, remedy="name another file")
        yield Table(columns, _rows(reader))
    except UNREADABLE as error:
        raise unreadable(path, error, field) from None


def read_number(
    row: Mapping[str, str], column: str, low: float = 0.0, *, default: float | None = None
) -> float:
    """A cell as a number that makes sense; `default` where it says nothing. Raises `KeyError` where there is no such column, `ValueError`."""
    if default is not None and not row.get(column):
        return default
    text = row[column]
    try:
        value = float(text or "")
    except ValueError:
        raise ValueError(f"{column} must be a number, not {text or 'nothing'}") from None
    if not low <= value <= LARGEST:
        raise ValueError(f"{column} is {text}, and not between {low:g} and {LARGEST:g}")
    return value


def _texts(path: Path) -> Iterator[str]:
    with told_in(path):
        for number, line in enumerate(read_lines(path, most_bytes=TABLE_BYTES)):
            if number > MOST_LINES:
                raise TooLarge(f"it has over {MOST_LINES} lines", remedy="name a part of it")
            yield line.decode()


def _rows(reader: "csv.DictReader[str]") -> Iterator[tuple[int, Row]]:
    for row in reader:
        row.pop(_BEYOND, None)
        yield reader.line_num, row


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == PACKED else path.open("rb")


def _over(path: Path, most_bytes: int) -> TooLarge:
    unpacked = ", unpacked" if path.suffix == PACKED else ""
    return TooLarge(f"it is over {most_bytes / 2**20:g} MiB{unpacked}", remedy="name a smaller file")

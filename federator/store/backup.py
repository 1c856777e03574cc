"""A backup: all rows of a store at one moment, in one file, whichever store they are from and go to.

A gzipped line about the store, then the rows, each as the lengths of key and value and both, an empty key, and a line with their number and the
SHA-256 of all before it. So what is cut off or changed is found, and it is read through once before anything is done with it. Rows, not pages of a
database: a backup of the embedded store can be restored into etcd, and one of etcd into another cluster.
"""

import gzip
import hashlib
import os
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from federator.kernel.errors import Damaged, Invalid, Permanent, Unavailable
from federator.store.transactions import MAX_KEY_BYTES
from federator.wire.jsontext import read

FORMAT = 1
LARGEST_VALUE_BYTES = 2**28
_LENGTHS = struct.Struct(">HI")
_END = _LENGTHS.pack(0, 0)
_LONGEST_LINE = 4096


class Header(msgspec.Struct, frozen=True):
    """Which store it is of, when, and by which version."""

    format: int
    version: str
    federation: str
    incarnation: str
    lineage: str
    revision: int
    made_at: float


class Trailer(msgspec.Struct, frozen=True):
    """What makes it whole."""

    rows: int
    sha256: str


class Row(NamedTuple):
    """A key and its value."""

    key: str
    value: bytes


async def write(path: Path, header: Header, rows: AsyncIterator[Row]) -> Trailer:
    """Make the file, for this user's eyes only, and return once it is on disk; before that it has another name. Raises `Invalid` where one is there already."""
    _refuse_existing(path)
    draft = path.with_name(f"{path.name}.draft")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            trailer = await _fill(file, header, rows)
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return trailer


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise Invalid(f"{path} is there already", remedy="give the backup another name, or remove that file")


async def _fill(file: IO[bytes], header: Header, rows: AsyncIterator[Row]) -> Trailer:
    found, count = hashlib.sha256(), 0
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:

        def add(data: bytes) -> None:
            found.update(data)
            packed.write(data)

        add(msgspec.json.encode(header) + b"\n")
        async for key, value in rows:
            add(_LENGTHS.pack(len(key), len(value)))
            add(key.encode())
            add(value)
            count += 1
        add(_END)
        trailer = Trailer(count, found.hexdigest())
        packed.write(msgspec.json.encode(trailer) + b"\n")
    return trailer


def check(path: Path) -> tuple[Header, Trailer]:
    """Read it through. Raises `Damaged` unless it is whole, `Permanent` when it is of a newer version."""
    reading = _Reading(path)
    for _ in reading.rows():
        pass
    assert reading.trailer is not None
    return reading.header, reading.trailer


def rows_of(path: Path) -> Iterator[Row]:
    """Its rows. Raises as `check`, at the end too."""
    return _Reading(path).rows()


class _Reading:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = hashlib.sha256()
        self.trailer: Trailer | None = None
        try:
            self._file = gzip.open(path, "rb")  # noqa: SIM115 - closed with the rows
        except OSError as error:
            raise Invalid(f"{path} cannot be read: {error.strerror}", remedy="name a backup") from error
        try:
            self.header = self._header()
        except BaseException:
            self._file.close()
            raise

    def rows(self) -> Iterator[Row]:
        count = 0
        with self._file:
            while True:
                key_bytes, value_bytes = _LENGTHS.unpack(self._take(_LENGTHS.size))
                if not key_bytes:
                    break
                if key_bytes > MAX_KEY_BYTES or value_bytes > LARGEST_VALUE_BYTES:
                    raise self._damaged("has a row of an impossible size")
                yield Row(self._take(key_bytes).decode("ascii", "replace"), self._take(value_bytes))
                count += 1
            expected = Trailer(count, self._found.hexdigest())
            if self._line(Trailer) != expected:
                raise self._damaged("is not what was written")
            self.trailer = expected

    def _header(self) -> Header:
        try:
            line = self._read_line()
            header = read(line, Header)
        except msgspec.DecodeError:
            raise self._damaged("is not a backup") from None
        self._found.update(line)
        if header.format > FORMAT:
            raise Permanent(
                f"{self._path} was made by version {header.version}, in a format that this version does not know",
                remedy="restore it with that version",
            )
        return header

    def _line(self, kind: type[Trailer]) -> Trailer:
        try:
            return read(self._read_line(), kind)
        except msgspec.DecodeError:
            raise self._damaged("is cut off") from None

    def _read_line(self) -> bytes:
        try:
            return self._file.readline(_LONGEST_LINE)
        except (OSError, EOFError, zlib.error):
            raise self._damaged("is not a backup, or cut off") from None

    def _take(self, count: int) -> bytes:
        try:
            data = self._file.read(count)
        except (OSError, EOFError, zlib.error):
            raise self._damaged("is cut off") from None
        if len(data) < count:
            raise self._damaged("is cut off")
        self._found.update(data)
        return data

    def _damaged(self, how: str) -> Damaged:
        return Damaged(f"the backup {self._path} {how}", remedy="take another one")

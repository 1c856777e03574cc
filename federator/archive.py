"""The archive of jobs that have ended, as Parquet files that DuckDB writes and reads: the only door to it.

Files are blobs like outputs are, named by the hash of their bytes, so that they are where the other bytes of a federation are: on the dispatcher's disk, or
where several dispatchers share them. A file never changes. Parquet, because other programs read it; DuckDB, because one library of 24 MB both
writes and reads it, under a limit on memory, and lets the rest of the dispatcher run meanwhile.

Every value that somebody has written is a parameter of its statement; what statements are put together from are words of this module.

Rows go to DuckDB as lines of JSON in a file, which it reads faster than anything that Python could hand it row by row.
"""
# ruff: noqa: S608 - statements are put together from words of this module; values are parameters

import shutil
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import msgspec

from federator.kernel.errors import NotFound, Unavailable
from federator.model.archive import (
    ArchivedJob,
    ArchiveFilter,
    ArchivePage,
    Column,
    FilePart,
    StoredJob,
    UsageSum,
)
from federator.ports import Blobs, Written

MEMORY_MIB = 256
"""Most that DuckDB keeps in memory; beyond it, it writes to disk."""
THREADS = 2
LIMIT_S = 30.0
"""Real seconds after which a question is given up."""
STOP_S = 5.0
"""Real seconds that a stop waits for statements to be given up."""
ROWS = 8192
"""Rows to a group of a file: what is read to find one job."""
GROUP_BYTES = 16 * 2**20
"""Text of a group, which is in memory while it is written: where jobs have long texts, fewer are in one."""
FEWEST = 16
"""Rows to a group all the same."""
TEXT = " + ".join(
    f"coalesce(strlen({name}), 0)"
    for name in ("job_json", "spec_json", "placements_json", "outputs_json", "events_json")
)
ROW_BYTES = 24 * 2**20
"""Largest row, as JSON. DuckDB reads in pieces of twice that."""
PART_BYTES = 2**20
LATE = "'infinity'::DOUBLE"
TYPES = {
    "id": "VARCHAR", "name": "VARCHAR", "owner": "VARCHAR", "team": "VARCHAR", "queue": "VARCHAR",
    "status": "VARCHAR", "array": "VARCHAR", "array_index": "INTEGER", "series": "VARCHAR", "site": "VARCHAR",
    "model": "VARCHAR", "submitted_at": "DOUBLE", "started_at": "DOUBLE", "finished_at": "DOUBLE",
    "deadline_at": "DOUBLE", "priority": "INTEGER", "gpus": "DOUBLE", "gpu_s": "DOUBLE", "spent_usd": "DOUBLE",
    "reason": "VARCHAR", "labels": "VARCHAR[]", "missed_deadline": "BOOLEAN", "start_kept": "BOOLEAN",
    "finish_kept": "BOOLEAN", "cost_kept": "BOOLEAN", "attempts": "VARCHAR[]", "blobs": "VARCHAR[]", "job_json": "VARCHAR",
    "spec_json": "VARCHAR", "placements_json": "VARCHAR", "outputs_json": "VARCHAR", "events_json": "VARCHAR",
    "client_key": "VARCHAR", "client_json": "VARCHAR", "line_json": "VARCHAR", "sum_json": "VARCHAR",
}  # fmt: skip
"""The columns of a file, in order."""
ORDERS = {
    "": "''",
    "deadline": f"coalesce(deadline_at, {LATE})",
    "ends": LATE,
    "finished": "coalesce(finished_at, 0)",
    "gpus": "gpus",
    "name": "name",
    "owner": "owner",
    "priority": "priority",
    "queue": "queue",
    "reason": "reason",
    "site": "site",
    "spent": "spent_usd",
    "started": "coalesce(started_at, 0)",
    "starts": LATE,
    "status": "status",
    "submitted": "submitted_at",
}
"""What a job's place in an order is, as in `federator.control.queries.job_sorting`."""
COLUMNS: dict[Column, str] = {
    "user": "owner",
    "team": "team",
    "queue": "queue",
    "site": "site",
    "model": "model",
    "month": "strftime(to_timestamp(finished_at) AT TIME ZONE 'UTC', '%Y-%m')",
    "day": "strftime(to_timestamp(finished_at) AT TIME ZONE 'UTC', '%Y-%m-%d')",
}
SUMS = """
count(*),
count(*) FILTER (status = 'SUCCEEDED'),
count(started_at),
coalesce(sum(greatest(0, started_at - submitted_at)), 0),
coalesce(max(greatest(0, started_at - submitted_at)), 0),
count(*) FILTER (missed_deadline OR (NOT missed_deadline AND status <> 'CANCELLED')),
count(*) FILTER (NOT missed_deadline AND status = 'SUCCEEDED'),
count(start_kept),
count(*) FILTER (start_kept),
count(finish_kept),
count(*) FILTER (finish_kept),
count(cost_kept),
count(*) FILTER (cost_kept)
"""


class _TooMuch(Unavailable):
    """It does not fit into the memory that DuckDB may have."""


def as_parquet(rows: Iterable[object], columns: Mapping[str, str]) -> bytes:
    """A table as a Parquet file: of these rows the columns that are named, each with its type in DuckDB. Small enough for memory."""
    with tempfile.TemporaryDirectory(prefix="federator-") as folder, duckdb.connect() as database:
        lines, made = Path(folder, "rows.json"), Path(folder, "made.parquet")
        lines.write_bytes(msgspec.json.Encoder().encode_lines(list(rows)))
        named = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
        source = f"read_json(?, format = 'newline_delimited', columns = {{{named}}})"
        database.execute(f"COPY (SELECT * FROM {source}) TO '{made}' (FORMAT parquet)", [str(lines)])
        return made.read_bytes()


class ParquetArchive:
    """`federator.ports.Archive` over blobs, with room for its own work in a folder. Safe to call from several threads."""

    def __init__(self, blobs: Blobs, folder: Path) -> None:
        self._blobs = blobs
        self._at = folder / "archive"
        shutil.rmtree(self._at, ignore_errors=True)  # what a killed dispatcher has left
        self._at.mkdir(mode=0o700, parents=True)
        self._open: dict[str, BinaryIO | None] = {}
        """Files that are at hand by their hash; None: as a copy."""
        self._opening = threading.Lock()
        self.busy: set[duckdb.DuckDBPyConnection] = set()
        self._database = duckdb.connect(
            config={
                "memory_limit": f"{MEMORY_MIB}MiB",
                "threads": THREADS,
                "temp_directory": str(self._at / "spill"),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )

    def write(self, rows: Iterable[ArchivedJob]) -> Written:
        """Keep these rows, which are in the order of their ids, as a file."""
        with tempfile.NamedTemporaryFile(dir=self._at, suffix=".json") as lines:
            encoder, count = msgspec.json.Encoder(), 0
            size = longest = 0  # of the rows that may be one group
            for row in rows:
                size += lines.write(encoder.encode(row) + b"\n")
                count += 1
                if count % FEWEST == 0:
                    longest, size = max(longest, size), 0
            lines.flush()
            columns = "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in TYPES.items()) + "}"
            source = f"read_json(?, format = 'newline_delimited', maximum_object_size = {ROW_BYTES}, columns = {columns})"
            group = _group(max(longest, size))
            return self._copied(f"SELECT * FROM {source}", [lines.name], count, group)

    def merge(self, parts: Sequence[FilePart], without: Sequence[str] = ()) -> Written:
        """Keep what counts of these files as one, without the jobs of some people. In the order of the files."""
        with self._reading(parts) as (source, given):
            where, more = "", list[Any]()
            if without:
                where, more = " WHERE NOT list_contains(?, owner)", [list(without)]
            lengths = (
                f"SELECT {TEXT} AS length, row_number() OVER () // {FEWEST} AS number FROM ({source}){where}"
            )
            sums = f"SELECT count(*) AS count, sum(length) AS size FROM ({lengths}) GROUP BY number"
            with self._limited(None) as cursor:
                cursor.execute(f"SELECT sum(count), max(size) FROM ({sums})", [*given, *more])
                count, longest = cursor.fetchall()[0]
            group = _group(int(longest or 0))
            return self._copied(f"SELECT * FROM ({source}){where}", [*given, *more], int(count or 0), group)

    def page(
        self, parts: Sequence[FilePart], where: ArchiveFilter, page: ArchivePage
    ) -> tuple[list[tuple[float | str, str]], int]:
        """A page of what is asked for, as places in the order, and how many there are in all."""
        with self._reading(parts) as (source, given):
            condition, asked = _condition(where)
            value = ORDERS[page.order]
            found = f"FROM ({source}) WHERE {condition}"
            lines = 'count(*) FILTER ("array" IS NULL) + count(DISTINCT "array")'
            count = lines if page.collapse else "count(*)"
            (total,) = self.fetch(f"SELECT {count} {found}", [*given, *asked])[0]
            first = "max" if page.largest else "min"
            single = f"SELECT {value} AS value, id AS line {found}"
            together = f'SELECT {first}({value}) AS value, "array" AS line {found} AND "array" IS NOT NULL GROUP BY "array"'
            selects = [(f'{single} AND "array" IS NULL' if page.collapse else single)]
            selects += [together] if page.collapse else []
            if not page.order and page.largest:
                return self._newest(parts, condition, asked, page), total
            after, place = "", list[Any]()
            if page.after is not None:
                sign = "<" if page.largest else ">"
                after = f"WHERE value {sign} ? OR (value = ? AND line {sign} ?)"
                place = [page.after[0], *page.after]
            down = "DESC" if page.largest else "ASC"
            end = f"{after} ORDER BY value {down}, line {down} LIMIT {int(page.limit)}"
            keys: list[tuple[float | str, str]] = []
            for select in selects:
                keys += self.fetch(f"SELECT value, line FROM ({select}) {end}", [*given, *asked, *place])
            keys.sort(reverse=page.largest)
            return keys[: page.limit], total

    def _newest(
        self, parts: Sequence[FilePart], condition: str, asked: Sequence[Any], page: ArchivePage
    ) -> list[tuple[float | str, str]]:
        """The page that begins with the greatest ids: of files in that order, only as many are read as it takes."""
        before = page.after[1] if page.after is not None else ""
        lines = ["id"] if not page.collapse else ["id", '"array"']
        found: set[str] = set()
        for part in sorted(parts, key=lambda part: part.last or "~", reverse=True):
            least = sorted(found)[-page.limit] if len(found) >= page.limit else ""
            if least and part.last and part.last < least:
                break
            with self._reading([part]) as (source, given):
                for line in lines:
                    alone = '"array" IS NULL' if page.collapse and line == "id" else f"{line} IS NOT NULL"
                    select = f"SELECT DISTINCT {line} AS line" if line != "id" else "SELECT id AS line"
                    statement = (
                        f"{select} FROM ({source}) WHERE {condition} AND {alone} AND (? = '' OR {line} < ?) "
                        f"ORDER BY line DESC LIMIT {int(page.limit)}"
                    )
                    found.update(row[0] for row in self.fetch(statement, [*given, *asked, before, before]))
        return [("", line) for line in sorted(found, reverse=True)[: page.limit]]

    def jobs(
        self, parts: Sequence[FilePart], where: ArchiveFilter, *, limit: int, events: bool = False
    ) -> list[StoredJob]:
        """The records of the newest jobs that are asked for, the oldest of them first."""
        with self._reading(parts) as (source, given):
            condition, asked = _condition(where)
            columns = "job_json, spec_json, placements_json, outputs_json" + (
                ", events_json" if events else ""
            )
            # First which, then their records: what is sorted by are ids alone.
            ids = [
                row[0]
                for row in self.fetch(
                    f"SELECT id FROM ({source}) WHERE {condition} ORDER BY id DESC LIMIT {int(limit)}",
                    [*given, *asked],
                )
            ]
            texts: dict[str, str] = {}
            found = list[StoredJob]()
            for job, spec, *others in self._records(columns, source, given, sorted(ids)):
                # Tasks of an array have one spec, and it may be long.
                found.append(StoredJob(job, texts.setdefault(spec, spec), *others))
            return found

    def _records(self, columns: str, source: str, given: Sequence[Any], ids: Sequence[str]) -> Iterator[Any]:
        """The rows of these ids, in order: fewer at a time where their texts are more than may be in memory at once."""
        if not ids:
            return
        statement = f"SELECT {columns} FROM ({source}) WHERE id IN (SELECT unnest(?)) AND id BETWEEN ? AND ? ORDER BY id"
        try:
            yield from self.fetch(statement, [*given, list(ids), ids[0], ids[-1]])
        except _TooMuch:
            half = len(ids) // 2
            if not half:
                raise
            yield from self._records(columns, source, given, ids[:half])
            yield from self._records(columns, source, given, ids[half:])

    def runs(self, parts: Sequence[FilePart], each: int, most: int) -> list[str]:
        """Ids of jobs that succeeded: of every queue and name the newest `each`, first one of all names, then a second."""
        with self._reading(parts) as (source, given):
            named = (
                f"SELECT arg_max(id, finished_at, {int(each)}) AS ids FROM ({source}) "
                "WHERE status = 'SUCCEEDED' AND started_at IS NOT NULL GROUP BY queue, coalesce(series, name)"
            )
            statement = f"SELECT unnest(ids) AS id, generate_subscripts(ids, 1) AS place FROM ({named}) ORDER BY place, id DESC"
            return [row[0] for row in self.fetch(f"{statement} LIMIT {int(most)}", given)]

    def arrays(self, parts: Sequence[FilePart], arrays: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Of these arrays, as a line of a list and all tasks added up."""
        with self._reading(parts) as (source, given):
            rows = self.fetch(
                f'SELECT "array", line_json, sum_json FROM ({source}) WHERE id >= ? AND line_json IS NOT NULL AND "array" IN (SELECT unnest(?)) ORDER BY id DESC',
                [*given, min(arrays, default=""), list(arrays)],
            )
            return {array: (line, added) for array, line, added in rows}

    def usage(
        self, parts: Sequence[FilePart], where: ArchiveFilter, by: Sequence[Column], most: int
    ) -> list[UsageSum]:
        """Jobs added up by some keys, at most so many groups."""
        with self._reading(parts) as (source, given):
            condition, asked = _condition(where)
            group = ", ".join(COLUMNS[key] for key in by)
            grouped = f" GROUP BY {group}" if group else " HAVING count(*) > 0"
            select = (
                f"SELECT {group + ', ' if group else ''}{SUMS} FROM ({source}) WHERE {condition}{grouped}"
            )
            rows = self.fetch(f"{select} LIMIT {int(most)}", [*given, *asked])
            return [UsageSum(tuple(row[: len(by)]), *row[len(by) :]) for row in rows]

    def rows(
        self, parts: Sequence[FilePart], columns: Sequence[str], *, without: Sequence[str] = ()
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Some columns of all rows in the order of their ids, some at a time; without the jobs of some people."""
        with self._reading(parts) as (source, given), self._limited(None) as cursor:
            cursor.execute(
                f"SELECT {', '.join(columns)} FROM ({source}) WHERE NOT list_contains(?, owner) ORDER BY id",
                [*given, list(without)],
            )
            while found := cursor.fetchmany(500):
                yield found

    def client_keys(self, parts: Sequence[FilePart], key: str) -> list[str]:
        """What was submitted under a client id, as JSON."""
        with self._reading(parts) as (source, given):
            found = self.fetch(
                f"SELECT client_json FROM ({source}) WHERE client_key = ? LIMIT 1", [*given, key]
            )
            return [row[0] for row in found]

    def blobs(self, parts: Sequence[FilePart], without: Sequence[str] = ()) -> "array[int]":
        """The beginnings of the hashes of all that these jobs name, in order, 8 bytes each; without the jobs of some people."""
        with self._reading(parts) as (source, given), self._limited(None) as cursor:
            cursor.execute(
                "SELECT DISTINCT ('0x' || each[:16])::UBIGINT AS hash FROM "
                f"(SELECT unnest(blobs) AS each FROM ({source}) WHERE NOT list_contains(?, owner)) ORDER BY hash",
                [*given, list(without)],
            )
            found = array("Q")
            while rows := cursor.fetchmany(10_000):
                found.extend(row[0] for row in rows)
            return found

    def close(self) -> None:
        """Give up what is under way, and release what is open; no call may follow."""
        until = time.monotonic() + STOP_S
        while self.busy and time.monotonic() < until:
            for cursor in tuple(self.busy):
                cursor.interrupt()
            time.sleep(0.02)
        with suppress(
            duckdb.Error
        ):  # it refuses while a statement goes on all the same; the process ends anyway
            self._database.close()
        for file in self._open.values():
            if file is not None:
                file.close()
        shutil.rmtree(self._at, ignore_errors=True)

    # ----------------------------------------------------------------------------------------------------------- files

    def _copied(self, select: str, given: list[Any], count: int, group: int) -> Written:
        """What a statement answers as a file that is kept."""
        with tempfile.TemporaryDirectory(dir=self._at) as folder:
            made = Path(folder, "made.parquet")
            options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group}"
            with self._limited(None) as cursor:
                cursor.execute(f"COPY ({select}) TO '{made}' ({options})", given)
            draft = self._blobs.draft()
            try:
                with made.open("rb") as file:
                    while part := file.read(PART_BYTES):
                        draft.write(part)
                return Written(draft.keep(), made.stat().st_size, count)
            finally:
                draft.discard()

    @contextmanager
    def _reading(self, parts: Sequence[FilePart]) -> Iterator[tuple[str, list[Any]]]:
        """What counts of these files as one source of a statement, and what that is given."""
        paths = {part.digest: str(self._path(part.digest)) for part in parts}
        whole = [paths[part.digest] for part in parts if part.below is None and not part.void]
        sources, given = list[str](), list[Any]()
        if whole:
            sources.append("SELECT * FROM read_parquet(?)")
            given.append(whole)
        for part in parts:
            if part.below is not None or part.void:
                below = "" if part.below is None else " AND id < ?"
                sources.append(f"SELECT * FROM read_parquet(?) WHERE NOT list_contains(?, id){below}")
                given += [paths[part.digest], list(part.void)]
                given += [] if part.below is None else [part.below]
        if not sources:
            nothing = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in TYPES.items())
            sources.append(f"SELECT {nothing} WHERE false")
        yield " UNION ALL ".join(sources), given

    def _path(self, digest: str) -> Path:
        """Where DuckDB finds a file: a link to the open one, or a copy of one that is elsewhere. Its name is its hash, so what DuckDB remembers of it stays right."""
        path = self._at / f"{digest}.parquet"
        with self._opening:
            if digest in self._open:
                return path
            file = self._blobs.open(digest)
            if file is None:
                raise NotFound(
                    f"file {digest} of the archive is gone", remedy="restore it from a backup of the blobs"
                )
            number = _number(file)
            if number is not None:
                path.symlink_to(f"/proc/self/fd/{number}")
                self._open[digest] = file
            else:
                with file, path.open("wb") as copy:
                    shutil.copyfileobj(file, copy)
                self._open[digest] = None
        return path

    def forget(self, digest: str) -> None:
        """A file is not asked for any more."""
        with self._opening:
            file = self._open.pop(digest, None)
            (self._at / f"{digest}.parquet").unlink(missing_ok=True)
            if file is not None:
                file.close()

    def fetch(self, statement: str, given: list[Any]) -> list[Any]:
        """All rows of a statement, asked by a cursor of its own, so that `close` can interrupt it."""
        with self._limited(LIMIT_S) as cursor:
            return cursor.execute(statement, given).fetchall()

    @contextmanager
    def _limited(self, limit_s: float | None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of one's own, and its errors as situations."""
        cursor = self._database.cursor()
        self.busy.add(cursor)
        timer = threading.Timer(limit_s, cursor.interrupt) if limit_s is not None else None
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            yield cursor
        except duckdb.InterruptException as error:
            raise Unavailable(
                f"the archive was not read within {limit_s or 0:g} s, or the dispatcher stops",
                remedy="ask for less: a shorter time, or a name",
            ) from error
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            kind = _TooMuch if isinstance(error, duckdb.OutOfMemoryException) else Unavailable
            raise kind(f"the archive cannot be read: {_first_line(error)}", remedy="ask for less") from error
        finally:
            if timer is not None:
                timer.cancel()
            self.busy.discard(cursor)
            cursor.close()


def _group(longest: int) -> int:
    """Rows to a group, where so few as must be one have at most so much text."""
    return min(ROWS, max(FEWEST, FEWEST * GROUP_BYTES // max(1, longest)))


def _number(file: BinaryIO) -> int | None:
    """The descriptor of a file of this machine."""
    try:
        return file.fileno()
    except (OSError, AttributeError):
        return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


def _condition(where: ArchiveFilter) -> tuple[str, list[Any]]:
    """As SQL, and what it is given."""
    terms: list[str] = ["true"]
    given: list[Any] = []

    def add(term: str, *values: object) -> None:
        terms.append(term)
        given.extend(values)

    for term, value in _plain(where).items():
        if value not in ("", None):
            add(term, *(value,) * term.count("?"))
    if where.ids:
        add(
            "id IN (SELECT unnest(?)) AND id BETWEEN ? AND ?", list(where.ids), min(where.ids), max(where.ids)
        )
    if where.statuses:
        add("list_contains(?, status)", list(where.statuses))
    if where.indices:
        add("list_contains(?, array_index)", list(where.indices))
    if where.labels:
        add("list_has_all(labels, ?)", list(where.labels))
    if where.shown is not None:
        _add_shown(add, where)
    return " AND ".join(terms), given


def _plain(where: ArchiveFilter) -> dict[str, object]:
    """Conditions of one value."""
    return {
        "id >= ? AND id < ? || '~'": where.begins,
        "id < ?": where.before,
        "owner = ?": where.owner,
        "(queue = ? OR starts_with(queue, ? || '/'))": where.queue,
        "name = ?": where.name,
        "(contains(lower(name), ?) OR starts_with(id, ?))": where.text,
        "site = ?": where.site,
        "reason = ?": where.reason,
        "submitted_at >= ?": where.since_at,
        "submitted_at < ?": where.until_at,
        "finished_at >= ?": where.ended_since_at,
        "finished_at < ?": where.ended_until_at,
        '"array" = ?': where.array,
        "series = ?": where.series,
    }


def _add_shown(add: Callable[..., None], where: ArchiveFilter) -> None:
    """What somebody is shown."""
    shown = where.shown or ()
    add(
        "(list_contains(?, concat_ws(chr(31), owner, queue, team)) OR list_contains(?, site))",
        [chr(31).join(each) for each in shown],
        list(where.sites),
    )

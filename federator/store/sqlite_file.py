"""The file of the embedded store: its lock, its schema, its statements, and what its errors mean.

Why a lock of our own: SQLite lets several processes write to one file, but watches and expiring keys live in the memory
of the one dispatcher that owns it. A second one is turned away before it has touched anything.
"""

import contextlib
import fcntl
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from federator.kernel.errors import Damaged, FederatorError, Permanent, Unavailable
from federator.kernel.files import sync

SCHEMA_VERSION = 1
APPLICATION_ID = 0x46454431
"""`FED1`: tells our files from those of other programs."""

LARGEST_WAL_BYTES = 64 * 2**20


def read_queries(text: str) -> dict[str, str]:
    """Statements by the name in the `-- name:` line above each."""
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def _read(name: str) -> str:
    return resources.files("federator.store").joinpath(name).read_text(encoding="utf-8")


QUERIES = read_queries(_read("queries.sql"))


def lock(path: Path) -> int:
    """Make `path` this process's own until the returned descriptor is closed or the process ends, however it ends.

    Raises `Unavailable` when another process has it, or when the folder cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Unavailable(
            f"the store {path} cannot be opened: {error.strerror}",
            remedy="make its folder writable for this user",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(descriptor, 32).decode(errors="replace") or "unknown"
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise Unavailable(f"the store {path} cannot be locked: {error.strerror}") from error
        raise Unavailable(
            f"the store {path} is in use by process {owner}",
            remedy="stop that process, or give this one another path",
        ) from error
    # Only for the message above. On a full disk the lock holds all the same.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def open_writing(path: Path) -> sqlite3.Connection:
    """A connection whose every commit is on disk before it returns; makes the schema in a new file.

    Raises `Permanent` for a file that this version cannot use, and has then changed nothing in it.
    """
    _refuse_half(path)
    # Made here so that nobody else may read it; SQLite gives its log the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        new = _check(connection, path)
        # WAL with FULL syncs the log on each commit, so a commit outlives a loss of power.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {LARGEST_WAL_BYTES}")
        if new:
            _create(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    return connection


def rows_at_once(path: Path, name_key: str) -> tuple[str, str, int, Iterator[tuple[str, bytes]]]:
    """Incarnation, the name under that key or nothing, revision and all rows as they are at this moment, whoever writes meanwhile. Raises what the file's errors mean."""
    _refuse_half(path)
    connection = open_reading(path)
    try:
        _check(connection, path)
        connection.execute("BEGIN")
        incarnation, revision = connection.execute(QUERIES["get_store"]).fetchone()
        named = connection.execute(QUERIES["get_item"], {"key": name_key}).fetchone()
    except sqlite3.Error as error:
        connection.close()
        raise describe(error, path) from error
    return incarnation, named[1].decode() if named else "", revision, _rows(connection, path)


def _rows(connection: sqlite3.Connection, path: Path) -> Iterator[tuple[str, bytes]]:
    with contextlib.closing(connection):
        try:
            yield from connection.execute(QUERIES["list_all"])
        except sqlite3.Error as error:
            raise describe(error, path) from error


def half_replaced(path: Path) -> Path:
    """The file that is there while another store takes the place of this one."""
    return path.with_name(f"{path.name}.half-restored")


def put_in_place(path: Path, new: Path, aside: str) -> None:
    """Put `new` in the place of the store, which gets the ending `aside`. The caller has locked it.

    In several steps: until the last is on disk nobody opens the store, whatever stops us. The old file is made whole by itself before, so far as it can be read.
    """
    if path.exists():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    mark = half_replaced(path)
    mark.touch(mode=0o600)
    sync(mark)
    sync(path.parent)
    # The log of the old file must never meet the new one: it goes first.
    for ending in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(f"{path.name}{ending}").rename(path.with_name(f"{path.name}.{aside}{ending}"))
    new.rename(path)
    sync(path.parent)
    mark.unlink()
    sync(path.parent)


def _refuse_half(path: Path) -> None:
    if half_replaced(path).exists():
        raise Permanent(
            f"the store {path} was being restored, and its files are not all in place",
            remedy="run federator store restore again",
        )


def adopt(path: Path) -> str:
    """Give the store another incarnation, and return it: after a restore, and with no dispatcher running. Raises `Unavailable` if one is."""
    descriptor = lock(path)
    try:
        with contextlib.closing(open_writing(path)) as connection:
            incarnation = secrets.token_hex(8)
            connection.execute(QUERIES["set_incarnation"], {"incarnation": incarnation})
            return incarnation
    finally:
        os.close(descriptor)


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is new; raises `Permanent` when it is not ours to use."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables == 0 and version == 0:
        return True
    if application != APPLICATION_ID:
        raise Permanent(f"{path} is a database of another program", remedy="give the store a path of its own")
    if version > SCHEMA_VERSION:
        raise Permanent(
            f"{path} was made by a newer version: it has schema {version}, this version knows up to {SCHEMA_VERSION}",
            remedy="run the newer version, or restore the backup made before the upgrade",
        )
    return False


def _create(connection: sqlite3.Connection) -> None:
    # In one transaction, so that a process killed half-way leaves an empty file and not half a store.
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{_read('schema.sql')}\n"
        f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {SCHEMA_VERSION};"
    )
    connection.execute(QUERIES["create_store"], {"incarnation": secrets.token_hex(8)})
    connection.execute("COMMIT")


def describe(error: Exception, path: Path) -> FederatorError:
    """What an error of the database means to the caller."""
    # The primary code is in the low byte; the rest says where in SQLite it happened.
    code = (getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return Unavailable(
            f"the disk of the store {path} is full", retry_after_s=10.0, remedy="free space on it"
        )
    if code == sqlite3.SQLITE_READONLY:
        return Unavailable(
            f"the store {path} is read-only", retry_after_s=10.0, remedy="make it writable for this user"
        )
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Damaged(f"the store {path} is damaged: {error}", remedy="restore it from a backup")
    return Unavailable(f"the store {path} fails: {error}", remedy="look at the health of its disk")

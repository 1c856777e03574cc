"""Lines of the ledger that are committed and not sealed yet, noted beside the store: so one that is removed before it is sealed is missed all the same.

A note is one short write to a file, without waiting for the disk: it outlives the process, which is what an attacker ends. After a power cut the last
notes may be lacking; the lines themselves are then sealed as the store has them.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from federator.model.ledger import SealedLine

MOST_BYTES = 1 << 20
"""Over it the file is written anew with what is still not sealed."""
log = logging.getLogger(__name__)


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """Lines of one commit. `number`: of the newest seal then, so they are in a later one."""

    number: int
    lines: tuple[SealedLine, ...]


class Journal:
    """The notes, in one file. Calls write a few hundred bytes at most and wait for no disk; `read` and `renew` are for threads."""

    def __init__(self, path: Path | None) -> None:
        """Without a path nothing is noted."""
        self._path = path
        self._bytes = 0
        self._failed = False

    def read(self) -> list[JournalEntry]:
        """What is noted; a last note that was not written whole is left out, and so is what is none."""
        if self._path is None or not self._path.exists():
            return []
        notes, decoder = [], msgspec.json.Decoder(JournalEntry)
        for line in self._path.read_bytes().splitlines():
            try:
                notes.append(decoder.decode(line))
            except msgspec.MsgspecError:
                log.exception("a note in %s cannot be read: %d bytes", self._path, len(line))
        return notes

    def add(self, number: int, lines: Sequence[SealedLine]) -> None:
        """Note these lines of one commit. A disk that takes nothing is told of and stops nobody."""
        self._write(os.O_APPEND, [JournalEntry(number, tuple(lines))])

    def shorten(self, number: int, pending: Iterable[SealedLine]) -> None:
        """Forget what is sealed, once nothing else is noted or the file is large. `pending`: what is not."""
        left = tuple(pending)
        if self._bytes and (not left or self._bytes > MOST_BYTES):
            self.renew(number, left)

    def renew(self, number: int, pending: Iterable[SealedLine]) -> None:
        """Note these and nothing else."""
        left = tuple(pending)
        self._bytes = 0
        self._write(os.O_TRUNC, [JournalEntry(number, left)] if left else [])

    def _write(self, how: int, notes: Sequence[JournalEntry]) -> None:
        if self._path is None:
            return
        data = b"".join(msgspec.json.encode(note) + b"\n" for note in notes)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how, 0o600)
            try:
                self._bytes += os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._failed:
                log.error(  # noqa: TRY400 - the disk's own words say all
                    "lines of the ledger are not noted before they are sealed: %s: %s", self._path, error
                )
            self._failed = True
        else:
            self._failed = False

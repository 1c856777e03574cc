"""Lines of a log: those that match, each with when it was written."""

import re
from collections.abc import Iterator
from datetime import datetime

from federator.kernel.errors import Invalid
from federator.wire.log_times import LogPart

LONGEST = 2**20
"""Of a longer line, each so many bytes count as one."""
UNKNOWN = "-"
"""Stands for the time of a line whose log has none."""


class LogLines:
    """Cuts parts of a log into lines."""

    def __init__(self, grep: str | None, *, timestamps: bool) -> None:
        """`grep`: a regular expression. Raises `Invalid`."""
        try:
            self._wanted = re.compile(grep.encode()) if grep else None
        except re.error as error:
            raise Invalid(
                f"is not a regular expression: {error}",
                field="--grep",
                remedy="write a backslash before . * + ? ( ) [ ] { } ^ $ | that stand for themselves",
            ) from None
        self._timestamps = timestamps
        self._rest = b""
        self._rest_at: float | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is left out or added: bytes may be passed on as they come."""
        return self._wanted is None and not self._timestamps

    def take(self, part: LogPart) -> Iterator[bytes]:
        """The lines that are complete with this part. A line has the time of its first byte."""
        begin = 0
        while (end := part.data.find(b"\n", begin) + 1) or len(self._rest) + len(part.data) - begin > LONGEST:
            end = end or len(part.data)
            yield from self._line(self._rest + part.data[begin:end], self._rest_at if self._rest else part.at)
            self._rest, begin = b"", end
        if not self._rest:
            self._rest_at = part.at
        self._rest += part.data[begin:]

    def end(self) -> Iterator[bytes]:
        """What is left: a last line without an end."""
        if self._rest:
            yield from self._line(self._rest + b"\n", self._rest_at)
        self._rest = b""

    def _line(self, line: bytes, at: float | None) -> Iterator[bytes]:
        if self._wanted is None or self._wanted.search(line.rstrip(b"\r\n")):
            yield (_stamp(at).encode() + b" " if self._timestamps else b"") + line


def _stamp(at: float | None) -> str:
    if at is None:
        return UNKNOWN
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")

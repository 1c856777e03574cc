"""Where in a rank's log something is: its last lines, and what was written when.

Times are kept beside a log as a log of its own: fixed records, offset and seconds since the epoch. They get coarser as a log gets older, a ten-thousandth of its age, so that a run of a month has some 1.3 MB of them at most, whatever it writes.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from federator.ports import Blobs
from federator.wire.log_times import LogPart, LogTime

_RECORD = struct.Struct(">Qd")
CLOSEST_S = 0.2
"""Two records are so far apart at least."""
PART_OF_AGE = 1e-4
LARGEST_BYTES = 2**22
READ_BYTES = 2**16


def _name(log: str) -> str:
    return f"{log}/times"


def keep_times(blobs: Blobs, log: str, times: Iterable[LogTime]) -> None:
    """Add these, as far as they are worth a record. Before the bytes that they are about: what is there has its time. Blocks on disk."""
    name = _name(log)
    length = blobs.log_length(name) // _RECORD.size * _RECORD.size
    first, last = _at(blobs, name, 0), _at(blobs, name, length - _RECORD.size)
    for offset, given_at in times:
        if last is not None and first is not None:
            at = max(given_at, last.at)
            if at - last.at < max(CLOSEST_S, PART_OF_AGE * (at - first.at)) or offset < last.offset:
                continue
        else:
            at = given_at
        if length >= LARGEST_BYTES:
            return
        blobs.append_log(name, length, _RECORD.pack(offset, at))
        length += _RECORD.size
        last = LogTime(offset, at)
        first = first or last


def _at(blobs: Blobs, name: str, position: int) -> LogTime | None:
    data = blobs.read_log(name, position, _RECORD.size) if position >= 0 else b""
    return LogTime(*_RECORD.unpack(data)) if len(data) == _RECORD.size else None


def times_of(blobs: Blobs, log: str) -> list[LogTime]:
    """All that is recorded of a log, in order. Blocks on disk."""
    data = blobs.read_log(_name(log), 0, LARGEST_BYTES + _RECORD.size)
    found: list[LogTime] = []
    for record in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        time = LogTime(*record)
        # A record that was torn by a crash is none.
        if not found or (time.offset >= found[-1].offset and time.at >= found[-1].at):
            found.append(time)
    return found


def offset_since(times: Sequence[LogTime], since: float, length: int) -> int:
    """Where begins what was written at `since` or later: with what was there at the record before it, if there is no closer one."""
    later = next((each.offset for each in times if each.at >= since), None)
    return length if later is None else later


def parts(times: Sequence[LogTime], offset: int, data: bytes) -> Iterator[LogPart]:
    """These bytes of a log, apart where their times are."""
    end = offset + len(data)
    begin = offset
    at = bisect_right(times, offset, key=lambda each: each.offset)
    while begin < end:
        until = min(end, times[at].offset) if at < len(times) else end
        if until > begin:
            yield LogPart(begin, data[begin - offset : until - offset], times[at - 1].at if at else None)
        begin, at = max(begin, until), at + 1


def tail_offset(blobs: Blobs, name: str, lines: int) -> int:
    """Where the last `lines` lines of a log begin. Blocks on disk."""
    end = start = blobs.log_length(name)
    wanted = lines
    while start > 0 and lines > 0:
        begin = max(0, start - READ_BYTES)
        part = blobs.read_log(name, begin, start - begin)
        position = len(part)
        if start == end and part.endswith(b"\n"):
            position -= 1  # the newline that ends the last line does not begin another
        while (position := part.rfind(b"\n", 0, position)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + position + 1
        start = begin
    return start


def last_lines(blobs: Blobs, name: str, lines: int, most_bytes: int) -> str:
    """The last lines of a log as text, of a long line its end. Blocks on disk."""
    begin = max(blobs.log_length(name) - most_bytes, 0)
    ends = blobs.read_log(name, begin, most_bytes).decode(errors="replace").splitlines()
    return "\n".join(ends[-lines:])

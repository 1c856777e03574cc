"""Growing logs in a bucket, whose objects cannot grow: each log is a row of segments, `logs/NAME.log/START-END`.

What is appended gathers in memory and is written every few seconds, as a larger object in place of the former, until it is a whole segment. No object is
ever changed: a writer whose time is over, and who does not know it, can only add what is shorter than what is there, and the longest counts. What was not
written yet is asked for again of the log's agent, which keeps it until its placement's end is acknowledged; before that, `keep_logs` writes it.
"""

import contextlib
import logging
import re
import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from federator.kernel.errors import Damaged, FederatorError
from federator.store.blobs import check_append, check_log_name, gap_line
from federator.store.bucket import Bucket

SEGMENT_BYTES = 2**18
FLUSH_S = 5.0
"""How often (real seconds) what has gathered is written."""
MEMORY_BYTES = 64 * 2**20
"""Most that logs take in memory; those that were used least lately are written and forgotten."""
CACHED = 64
"""Segments that are kept for whoever reads on."""
WRITERS = 8
ENTRY_BYTES = 1000
"""What a log takes in memory beside its end."""
MOST_GROWN = 8
"""So many logs may grow while they are written to make room: they stay, and whoever appends next makes the room."""
ROOT = "logs/"
_SEGMENT = re.compile(r"(\d{12})-(\d{12})")
log = logging.getLogger(__name__)


class Segment(NamedTuple):
    """The bytes of a log from `first` to `end`, in the object that begins at `start`."""

    start: int
    end: int
    first: int
    until: int
    """Where the object ends; beyond `end` is what the next has too."""


class Log:
    """One log: `segments` in the bucket, then `tail` in memory from `start` on, of which objects that end at `written` are in the bucket already."""

    def __init__(self, name: str, segments: list[Segment]) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.segments = segments
        self.start = segments[-1].end if segments else 0
        self.tail = bytearray()
        self.written: set[int] = set()
        self.gone = False

    @property
    def length(self) -> int:
        """In bytes."""
        return self.start + len(self.tail)

    @property
    def unwritten(self) -> int:
        """How many bytes are in memory alone."""
        return self.length - max(self.written, default=self.start)

    def seal(self, end: int) -> None:
        """What is written up to there changes no more, and leaves the memory."""
        self.segments.append(Segment(self.start, end, self.start, end))
        del self.tail[: end - self.start]
        self.start = end
        self.written.clear()


class SegmentedLogs:
    """The logs of `federator.ports.Blobs` in a bucket. `close` ends the writing."""

    def __init__(
        self, bucket: Bucket, *, segment_bytes: int = SEGMENT_BYTES, flush_s: float = FLUSH_S
    ) -> None:
        self._bucket = bucket
        self._segment_bytes = segment_bytes
        self._flush_s = flush_s
        self.logs: OrderedDict[str, Log] = OrderedDict()
        self.memory_bytes = 0
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        """Of what is known of all logs; never held while the bucket is asked."""
        self._closed = threading.Event()
        self._flusher: threading.Thread | None = None

    def append(self, name: str, offset: int, data: bytes) -> int:
        """See `Blobs.append_log`."""
        check_append(name, offset, data)
        while True:
            found = self._log(name)
            if len(found.tail) >= self._segment_bytes:
                self._write(found)
            if data and offset > found.length:
                self._bridge(found, offset)
            with found.lock:
                if found.gone or (data and offset > found.length):
                    continue
                new = data[found.length - offset :]
                found.tail += new
                length = found.length
            break
        self._count(len(new))
        return length

    def read(self, name: str, offset: int, limit: int) -> bytes:
        """See `Blobs.read_log`."""
        found = self._log(name)
        offset = max(offset, 0)
        with found.lock:
            end = min(offset + max(limit, 0), found.length)
            if end <= offset:
                return b""
            tail, start = (
                bytes(found.tail[max(offset - found.start, 0) : max(end - found.start, 0)]),
                found.start,
            )
            segments = _between(found.segments, offset, end)
        # What no segment has is a gap after the line that tells of it.
        data = bytearray(end - offset)
        for each in segments:
            kept = self._segment(found, each)
            first, last = max(each.first, offset), min(each.end, end)
            data[first - offset : last - offset] = kept[first - each.start : last - each.start]
        if tail:
            at = max(start, offset) - offset
            data[at : at + len(tail)] = tail
        return bytes(data)

    def length(self, name: str) -> int:
        """See `Blobs.log_length`."""
        found = self._log(name)
        with found.lock:
            return found.length

    def keep(self, names: Collection[str]) -> None:
        """See `Blobs.keep_logs`."""
        with self._lock:
            grown = [each for each in self.logs.values() if each.unwritten and _is_below(each.name, names)]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self._write, grown))

    def drop(self, name: str) -> None:
        """See `Blobs.drop_logs`."""
        check_log_name(name)
        with self._lock:
            known = [each for each in self.logs.values() if _is_below(each.name, (name,))]
        for found in known:
            self._forget(found)
        for prefix in (f"{ROOT}{name}.log/", f"{ROOT}{name}/"):
            keys = [each.key for each in self._bucket.all(prefix)]
            self._bucket.delete(keys)
            with self._lock:
                for key in keys:
                    self._cache.pop(key, None)

    def usage(self) -> Counter[str]:
        """Bytes by the first part of the logs' names. A segment that is about to be replaced counts as well."""
        usage: Counter[str] = Counter()
        for each in self._bucket.all(ROOT):
            usage[_first_part(each.key.removeprefix(ROOT))] += each.size
        with self._lock:
            known = list(self.logs.values())
        for found in known:
            if unwritten := found.unwritten:
                usage[_first_part(found.name)] += unwritten
        return usage

    def close(self) -> None:
        """Write what has gathered, as far as the bucket takes it at once, and end."""
        self._closed.set()
        if self._flusher is not None:
            self._flusher.join()
        self.flush()

    # ---------------------------------------------------------------------------------------------------- in memory

    def _log(self, name: str) -> Log:
        """What is known of it; else what the bucket has."""
        check_log_name(name)
        with self._lock:
            if name in self.logs:
                self.logs.move_to_end(name)
                return self.logs[name]
        made = Log(name, self._listed(name))
        with self._lock:
            found = self.logs.setdefault(name, made)
        if found is made:
            self._count(ENTRY_BYTES)
        return found

    def _count(self, more: int) -> None:
        """So much more is in memory: make room, and see to it that it is written."""
        with self._lock:
            self.memory_bytes += more
            if self._flusher is None and not self._closed.is_set():
                self._flusher = threading.Thread(target=self._run, name="log-segments", daemon=True)
                self._flusher.start()
        grown = 0
        while self.memory_bytes > MEMORY_BYTES and grown < MOST_GROWN:
            with self._lock:
                oldest = next(iter(self.logs.values()), None)
            if oldest is None:
                return
            self._write(oldest)
            grown += not self._forget(oldest, unwritten=False)

    def _forget(self, found: Log, *, unwritten: bool = True) -> bool:
        """It leaves the memory. Where what is `unwritten` may not be lost, a log that has any stays: False."""
        with found.lock:
            if found.unwritten and not (unwritten or found.gone):
                return False
            gone, found.gone, held = found.gone, True, len(found.tail)
            if unwritten:
                found.written.clear()
        if not gone:
            with self._lock:
                self.logs.pop(found.name, None)
                self.memory_bytes -= ENTRY_BYTES + held
        return True

    # ---------------------------------------------------------------------------------------------------- the bucket

    def _run(self) -> None:
        while not self._closed.wait(self._flush_s):
            self.flush()

    def flush(self) -> None:
        """Write every log that has grown, one attempt each: what fails is written the next time."""
        with self._lock:
            grown = [each for each in self.logs.values() if each.unwritten]
        faults: list[FederatorError] = []

        def write(each: Log) -> None:
            if not faults:
                try:
                    self._write(each, patience_s=0.0)
                except FederatorError as error:
                    faults.append(error)

        if grown:
            with ThreadPoolExecutor(WRITERS) as pool:
                list(pool.map(write, grown))
        if faults:
            log.warning("logs wait in memory: %s", faults[0])

    def _write(self, found: Log, patience_s: float | None = None, *, seals: bool = False) -> None:
        """Write the tail as it is now. A whole segment, or with `seals` any, leaves the memory."""
        with found.lock:
            start, data = found.start, bytes(found.tail)
            if found.gone or not data or not (found.unwritten or seals):
                return
        end = start + len(data)
        self._bucket.put(_key(found.name, start, end), data, patience_s=patience_s)
        with found.lock:
            held = len(found.tail)
            old = self._wrote(found, start, end, seals=seals)
            freed = held - len(found.tail)
        with self._lock:
            self.memory_bytes -= freed
        # What stays is a shorter copy that nobody looks at, and goes with the log.
        with contextlib.suppress(FederatorError):
            self._bucket.delete([_key(found.name, start, each) for each in old])

    def _wrote(self, found: Log, start: int, end: int, *, seals: bool) -> list[int]:
        """An object from `start` to `end` is there now; the ends of those that nobody needs any more."""
        if found.gone or found.start != start:
            # Dropped, forgotten, or sealed by another thread, meanwhile; which may have written the very same.
            same = (
                end in found.written
                if found.start == start
                else (start, end) in {each[:2] for each in found.segments}
            )
            return [] if same else [end]
        found.written.add(end)
        newest = max(found.written)
        old = sorted(found.written - {newest})
        found.written = {newest}
        if newest > start and (seals or newest - start >= self._segment_bytes):
            found.seal(newest)
        return old

    def _bridge(self, found: Log, offset: int) -> None:
        """Say in the log how much of it is missing up to `offset`, and go on from there."""
        with found.lock:
            missing = offset - found.length
            if found.gone or missing <= 0:
                return
            line = gap_line(missing)
            found.tail += line
        self._count(len(line))
        if missing > len(line):
            self._write(found, seals=True)
            with found.lock:
                if not found.tail and found.start < offset:
                    found.start = offset

    def _listed(self, name: str) -> list[Segment]:
        prefix = f"{ROOT}{name}.log/"
        return _in_order(each.key.removeprefix(prefix) for each in self._bucket.all(prefix))

    def _segment(self, found: Log, wanted: Segment) -> bytes:
        """The bytes of an object. One that a former writer has replaced by a longer one is looked for again."""
        kept = self._cached(_key(found.name, wanted.start, wanted.until))
        if kept is None:
            listed = self._listed(found.name)
            with found.lock:
                found.segments = [each for each in listed if each.start < found.start]
            longer = [each.until for each in listed if each.start == wanted.start]
            kept = self._cached(_key(found.name, wanted.start, longer[0])) if longer else None
        if kept is None:
            raise Damaged(
                f"the log {found.name} lacks its bytes {wanted.start} to {wanted.until} in {self._bucket.name}",
                remedy="restore the object, or see who deletes from the bucket",
            )
        return kept

    def _cached(self, key: str) -> bytes | None:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        data = self._bucket.get(key)
        if data is not None:
            with self._lock:
                self._cache[key] = data
                while len(self._cache) > CACHED:
                    self._cache.popitem(last=False)
        return data


def _key(name: str, start: int, end: int) -> str:
    return f"{ROOT}{name}.log/{start:012}-{end:012}"


def _is_below(name: str, names: Collection[str]) -> bool:
    """Whether it is one of these, or below one."""
    parts = name.split("/")
    return any("/".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _first_part(name: str) -> str:
    return name.partition("/")[0].removesuffix(".log")


def _in_order(names: Iterable[str]) -> list[Segment]:
    """The segments that together have everything, each from where the one before it ends: of those that begin alike the longest counts."""
    found = [(int(match[1]), int(match[2])) for name in names if (match := _SEGMENT.fullmatch(name))]
    segments: list[Segment] = []
    end = 0
    for start, until in sorted(found, key=lambda each: (each[0], -each[1])):
        if until > end:
            segments.append(Segment(start, until, max(start, end), until))
            end = until
    return segments


def _between(segments: list[Segment], offset: int, end: int) -> list[Segment]:
    def parts() -> Iterator[Segment]:
        for each in segments[max(0, bisect_right(segments, offset, key=lambda each: each.end)) :]:
            if each.first >= end:
                return
            yield each

    return list(parts())

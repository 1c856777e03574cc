"""Records of jobs that are in the archive, as far as somebody has asked for them lately: readers find them here, and nothing is ever decided by them."""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from federator.control.record.rows import ClientKey, Outputs
from federator.model.archive import StoredJob
from federator.model.events import Event
from federator.model.jobs import Job
from federator.model.placements import Placement

MOST = 20_000
"""Jobs of the archive that are kept decoded."""
SPEC_BYTES = 2**28
"""Of their specs, all together: as many as the largest page has of the largest."""
Row = TypeVar("Row")


class _Lately(Generic[Row]):
    """The rows that were put last: so many, and no more than `most_bytes` where their size is said."""

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self.rows: OrderedDict[str, tuple[Row, int]] = OrderedDict()

    def put(self, name: str, row: Row, size: int = 0) -> None:
        _, former = self.rows.pop(name, (None, 0))
        self.rows[name] = row, size
        self._bytes += size - former
        while len(self.rows) > self._most or self._bytes > self._most_bytes:
            self._bytes -= self.rows.popitem(last=False)[1][1]

    def get(self, name: str) -> Row | None:
        return self.rows.get(name, (None, 0))[0]


class Past:
    """What was read from the archive lately."""

    def __init__(self) -> None:
        self.jobs: _Lately[Job] = _Lately(MOST)
        self.placements: _Lately[Placement] = _Lately(2 * MOST)
        self.specs: _Lately[bytes] = _Lately(MOST, SPEC_BYTES)
        self.outputs: _Lately[Outputs] = _Lately(MOST)
        self.events: _Lately[tuple[Event, ...]] = _Lately(1000)
        self.client_keys: _Lately[ClientKey] = _Lately(1000)
        self.clients: dict[str, array[int]] = {}
        """Of each file the client ids of its jobs, as sorted short hashes: who repeats one is told of the job that it made."""

    def keep(self, stored: StoredJob) -> Job:
        """Decode a job's records, and have them at hand."""
        job = msgspec.json.decode(stored.job_json, type=Job)
        self.jobs.put(job.id, job)
        spec = self.specs.get(job.spec_hash) or stored.spec_json.encode()
        self.specs.put(job.spec_hash, spec, len(spec))
        for placement in msgspec.json.decode(stored.placements_json, type=list[Placement]):
            self.placements.put(placement.id, placement)
        if stored.outputs_json is not None:
            self.outputs.put(job.id, msgspec.json.decode(stored.outputs_json, type=Outputs))
        if stored.events_json is not None:
            self.events.put(job.id, msgspec.json.decode(stored.events_json, type=tuple[Event, ...]))
        return job

    def may_know(self, key: str) -> bool:
        """Whether a client id may be that of a job in the archive; of a million others, none is taken for one."""
        wanted = _short(key)
        return any(_has(hashes, wanted) for hashes in self.clients.values())


def hashes_of(keys: Iterable[str]) -> "array[int]":
    """Client ids as sorted short hashes, 8 bytes each."""
    return array("Q", sorted(map(_short, keys)))


def _short(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest())


def _has(hashes: "array[int]", wanted: int) -> bool:
    place = bisect_left(hashes, wanted)
    return place < len(hashes) and hashes[place] == wanted


Summary = Callable[[str], tuple[bytes, bytes]]
"""An array as a line of a list, and all its tasks added up, as JSON."""

"""Who waits, in one lane per class: what is true of a lane's first job is true of all behind it.

A schedule offers starts from moment to moment. Asking every waiting job at every moment would cost jobs × moments; asking the first of each class costs
classes × moments, and one more question per start.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice

from federator.model.snapshot import JobView
from federator.planning.world.problem import ClassKey, World


class Lanes:
    """The waiting jobs. `looks` counts how often one was offered its turn."""

    def __init__(self, world: World, started: Iterable[str], order: Mapping[str, int] | None = None) -> None:
        """All jobs but those that have started already, in the world's order, or in another: every job's turn."""
        gone = frozenset(started)
        self._lanes: dict[ClassKey, deque[tuple[int, JobView]]] = {}
        self.looks = 0
        jobs = world.jobs if order is None else sorted(world.jobs, key=lambda job: order[job.id])
        for turn, job in enumerate(jobs):
            if job.id not in gone:
                self._lanes.setdefault(world.key(job), deque()).append((turn, job))

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def waiting(self) -> list[JobView]:
        """All that still wait, in order."""
        return [job for _, job in sorted((e for lane in self._lanes.values() for e in lane), key=_turn)]

    def alike(self, key: ClassKey, most: int) -> list[JobView]:
        """Those of a class that still wait, in order: the first so many."""
        return [job for _, job in islice(self._lanes[key], most)]

    def turns(self) -> Iterator[tuple[ClassKey, JobView, "Turn"]]:
        """The first of each lane in the order of all jobs. Where it says `took`, the next of its lane has its turn where it stands."""
        heads = [(lane[0][0], key) for key, lane in self._lanes.items()]
        heapify(heads)
        while heads:
            _, key = heappop(heads)
            lane = self._lanes[key]
            self.looks += 1
            turn = Turn()
            yield key, lane[0][1], turn
            if not turn.took:
                continue
            lane.popleft()
            if lane:
                heappush(heads, (lane[0][0], key))
            else:
                del self._lanes[key]


class Turn:
    """What became of an offer."""

    took = False


def _turn(entry: tuple[int, JobView]) -> int:
    return entry[0]

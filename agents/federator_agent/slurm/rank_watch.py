"""Follows a placement whose gate is open: tells of each rank when it begins and how it ends.

Ranks leave marks in files; Slurm knows of the job as a whole. A rank's end is told when its mark is there *and* a later look at the queue shows that Slurm is not just
ending the job for reasons of its own; the last one only when Slurm says that the job is over, or waits again, so that nothing of it is left on any node.
"""

import asyncio
import time
from collections.abc import Callable

from federator.kernel.clock import Clock
from federator_agent.core.events import Event, RankEnded, RankStarted
from federator_agent.slurm.cluster import SlurmCluster
from federator_agent.slurm.fates import FORGOTTEN, REQUEUED, RankEnd, by_itself, fate
from federator_agent.slurm.folder import Folder, Marks
from federator_agent.slurm.output import WAITING, Job, last_words
from federator_agent.slurm.queue import QueueSnapshot

MARKS_S, FIRST_MARKS_S = 0.5, 0.1
"""Pauses between looks for marks: usually, and while something is about to happen."""
QUEUE_S = 5.0
"""So old the look at the queue may be while nothing happens."""
HASTE_S = 10.0
"""So long after a start, a signal or a mark there are more looks."""
SETTLE_S = 3.0
"""A mark may be seen so much later than the end of the job: networked file systems remember what was not there."""


class RankWatch:
    """One placement's ranks."""

    def __init__(
        self,
        cluster: SlurmCluster,
        folder: Folder,
        placement: str,
        slurm_job: str,
        clock: Clock,
        tell: Callable[[Event], None],
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._placement = placement
        self.slurm_job = slurm_job
        self._clock = clock
        self._tell = tell
        self._left: set[int] = set()
        self._started: set[int] = set()
        self._seen_s: dict[int, float] = {}
        self._over_since_s: float | None = None
        self._haste_until_s = 0.0
        self.killed = False
        """The federation has cancelled the job."""

    def add(self, ranks: tuple[int, ...]) -> None:
        """Follow these, too."""
        self._left.update(ranks)
        self.hurry()

    def hurry(self) -> None:
        """Something is about to happen."""
        self._haste_until_s = asyncio.get_running_loop().time() + HASTE_S

    async def run(self) -> None:
        """Until all ends are told."""
        loop = asyncio.get_running_loop()
        asking: asyncio.Task[QueueSnapshot] | None = None
        try:
            while self._left:
                hasty = loop.time() < self._haste_until_s
                if asking is None:
                    asking = loop.create_task(self._cluster.look(MARKS_S if hasty else QUEUE_S))
                elif hasty:
                    self._cluster.queue.hasten(MARKS_S)
                await asyncio.wait([asking], timeout=FIRST_MARKS_S if hasty else MARKS_S)
                look = asking.result() if asking.done() else None
                asking = None if look else asking
                self.judge(look, await asyncio.to_thread(self._folder.marks))
        finally:
            if asking is not None:
                asking.cancel()
            self._cluster.changed()

    def judge(self, look: QueueSnapshot | None, marks: Marks) -> None:
        """`marks` were read after the look."""
        now_s = asyncio.get_running_loop().time()
        for rank in marks.started.keys() & self._left - self._started:
            self._started.add(rank)
            self._tell(RankStarted(self._placement, rank, self._clock_time(marks.started[rank])))
        ended = marks.ended.keys() & self._left
        for rank in ended - self._seen_s.keys():
            self._seen_s[rank] = now_s
            self.hurry()
        if look is None:
            return
        job = next((each for each in look.get(self._placement, ()) if each.id == self.slurm_job), None)
        if job is None or job.over or _waits_again(job):
            self._over_since_s = self._over_since_s or now_s
            if ended == self._left or now_s - self._over_since_s > SETTLE_S:
                state = _state(job) or last_words(self._folder.said()) or FORGOTTEN
                told = self._told(marks)
                for rank in sorted(self._left):
                    how = fate(marks.ended.get(rank), state, killed=self.killed, told=rank in told)
                    self._end(rank, marks, how)
            else:
                self.hurry()
        elif ended != self._left and job.state == "RUNNING" and not (job.preempted or job.restarts):
            told = self._told(marks)
            for rank in sorted(rank for rank in ended if self._seen_s[rank] < look.began_s):
                self._end(rank, marks, by_itself(marks.ended[rank], told=rank in told))

    def _told(self, marks: Marks) -> frozenset[int]:
        """Which were told to end by others than this agent."""
        return frozenset() if not marks.told or self._folder.signalled else marks.told

    def _end(self, rank: int, marks: Marks, how: RankEnd) -> None:
        self._left.discard(rank)
        mark = marks.ended.get(rank)
        at = self._clock_time(mark.real_at) if mark else self._clock.now()
        self._tell(RankEnded(self._placement, rank, at, how.code, how.detail, how.cause))

    def _clock_time(self, real_at: float) -> float:
        """A real time of the past by this agent's clock, which may run faster; a node's clock may be ahead."""
        ago_s = max(0.0, time.time() - real_at)
        return self._clock.now() - ago_s / (self._clock.real_delay_s(1.0) or 1.0)


def _waits_again(job: Job) -> bool:
    """Whether Slurm has ended what ran of it, and put it back. One that waits and was never put back may run: a slurmctld has lost its latest state."""
    return job.restarts > 0 and job.state in WAITING


def _state(job: Job | None) -> str:
    """Slurm says FAILED of a job that ends by itself when it is preempted, within its grace. One that was requeued waits until it is told to go, or fails at what it finds begun."""
    if job is None:
        return ""
    if job.restarts:
        return REQUEUED
    return "PREEMPTED" if job.preempted else job.state

"""What happens now, for those who follow: events as they become durable, and a bell per job for its log.

Both listen to the records, so a follower hears of nothing that could be taken back. Nothing is kept for a follower that does not read:
it is cut off, and comes back with the last id that it saw.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from federator.control.record.records import Changes, Records
from federator.model.events import Event
from federator.model.jobs import Job

BACKLOG = 10_000
"""Events that one follower may be behind."""
RECENT = 10_000
"""Events kept for followers of all jobs that come back."""


class Follower:
    """One who follows events; `job` empty: of all jobs."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.waiting: deque[Event] = deque()
        self.wake = asyncio.Event()
        self.cut_off = False

    async def take(self, timeout_s: float) -> list[Event]:
        """What has come since the last call; empty after `timeout_s` real seconds without any."""
        if not self.waiting and not self.cut_off:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.wake.wait()
        self.wake.clear()
        taken = list(self.waiting)
        self.waiting.clear()
        return taken


class Feeds:
    """Followers of events, and bells."""

    def __init__(self, records: Records) -> None:
        self.recent: deque[Event] = deque(maxlen=RECENT)
        self.closing = False
        self._followers: set[Follower] = set()
        self.bells: dict[str, set[asyncio.Event]] = {}
        self._unsubscribe = records.subscribe(self._on_change)

    @contextlib.contextmanager
    def follow(self, job: str = "") -> Iterator[Follower]:
        """Hear events from now on."""
        follower = Follower(job)
        follower.cut_off = self.closing
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    @contextlib.contextmanager
    def listen(self, job: str) -> Iterator[asyncio.Event]:
        """A bell that rings whenever the job's record or log has changed."""
        bell = asyncio.Event()
        bells = self.bells.setdefault(job, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                self.bells.pop(job, None)

    def ring(self, job: str) -> None:
        """Something about this job has changed."""
        for bell in self.bells.get(job, ()):
            bell.set()

    def close(self) -> None:
        """Let everyone who follows go."""
        self.closing = True
        self._unsubscribe()
        for follower in self._followers:
            follower.cut_off = True
            follower.wake.set()
        for job in self.bells:
            self.ring(job)

    def _on_change(self, changes: Changes) -> None:
        for row in changes.rows.values():
            if isinstance(row, Event):
                self._pass_on(row)
            elif isinstance(row, Job):
                self.ring(row.id)

    def _pass_on(self, event: Event) -> None:
        self.recent.append(event)
        for follower in self._followers:
            if follower.job in ("", event.job):
                follower.waiting.append(event)
                follower.cut_off = follower.cut_off or len(follower.waiting) > BACKLOG
                follower.wake.set()

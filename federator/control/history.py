"""How long jobs of the same name and queue have run: what the forecast uses when the user gives no estimate.

Rebuilt from the job records at start, so that it needs no rows of its own; bounded per name.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from federator.model.jobs import Job, JobStatus

KEPT = 50


class History:
    """Run times in seconds, newest last, by queue and name."""

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._learned: Counter[tuple[str, str]] = Counter()
        self._news: set[tuple[str, str]] = set()

    def load(self, jobs: Iterable[Job]) -> None:
        """Learn from records, oldest first."""
        for job in sorted(jobs, key=lambda job: job.finished_at or 0.0):
            self.learn(job)

    def learn(self, job: Job) -> None:
        """Take note of a job that succeeded; others teach nothing about run times."""
        if job.status is JobStatus.SUCCEEDED and job.started_at is not None and job.finished_at is not None:
            self._runs[job.queue, job.name].append(max(0.0, job.finished_at - job.started_at))
            self._learned[job.queue, job.name] += 1
            self._news.add((job.queue, job.name))

    def take_news(self) -> set[tuple[str, str]]:
        """Queues and names that something was learned of since the last call."""
        news, self._news = self._news, set()
        return news

    def learned(self, queue: str, name: str) -> int:
        """How often something was learned of that queue and name."""
        return self._learned[queue, name]

    def runs(self, queue: str, name: str) -> tuple[float, ...]:
        """Past run times of that queue and name."""
        return tuple(self._runs.get((queue, name), ()))

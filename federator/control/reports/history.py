"""How long jobs have run, and how far that was from what their users said: what forecasts are made of.

By queue and name, for work of one name is alike; of each owner also one error of each name, for what is new. Rebuilt from the records at
start, so that it needs no rows of its own; bounded per name and owner.
"""

import math
from collections import Counter, OrderedDict, defaultdict, deque

from federator.control.record.records import Records
from federator.model.jobs import Job, JobStatus
from federator.planning.scheduling.forecast import UNKNOWN, Leaning, leaning

KEPT = 50
SHORTEST_S = 1.0
"""A run or an estimate below this says nothing about a factor."""

Key = tuple[str, str]
"""A queue, and a name of jobs."""


class History:
    """Run times in seconds of form 0 at speed 1, and errors of estimates as ln(run / estimate), newest last, by queue and name."""

    def __init__(self, *, corrects: bool = True) -> None:
        """`corrects`: whether estimates are corrected by what earlier ones of their kind turned out to be worth."""
        self.corrects = corrects
        self._runs: defaultdict[Key, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._errors: defaultdict[Key, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._owners: defaultdict[str, OrderedDict[Key, float]] = defaultdict(OrderedDict)
        self._leanings: dict[tuple[str, Key], Leaning] = {}
        self._learned: Counter[Key] = Counter()
        self._news: set[Key] = set()

    def load(self, records: Records) -> None:
        """Learn from records, oldest first."""
        for job in sorted(records.jobs.values(), key=lambda job: job.finished_at or 0.0):
            self.learn(job, records)

    def learn(self, job: Job, records: Records) -> None:
        """Take note of a job that succeeded; others teach nothing about run times."""
        if job.status is not JobStatus.SUCCEEDED or job.started_at is None or job.finished_at is None:
            return
        key, spec = (job.queue, job.kin), records.spec(job.spec_hash)
        placement = records.placements.get(job.placement or "")
        pace = spec.pace(placement.form, placement.model) if placement is not None else 1.0
        run_s = job.saved_s + max(0.0, job.finished_at - job.started_at) * pace
        self._runs[key].append(run_s)
        self._learned[key] += 1
        self._news.add(key)
        if spec.estimate_s is not None and min(run_s, spec.estimate_s) >= SHORTEST_S and job.epoch <= 1:
            self._err(job.owner, key, math.log(run_s / spec.estimate_s))

    def _err(self, owner: str, key: Key, error: float) -> None:
        self._errors[key].append(error)
        names = self._owners[owner]
        if key not in names:
            # One of each name: a thousand tasks of one array are one mistake of their owner.
            names[key] = error
            if len(names) > KEPT:
                names.popitem(last=False)
        self._leanings.clear()

    def leaning(self, queue: str, name: str, owner: str) -> Leaning:
        """How estimates of that queue, name and owner turn out."""
        if not self.corrects:
            return UNKNOWN
        key = (queue, name)
        known = self._leanings.get((owner, key))
        if known is None:
            others = [error for other, error in self._owners[owner].items() if other != key]
            known = self._leanings[owner, key] = leaning(self._errors.get(key, ()), others)
        return known

    def take_news(self) -> set[Key]:
        """Queues and names that something was learned of since the last call."""
        news, self._news = self._news, set()
        return news

    def learned(self, queue: str, name: str) -> int:
        """How often something was learned of that queue and name."""
        return self._learned[queue, name]

    def runs(self, queue: str, name: str) -> tuple[float, ...]:
        """Past run times of that queue and name."""
        return tuple(self._runs.get((queue, name), ()))

"""How long jobs have run, and how far that was from what their users said: what forecasts are made of.

By queue and name, for work of one name is alike; of each owner also one error of each name, for what is new. Names that ran on several
GPU models tell the speeds of these, of each other and of what is new in their queue or of their owner. Rebuilt at start from the records and
then, in the background, from the archive, so that it needs no rows of its own; bounded per name, owner and queue.
"""

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from federator.control.record.records import Records
from federator.kernel.errors import NotFound
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.planning.scheduling.forecast import UNKNOWN, Leaning, leaning
from federator.planning.scheduling.speeds import Logs, Speeds, learned_speeds

KEPT = 50
NAMES = 20
"""So many names with runs on several GPU models are kept of each owner, and of each queue: the newest."""
SHORTEST_S = 1.0
"""A run or an estimate below this says nothing about a factor."""

Key = tuple[str, str]
"""A queue, and a name of jobs."""
Declared = tuple[tuple[str, float], ...]
"""Speeds by GPU model, sorted."""


class _Run(NamedTuple):
    """A run: seconds of form 0 at speed 1, as its job declared its speeds then."""

    run_s: float
    error: float | None
    """ln(run / estimate), where that says something."""
    model: str
    """The GPU model that all of it ran on, if it was one."""
    speed: float
    """That was declared for it."""
    declared: Declared
    form: int

    def corrected(self, speeds: Speeds) -> float:
        """By what its run time and its error grow with these speeds in place of the declared ones, as a logarithm."""
        return math.log(speeds.on(self.model) / self.speed) if self.model else 0.0


class History:
    """Run times in seconds, errors of estimates as ln(run / estimate), and speeds by GPU model, newest last, by queue and name."""

    def __init__(self, *, corrects: bool = True) -> None:
        """`corrects`: whether estimates and speeds are corrected by what earlier ones of their kind turned out to be worth."""
        self.corrects = corrects
        self._runs: defaultdict[Key, deque[_Run]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._owners: defaultdict[str, OrderedDict[Key, _Run]] = defaultdict(OrderedDict)
        self.measured: defaultdict[tuple[str, str], OrderedDict[Key, Logs]] = defaultdict(OrderedDict)
        """Names with runs on several models, and what these alone say of ln(speed): by "owner" or "queue", and which."""
        self._leanings: dict[tuple[str, Key, Declared], Leaning] = {}
        self._speeds: dict[tuple[str, Key, Declared], Speeds] = {}
        self._corrected: dict[str, dict[Key, float]] = {}
        """Of an owner one error of each name, with what is known of speeds."""
        self._learned: Counter[Key] = Counter()
        self._news: set[Key] = set()

    def load(self, records: Records) -> None:
        """Learn from records, oldest first."""
        for job in sorted(records.jobs.values(), key=lambda job: job.finished_at or 0.0):
            self.learn(job, records)

    def learn_older(self, jobs: Iterable[Job], records: Records) -> None:
        """Learn from jobs that ended before all that is known, the newest first: what there is room for."""
        for job in jobs:
            with suppress(NotFound):  # where specs are very long, those that were read first have left memory
                self.learn(job, records, older=True)

    def learn(self, job: Job, records: Records, *, older: bool = False) -> None:
        """Take note of a job that succeeded; others teach nothing about run times."""
        if job.status is not JobStatus.SUCCEEDED or job.started_at is None or job.finished_at is None:
            return
        key = (job.queue, job.kin)
        if older and len(self._runs[key]) == KEPT:
            return
        spec, placement = records.spec(job.spec_hash), records.known_placement(job.placement)
        form, model = (placement.form, placement.model) if placement is not None else (0, "")
        run_s = job.saved_s + max(0.0, job.finished_at - job.started_at) * spec.pace(form, model)
        run = _run(job, spec, run_s, form, model)
        (self._runs[key].appendleft if older else self._runs[key].append)(run)
        self._learned[key] += 1
        self._news.add(key)
        self._compare(job.owner, key, spec)
        if run.error is not None:
            self._err(job.owner, key, run)
        self._leanings.clear()
        self._corrected.clear()

    def _compare(self, owner: str, key: Key, spec: JobSpec) -> None:
        """What the runs of that name say of speeds, for other names."""
        own = self._compared(key)
        models = sorted({model for model, _ in own})
        owners, queues = self.measured["owner", owner], self.measured["queue", key[0]]
        if len(models) < 2 and key not in owners and key not in queues:
            self._speeds = {each: speeds for each, speeds in self._speeds.items() if each[1] != key}
            return
        found = learned_speeds(spec.speed, own)
        for names in (owners, queues):
            names.pop(key, None)
            if len(models) > 1:
                names[key] = {model: math.log(found.on(model)) for model in models}
            if len(names) > NAMES:
                names.popitem(last=False)
        known = self._speeds.items()
        self._speeds = {each: speeds for each, speeds in known if each[0] != owner and each[1][0] != key[0]}

    def _compared(self, key: Key) -> list[tuple[str, float]]:
        """Runs that tell something about speeds: the model, and ln(seconds there), over the estimate where there are estimates."""
        runs = [run for run in self._runs.get(key, ()) if run.model and not run.form]
        if any(run.error is not None for run in runs):
            return [(run.model, run.error - math.log(run.speed)) for run in runs if run.error is not None]
        return [(run.model, math.log(run.run_s / run.speed)) for run in runs if run.run_s >= SHORTEST_S]

    def _err(self, owner: str, key: Key, run: _Run) -> None:
        names = self._owners[owner]
        if key not in names:
            # One of each name: a thousand tasks of one array are one mistake of their owner.
            names[key] = run
            if len(names) > KEPT:
                names.popitem(last=False)

    def speeds(self, queue: str, name: str, owner: str, declared: Mapping[str, float]) -> Speeds:
        """How fast work of that queue, name and owner goes on each GPU model."""
        if not self.corrects:
            return Speeds(declared)
        return self._known_speeds(owner, (queue, name), tuple(sorted(declared.items())))

    def _known_speeds(self, owner: str, key: Key, declared: Declared) -> Speeds:
        known = self._speeds.get((owner, key, declared))
        if known is None:
            mine, queues = self.measured["owner", owner], self.measured["queue", key[0]]
            others = [(logs, True) for other, logs in mine.items() if other != key]
            others += [(logs, False) for other, logs in queues.items() if other != key and other not in mine]
            known = learned_speeds(dict(declared), self._compared(key), others)
            self._speeds[owner, key, declared] = known
        return known

    def leaning(self, queue: str, name: str, owner: str, declared: Mapping[str, float]) -> Leaning:
        """How estimates of that queue, name and owner turn out, once speeds are corrected."""
        if not self.corrects:
            return UNKNOWN
        key, said = (queue, name), tuple(sorted(declared.items()))
        known = self._leanings.get((owner, key, said))
        if known is None:
            speeds = self._known_speeds(owner, key, said)
            own = [
                run.error + run.corrected(speeds) for run in self._runs.get(key, ()) if run.error is not None
            ]
            known = self._leanings[owner, key, said] = leaning(own, self._others_errors(owner, key))
        return known

    def _others_errors(self, owner: str, key: Key) -> list[float]:
        """One error of each other name of that owner."""
        errors = self._corrected.get(owner)
        if errors is None:
            errors = self._corrected[owner] = {
                name: run.error + run.corrected(self._known_speeds(owner, name, run.declared))
                for name, run in self._owners[owner].items()
                if run.error is not None
            }
        return [error for name, error in errors.items() if name != key]

    def take_news(self) -> set[Key]:
        """Queues and names that something was learned of since the last call."""
        news, self._news = self._news, set()
        return news

    def learned(self, queue: str, name: str) -> int:
        """How often something was learned of that queue and name."""
        return self._learned[queue, name]

    def runs(self, queue: str, name: str, speeds: Speeds | None = None) -> tuple[float, ...]:
        """Past run times of that queue and name, in seconds of form 0 at speed 1: by these speeds, else as declared."""
        runs = self._runs.get((queue, name), ())
        if speeds is None or not self.corrects:
            return tuple(run.run_s for run in runs)
        return tuple(run.run_s * math.exp(run.corrected(speeds)) for run in runs)


def _run(job: Job, spec: JobSpec, run_s: float, form: int, model: str) -> _Run:
    """What is kept of it: an error and a model only of what ran in one piece."""
    once, estimate_s = job.epoch <= 1, spec.estimate_s
    told = once and estimate_s is not None and min(run_s, estimate_s) >= SHORTEST_S
    return _Run(
        run_s,
        math.log(run_s / estimate_s) if told and estimate_s else None,
        model if once and not job.saved_s else "",
        spec.speed.get(model, 1.0),
        tuple(sorted(spec.speed.items())),
        form,
    )

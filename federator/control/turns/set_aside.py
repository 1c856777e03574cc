"""Work that a turn cannot go on with, set aside so that the turn goes on with the rest.

A plan that cannot be written, or a job that planning itself fails on, would otherwise fail every turn after it in the same way, and nobody's work
would start any more. Such a job is left out of decisions, with the reason, for a pause that doubles; a change of its row ends the pause at once. It is
kept in memory: another leader finds out for itself, in one attempt.
"""

import logging
from typing import NamedTuple

import msgspec

from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.kernel.errors import FederatorError
from federator.kernel.quantities import format_duration
from federator.model.jobs import Job
from federator.model.snapshot import JobView, Problem
from federator.planning.checks import check_actions
from federator.planning.plans.greedy import plan_greedily
from federator.retry import Backoff
from federator.telemetry import METRICS

log = logging.getLogger(__name__)

BACKOFF = Backoff(60.0, 1800.0, spread=0.0)
KIND = "set-aside"
"""Of what is said of a waiting job, and of the event on its timeline."""


class Aside(NamedTuple):
    """A job that is left out of decisions while its row has this revision, and until then (clock)."""

    revision: int
    because: str
    until_at: float
    failures: int
    """So often in a row."""


class SetAside:
    """The jobs that are set aside now."""

    def __init__(self, records: Records, event_writer: EventWriter) -> None:
        self._records = records
        self._event_writer = event_writer
        self.jobs: dict[str, Aside] = {}
        """By id. One whose pause is over is still there, for the length of the next."""
        self._untold: list[str] = []
        self._news: set[str] = set()

    def add(self, job_id: str, error: Exception) -> None:
        """Leave the job out from now on, because of this error."""
        job = self._records.jobs.get(job_id)
        if job is None or job.terminal:
            return
        before, revision = self.jobs.get(job_id), self._records.revision_of(job)
        again = before is not None and before.revision == revision
        failures = before.failures + 1 if before and again else 1
        pause_s = BACKOFF.pause_s(failures)
        because = f"it is set aside: {_in_words(error)}; tried again every {format_duration(pause_s)}"
        until_at = self._event_writer.clock.now() + pause_s
        self.jobs[job_id] = Aside(revision, because, until_at, failures)
        self._records.index.limits.pass_over(job, until_at)
        self._news.add(job_id)
        log.error("%s %s", job_id, because, exc_info=None if isinstance(error, FederatorError) else error)
        if not again:
            self._untold.append(job_id)

    def of(self, job: Job) -> Aside | None:
        """Why the job is left out at this moment; None: it is not."""
        aside = self.jobs.get(job.id)
        if aside is None or aside.until_at <= self._event_writer.clock.now():
            return None
        return aside if aside.revision == self._records.revision_of(job) else None

    async def tell(self) -> None:
        """Write on the timelines what was set aside since; where even that fails, it is in the log."""
        untold, self._untold = self._untold, []
        known = [name for name in untold if name in self._records.jobs and name in self.jobs]
        await write_each(self._records, known, self._note)

    def _note(self, changes: Changes, job_id: str) -> None:
        changes.put(self._event_writer.event(self._records.jobs[job_id], KIND, self.jobs[job_id].because))

    def take_news(self) -> set[str]:
        """Jobs that were set aside, or whose pause was over, since this was last asked."""
        now, open_jobs = self._event_writer.clock.now(), self._records.open_jobs
        for name in [name for name in self.jobs if name not in open_jobs]:
            del self.jobs[name]
        over = {name for name, each in self.jobs.items() if each.until_at <= now}
        held = {job.id for job in map(open_jobs.get, self.jobs) if job is not None and self.of(job)}
        METRICS.set("federator_jobs_set_aside", len(held))
        news, self._news = self._news | over, set[str]()
        return news

    def next_at(self, now: float) -> float | None:
        """When the next pause is over; None: none lasts."""
        return min((each.until_at for each in self.jobs.values() if each.until_at > now), default=None)


def at_fault(problem: Problem) -> list[tuple[str, Exception]]:
    """The jobs for which greedy's plan, or its check, raises, each with the error. Found by halving: few fail among many."""
    found: list[tuple[str, Exception]] = []

    def look(jobs: tuple[JobView, ...]) -> None:
        part = msgspec.structs.replace(
            problem, snapshot=msgspec.structs.replace(problem.snapshot, jobs=jobs), leads=()
        )
        try:
            check_actions(part, plan_greedily(part))
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            if len(jobs) > 1:
                look(jobs[: len(jobs) // 2])
                look(jobs[len(jobs) // 2 :])
            elif jobs:
                found.append((jobs[0].id, error))

    look(problem.snapshot.jobs)
    return found


def _in_words(error: Exception) -> str:
    """What a person is told. Of an error that nobody foresaw only its name: anybody may read it, and it may quote the job."""
    if isinstance(error, FederatorError):
        return error.describe()
    return f"{type(error).__name__} while it was planned, see the dispatcher's log"

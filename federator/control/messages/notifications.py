"""What people asked to be told of their jobs (`notify`): gathered into few messages, and delivered beside everything else.

A message to somebody is sent at most every so often; what happens in between waits and comes together in the next one, so that ten thousand tasks cost a few
messages, and nothing is left out of their count. That a job's owner was told is noted with the job afterwards: after a crash he is told again rather than never.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from federator.control.administration.own_addresses import OwnAddresses
from federator.control.messages.alerts import MARK, alert_of
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.kernel.errors import FederatorError
from federator.model.events import Alert, AlertKind
from federator.model.identity import OwnAddress
from federator.model.jobs import Job, JobStatus, Notify
from federator.planning.wording.told import because_of
from federator.ports import Courier
from federator.settings import NotificationSettings
from federator.telemetry import METRICS

log = logging.getLogger(__name__)
Reach = Callable[[str, OwnAddress | None], Courier | None]
"""What takes messages to a person, who may have said where; None: nobody knows how."""
LINES = 20
"""What is told one by one in a message; of more it tells how many."""
AT_ONCE = 8
"""Messages that are under way at once."""
LONGEST_S = 300.0
"""Real seconds after which a message is given up, whoever still tries."""
ALERTS = {AlertKind.DEADLINE: Notify.AT_RISK, AlertKind.IDLE: Notify.IDLE}
MARKED = 100
"""Jobs of one transaction."""
REMEMBERED_S = 86400.0
"""What ended so long before a start of the dispatcher is not told any more."""


@dataclass
class _Digest:
    """What waits to be told to somebody."""

    due_s: float
    lines: list[str] = field(default_factory=list)
    more: int = 0
    told: list[tuple[str, Notify]] = field(default_factory=list)

    def text(self) -> str:
        """All of it."""
        count = len(self.lines) + self.more
        if count == 1:
            return self.lines[0]
        rest = [f"- and {self.more} more: federator list --mine"] if self.more else []
        return "\n".join([f"{count} things about your jobs:", *(f"- {line}" for line in self.lines), *rest])


class Notifications:
    """Hears of every change of a job, and tells its owner."""

    def __init__(
        self, records: Records, event_writer: EventWriter, settings: NotificationSettings, reach: Reach
    ) -> None:
        self._records = records
        self._clock = event_writer.clock
        self._settings = settings
        self._reach = reach
        self.addresses = OwnAddresses(records, event_writer, settings)
        """Where people have said to be told."""
        self._digests: dict[str, _Digest] = {}
        self._known: set[tuple[str, Notify]] = set()
        """What is on its way, or waits for it."""
        self._next_s: dict[str, float] = {}
        """When all that somebody was sent would have been, had it come evenly: so far ahead of now they are of their part."""
        self._burst = max(1, int(settings.per_hour / 3))
        """So many messages may come at once; the rest of an hour's come evenly after them."""
        evenly = settings.per_hour - self._burst if self._burst > 1 else settings.per_hour
        self._pause_s = 3600.0 / evenly
        self._under_way: set[asyncio.Task[None]] = set()
        self._stirred = asyncio.Event()

    def reachable(self, person: str) -> bool:
        """Whether anybody knows how to tell them anything."""
        return self._reach(person, self.addresses.of(person)) is not None

    def note(self, changes: Changes) -> None:
        """Rows have changed."""
        for row in changes.rows.values():
            if isinstance(row, Job) and row.notify and not changes.quiet:
                self._note(row)

    def note_alert(self, alert: Alert) -> None:
        """An alert that may be of what a job's owner asked to be told."""
        job, event = self._records.open_jobs.get(alert.job), ALERTS.get(alert.kind)
        if job is not None and event is not None and event in job.notify:
            self._add(job, event, alert.text)

    def _note(self, job: Job) -> None:
        event = _due(job)
        if event is not None:
            now = self._clock.now()
            word = f"is {job.status}" if job.terminal else "has started"
            self._add(job, event, f"{job.label} ({job.id}) {word}: {because_of(job, now)}")

    def _add(self, job: Job, event: Notify, line: str) -> None:
        if event in job.notified or (job.id, event) in self._known:
            return
        self._known.add((job.id, event))
        digest = self._digests.get(job.owner)
        if digest is None:
            now_s = asyncio.get_running_loop().time()
            may_s = self._next_s.get(job.owner, 0.0) - (self._burst - 1) * self._pause_s
            due_s = max(now_s + self._settings.gather_s, may_s)
            digest = self._digests[job.owner] = _Digest(due_s)
        digest.told.append((job.id, event))
        if len(digest.lines) < LINES:
            digest.lines.append(line)
        else:
            digest.more += 1
        self._stirred.set()

    async def run(self) -> None:
        """Send what is due, for ever."""
        since = self._clock.now() - REMEMBERED_S
        for job in list(self._records.jobs.values()):
            if job.notify and (job.finished_at is None or job.finished_at >= since):
                self._note(job)
        marks = tuple(f"{MARK}{kind}/" for kind in ALERTS)
        for name, flag in list(self._records.flags.items()):
            if name.startswith(marks) and flag.at >= since:
                self.note_alert(alert_of(flag))
        try:
            while True:
                self._stirred.clear()
                self._send_due()
                with_room = len(self._under_way) < AT_ONCE
                due_s = (
                    min((each.due_s for each in self._digests.values()), default=None) if with_room else None
                )
                wait_s = None if due_s is None else max(0.0, due_s - asyncio.get_running_loop().time())
                try:
                    async with asyncio.timeout(wait_s):
                        await self._stirred.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._under_way:
                task.cancel()

    def _send_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._next_s = {person: at_s for person, at_s in self._next_s.items() if at_s > now_s}
        for person, digest in list(self._digests.items()):
            if digest.due_s <= now_s and len(self._under_way) < AT_ONCE:
                del self._digests[person]
                self._next_s[person] = max(now_s, self._next_s.get(person, 0.0)) + self._pause_s
                task = asyncio.create_task(self._send(person, digest), name=f"notification of {person}")
                self._under_way.add(task)
                task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a notification ended in an error", exc_info=error)
        self._stirred.set()

    async def _send(self, person: str, digest: _Digest) -> None:
        courier = self._reach(person, self.addresses.of(person))
        job = digest.told[0][0] if len(digest.told) == 1 else ""
        alert = Alert(kind=AlertKind.JOB, text=digest.text(), at=self._clock.now(), owner=person, job=job)
        try:
            if courier is not None:
                async with asyncio.timeout(LONGEST_S):
                    await courier.deliver(alert)
                METRICS.count("federator_notifications_total")
        except (FederatorError, TimeoutError) as error:
            METRICS.count("federator_notifications_undelivered_total")
            said = str(error) or "it took too long"
            log.warning("a notification of %s was not delivered: %s", person, said)
        for part in _parts(digest.told):
            await self._records.transact(lambda part=part: self._marked(part))  # type: ignore[misc]
        self._known.difference_update(digest.told)

    def _marked(self, told: list[tuple[str, Notify]]) -> Changes:
        changes = Changes(quiet=True)
        for name, event in told:
            job = self._records.jobs.get(name)
            if job is not None and event not in job.notified:
                changes.put(replace(job, notified=(*job.notified, event)))
        return changes


def _due(job: Job) -> Notify | None:
    """Of what its owner is to be told now, if of anything; an end is told once, also where it is a failure."""
    if job.terminal:
        ends = (Notify.END, Notify.FAIL) if job.status is JobStatus.FAILED else (Notify.END,)
        return (
            None
            if set(ends) & set(job.notified)
            else next((each for each in ends if each in job.notify), None)
        )
    if job.status is JobStatus.RUNNING and Notify.START in job.notify:
        return Notify.START
    return None


def _parts(told: list[tuple[str, Notify]]) -> Iterator[list[tuple[str, Notify]]]:
    """So many at a time; each job once in a part, or its second mark would undo the first."""
    by_event: dict[Notify, list[tuple[str, Notify]]] = {}
    for each in told:
        by_event.setdefault(each[1], []).append(each)
    for same in by_event.values():
        yield from (same[begin : begin + MARKED] for begin in range(0, len(same), MARKED))

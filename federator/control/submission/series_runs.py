"""The runs of series, submitted when they are due.

A run's job and its series' row are one transaction: whoever leads writes the run with the number that follows, or nothing. So no run comes
twice, and what was due while nobody led is seen at the next look.
"""

import asyncio
import contextlib
import logging
from functools import partial

import msgspec
from msgspec.structs import replace

from federator.control.record.blob_owners import folder_of
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.submission.acceptance import Acceptance, Submission
from federator.control.submission.intake import Intake
from federator.control.submission.series import newest_run, running
from federator.control.submission.series_owners import series_owners
from federator.kernel.errors import FederatorError, Forbidden, Transient, Unavailable
from federator.kernel.ids import content_hash
from federator.kernel.quantities import format_instant
from federator.model.arrays import EVERYWHERE
from federator.model.events import Event
from federator.model.identity import Token
from federator.model.jobs import Job, JobSpec
from federator.model.rules import PolicySet
from federator.model.series import Overlap, Series, SeriesStatus, look, submitted
from federator.telemetry import METRICS
from federator.wire.http import JobAction
from federator.wire.jobfile import JobRequest, read_job

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
"""Clocks are put right: so often it is looked whether something is due."""
DISPATCHER = "dispatcher"
"""Who has paused a series that nobody has."""
AGAIN_S = 15.0
"""After so long a run is tried again that could not be taken for now."""


class SeriesRuns:
    """Submits what is due."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        acceptance: Acceptance,
        intake: Intake,
        absent_s: float | None = None,
    ) -> None:
        """`absent_s`: so long after its owner's last sign-in a series goes on; None: nobody signs in but with tokens."""
        self._records = records
        self.event_writer = event_writer
        self.acceptance = acceptance
        self._intake = intake
        self._news = asyncio.Event()
        self._absent_s = absent_s
        self._owners = series_owners(records, event_writer.clock.now(), absent_s)
        """As of the last look."""
        self._folder, self._folders = "", frozenset[str]()
        """The work directory of the series that is seen to, and whether it is here."""
        records.subscribe(self._hear)

    def _hear(self, changes: Changes) -> None:
        rows = changes.rows.values()
        if any(
            isinstance(row, Series | Token | PolicySet)
            or (isinstance(row, Job) and row.series and row.terminal)
            for row in rows
        ):
            self._news.set()

    async def run(self) -> None:
        """Look after look: when something is due, when a run is over, when a series has changed."""
        clock = self.event_writer.clock
        while True:
            self._news.clear()
            next_at = await self.look()
            wait_s = None if next_at is None else min(LONGEST_WAIT_S, max(0.0, next_at - clock.now()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s is None else max(0.01, clock.real_delay_s(wait_s))):
                    await self._news.wait()

    async def look(self) -> float | None:
        """Submit what is due; returns when to look again, if ever."""
        self._owners = series_owners(self._records, self.event_writer.clock.now(), self._absent_s)
        times = [await self._see_to(key) for key in tuple(self._records.series)]
        return min((at for at in times if at is not None), default=None)

    async def _see_to(self, key: str) -> float | None:
        """One series; when it wants to be looked at again. What is wrong with it holds up no other."""
        series = self._records.series.get(key)
        if series is None:
            return None
        try:
            return await self._tend(key, series)
        except Transient as error:
            log.warning("series %s: %s", key, error)
            return self.event_writer.clock.now() + AGAIN_S
        except Exception as error:
            log.exception("series %s: it is tried again", key)
            METRICS.count("federator_series_faults_total")
            # Anybody may read notes: not what the error says, which may quote the file.
            await self._tell(
                key,
                f"{type(error).__name__} while it was seen to, see the dispatcher's log; it is tried again",
            )
            return self.event_writer.clock.now() + LONGEST_WAIT_S

    async def _tell(self, key: str, text: str) -> None:
        """Among the series' notes, if they at least can be written."""

        def compute() -> Changes:
            changes, series = Changes(), self._records.series.get(key)
            if series is not None:
                noted = series.noted(self.event_writer.clock.now(), text)
                if noted is not series:
                    changes.put(noted)
            return changes

        try:
            await self._records.transact(compute)
        except Exception as error:  # noqa: BLE001 - the fault itself is logged already
            log.warning("series %s: nor could that be noted with it: %s", key, error)

    async def _tend(self, key: str, series: Series) -> float | None:
        """Submit what is due of it; when it wants to be looked at again."""
        self._folder = folder_of(series.file)
        self._folders = await self.acceptance.folders(self._folder)
        await self._records.transact(partial(self.step, key))
        series = self._records.series[key]
        if series.owed_at is not None and series.every.overlap is Overlap.REPLACE:
            await self._end_last(series)
        if series.status is not SeriesStatus.ACTIVE:
            return None
        again_at = None
        if series.owed_at is not None and not running(self._records, series):
            again_at = self.event_writer.clock.now() + AGAIN_S
        return min((at for at in (series.next_at, again_at) if at is not None), default=None)

    def step(self, key: str) -> Changes:
        """The series as it is now, with the run that it owes if that can start."""
        changes, now = Changes(), self.event_writer.clock.now()
        former = self._records.series[key]
        shut_out = self._owners.shut_out(former)
        if former.status is SeriesStatus.ACTIVE and shut_out and not former.vouched_by:
            return self._paused(former, shut_out)
        if former.status is SeriesStatus.PAUSED and former.paused_because and self._may_go_on(former):
            return self._let_go_on(former)
        series, submits = look(former, now, running(self._records, former))
        if series.vouched_by and not shut_out:
            series = replace(series, vouched_by="")
        if self._owners.unknown(series):
            series = replace(series, signed_in_at=now)
        if submits and series.owed_at is not None:
            run = series.run(series.runs + 1)
            try:
                series = self._submit(changes, series, series.owed_at)
            except Transient as error:
                series = series.noted(now, f"{run} is not taken yet: {error.message}")
            except Forbidden as error:
                return self._paused(former, error.describe())
            except FederatorError as error:
                series = replace(series.noted(now, f"{run} was refused: {error.describe()}"), owed_at=None)
        if series != former:
            changes.put(series)
        return changes

    def _may_go_on(self, series: Series) -> bool:
        """Whether what it was paused for is over: its owner is let in, and has the right to its queue again."""
        if self._owners.shut_out(series):
            return False
        try:
            self.acceptance.check_right(
                self._owners.caller(series),
                _request(series, self.event_writer.clock.now()),
            )
        except FederatorError:
            return False
        return True

    def _paused(self, series: Series, because: str) -> Changes:
        """Whom nobody lets in any more, or who may not use its queue any more, has nothing submitted either."""
        paused = replace(series, paused_by=DISPATCHER, paused_because=because, owed_at=None)
        return self._told(paused, f"series {series.name} is paused: {because}")

    def _let_go_on(self, series: Series) -> Changes:
        """What was paused for want of a token or of a right, and by nobody, goes on once there is one: somebody may have made it after the old one was revoked."""
        next_at = series.next(self.event_writer.clock.now())
        resumed = replace(series, paused_by="", paused_because="", next_at=next_at)
        return self._told(resumed, f"series {series.name} goes on: {series.owner} may submit it again")

    def _told(self, series: Series, told: str) -> Changes:
        """The series as it is from now on, in its timeline and in the ledger."""
        changes = Changes()
        changes.put(series)
        last = newest_run(self._records, series)
        if last:
            changes.put(self.event_writer.event(last[0], "series", told))
        else:
            ids, now = self.event_writer.ids, self.event_writer.clock.now()
            changes.put(Event(id=ids.new("ev"), job="", at=now, kind="series", status="", text=told))
        self.event_writer.act(changes, DISPATCHER, told, queue=series.queue, owner=series.owner)
        return changes

    def _submit(self, changes: Changes, series: Series, due_at: float) -> Series:
        """The run that is due, under an id that no other run has."""
        client_id = f"{series.id}:{series.runs + 1}"
        asked = Submission(_request(series, due_at), client_id, content_hash(series.file.encode()))
        if folder_of(series.file) != self._folder:
            raise Unavailable("its file has just been changed")
        entry = self.acceptance.entry(self._owners.caller(series), self._folders)
        accepted = self.acceptance.accept(changes, entry, asked).of_series(series.name, due_at)
        self.acceptance.write(changes, accepted)
        last = (accepted.answer.array,) if accepted.answer.array else accepted.answer.jobs
        return submitted(series, self.event_writer.clock.now(), last)

    async def _end_last(self, series: Series) -> None:
        """Cancel what is left of the newest run: another takes its place once it is gone."""
        caller, cancel = self._owners.caller(series), JobAction("cancel", series.last)
        for array in series.last:
            await self._intake.verbs.act_on_rest(caller, cancel, array, EVERYWHERE)
        jobs = [job.id for job in newest_run(self._records, series) if not job.terminal]
        await self._intake.verbs.act(caller, cancel, jobs)


def _request(series: Series, due_at: float) -> JobRequest:
    """What its next run asks for: the deadline counts from when it is due, and its environment says which run it is."""
    number = series.runs + 1
    request = read_job({**msgspec.json.decode(series.file), "name": series.run(number)}, now=due_at)
    told = {
        "FEDERATOR_SERIES": series.name,
        "FEDERATOR_RUN": str(number),
        "FEDERATOR_DUE": format_instant(due_at),
    }
    spec: JobSpec = replace(request.spec, env={**request.spec.env, **told})
    return replace(request, spec=spec)

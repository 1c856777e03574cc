"""Alerts: what a person should hear of without looking – a budget that fills, a deadline at risk, a machine that never joined, a rental that waits.

Each is told once. That it is to be told is written down together with its event and ledger line; that it was told, afterwards. So a crash in between, or
another leader, tells it again rather than never. Nothing here changes what is planned.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import nlargest
from itertools import islice

import msgspec

from federator.control.accounts.money import spend, spend_rows
from federator.control.administration.visibility import Sight
from federator.control.leases.executor import NEVER_JOINED
from federator.control.leases.proposals import proposed
from federator.control.maintenance.ledger_export import LedgerExport
from federator.control.messages.platform_alerts import PlatformAlerts
from federator.control.record.chain import Chain
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Flag, Records, row_key
from federator.control.reports.measurements import Measurements
from federator.control.turns.turn import Turn
from federator.kernel.errors import FederatorError
from federator.kernel.quantities import format_duration
from federator.model.events import Alert, AlertKind, Event
from federator.model.jobs import JobStatus
from federator.model.rules import Period
from federator.planning.rules.periods import period_start
from federator.planning.wording.told import because_of
from federator.ports import Courier
from federator.settings import AlertSettings
from federator.telemetry import METRICS
from federator.wire.waiting import AlertRow

log = logging.getLogger(__name__)

MARK = "alert/"
"""How the names of flags begin that say of an alert whether it still has to be told."""
KEPT_S = 62 * 86400.0
"""So long it is remembered that an alert was told: longer than any period of a budget."""
MOST = 30
"""Alerts of one look: a store takes some 128 operations at once, and nobody reads more."""
MOST_ROWS = 100
FOR_OVERSEERS = (AlertKind.IDENTITY, AlertKind.LEDGER)
ABOUT_JOBS = (AlertKind.DEADLINE, AlertKind.APPROVAL, AlertKind.SET_ASIDE, AlertKind.IDLE)
"""The names of their flags have the job's id after the kind."""
FAILED_IN_A_ROW = 3
TOLD_BY = "alerts"


class Alerts:
    """Looks every `look_s`, and tells what is new."""

    def __init__(  # noqa: PLR0913 - what it looks at, by name
        self,
        *,
        records: Records,
        event_writer: EventWriter,
        turn: Turn,
        settings: AlertSettings,
        chain: Chain,
        exports: Sequence[LedgerExport] = (),
        courier: Courier | None = None,
        measurements: Measurements,
        platform: PlatformAlerts,
    ) -> None:
        self._records = records
        self._event_writer = event_writer
        self._turn = turn
        self._settings = settings
        self._courier = courier
        self._measurements = measurements
        self._platform = platform
        self._listeners: list[Callable[[Alert], None]] = []
        self._chain, self._exports = chain, exports

    def subscribe(self, listener: Callable[[Alert], None]) -> None:
        """Tell it of each alert, once, when it is written down."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Look after look, until cancelled."""
        if self._settings.look_s <= 0:
            await asyncio.Event().wait()
        while True:
            await self.look()
            await asyncio.sleep(max(0.2, self._event_writer.clock.real_delay_s(self._settings.look_s)))

    async def look(self) -> list[Alert]:
        """Write down what is new, and tell it, with what an earlier look could not; returns what was written down."""
        known = self._records.flags
        found = ((name, alert) for name, alert in self.raised() if name not in known)
        fresh = dict(islice(found, MOST))
        owed = [name for name, flag in known.items() if name.startswith(MARK) and flag.on]
        if fresh:
            await self.write(fresh)
        for name in owed:
            await self._tell(name, alert_of(known[name]))
        for name, alert in fresh.items():
            for listener in self._listeners:
                listener(alert)
            await self._tell(name, alert)
        await self._forget()
        return list(fresh.values())

    def rows(self, sight: Sight, *, overseer: bool) -> list[AlertRow]:
        """What was raised and is remembered, newest first: at most `MOST_ROWS`. What may be a stolen key or a changed ledger is for an `overseer` alone."""
        found = [_row(flag) for name, flag in self._records.flags.items() if name.startswith(MARK)]
        shown = [
            row
            for row in found
            if (not row.job or sight.named(row.job)) and (overseer or row.kind not in FOR_OVERSEERS)
        ]
        return nlargest(MOST_ROWS, shown, key=lambda row: row.at)

    @property
    def mark(self) -> str:
        """Another text once an alert was raised or forgotten."""
        raised = [flag.at for name, flag in self._records.flags.items() if name.startswith(MARK)]
        return f"{len(raised)} {max(raised, default=0.0)}"

    async def write(self, fresh: dict[str, Alert]) -> None:
        """Record alerts by name, each once while it lasts."""

        def compute() -> Changes:
            changes = Changes()
            for name, alert in fresh.items():
                if name not in self._records.flags:
                    changes.put(Flag(name, True, alert.text, alert.at), self._event(alert))
                    about = {
                        "job": alert.job,
                        "queue": alert.queue,
                        "owner": alert.owner,
                        "lease": alert.lease,
                        "site": alert.site,
                    }
                    self._event_writer.act(changes, TOLD_BY, f"alert: {alert.text}", **about)
            return changes

        await self._records.transact(compute)
        for alert in fresh.values():
            METRICS.count("federator_alerts_total", kind=alert.kind)
            log.warning("alert: %s", alert.text)

    def _event(self, alert: Alert) -> Event:
        """On the job's timeline where there is one; else only in the feed of all events."""
        job = self._records.jobs.get(alert.job)
        if job is not None:
            return self._event_writer.event(job, alert.kind, alert.text)
        return Event(
            id=self._event_writer.ids.new("ev"),
            job="",
            at=alert.at,
            kind=alert.kind,
            status="",
            text=alert.text,
        )

    async def _tell(self, name: str, alert: Alert) -> None:
        """By webhook or mail, if there is any; what it does not take after its attempts is given up, and counted."""
        if self._courier is not None:
            try:
                await self._courier.deliver(alert)
            except FederatorError as error:
                METRICS.count("federator_alerts_undelivered_total")
                log.warning("an alert was not delivered: %s", error)

        def compute() -> Changes:
            changes = Changes()
            flag = self._records.flags.get(name)
            if flag is not None and flag.on:
                changes.put(msgspec.structs.replace(flag, on=False))
            return changes

        await self._records.transact(compute)

    async def _forget(self) -> None:
        """Marks of long ago, and of deadlines of jobs that are over."""
        old = self._event_writer.clock.now() - KEPT_S
        gone: list[Flag] = [
            flag
            for name, flag in self._records.flags.items()
            if name.startswith(MARK) and not flag.on and (flag.at < old or self._is_over(name))
        ]
        if gone:

            def compute() -> Changes:
                left = [row_key(flag) for flag in gone if flag.name in self._records.flags]
                return Changes(deletes=left[:MOST])

            await self._records.transact(compute)

    def _is_over(self, name: str) -> bool:
        _, kind, job_id = name.split("/", 2)
        return (
            kind in (AlertKind.DEADLINE, AlertKind.SET_ASIDE, AlertKind.IDLE)
            and job_id.split("/")[0] not in self._records.open_jobs
        )

    # -- what there is to tell ----------------------------------------------------------------------------------------

    def raised(self) -> Iterator[tuple[str, Alert]]:
        """All that holds now, told or not, each under a name of its own."""
        now = self._event_writer.clock.now()
        yield from self._budgets(now)
        yield from self._deadlines(now)
        yield from self._leases(now)
        yield from self._idle(now)
        yield from self._approvals(now)
        yield from self._identities(now)
        yield from self._set_aside(now)
        yield from self._failing(now)
        yield from self._ledger(now)
        yield from self._platform.raised(now)

    def _budgets(self, now: float) -> Iterator[tuple[str, Alert]]:
        rows = spend_rows(self._records)
        views = {(v.policy, v.period, v.share): v for v in spend(self._records, now, rows)}
        METRICS.forget("federator_budget_used_ratio")
        for row in rows:
            view = views[row.policy, row.period, row.share]
            used_usd = view.spent_usd + view.committed_usd
            share = used_usd / row.limit if row.limit else 1.0
            METRICS.set(
                "federator_budget_used_ratio", share, policy=row.policy, period=row.period, share=row.share
            )
            crossed = max((level for level in row.alerts if share >= level), default=None)
            if crossed is None:
                continue
            begun = datetime.fromtimestamp(period_start(row.period, now), UTC).date()
            period = "in all" if row.period is Period.TOTAL else f"of this {row.period}"
            whose = f" of {row.share}" if row.share else ""
            text = (
                f"{row.policy}{whose}: {share:.0%} of the {row.limit:.2f} USD {period} are used "
                f"({view.spent_usd:.2f} spent, {view.committed_usd:.2f} committed)"
            )
            name = f"{MARK}{AlertKind.BUDGET}/{row.policy}:{row.share}:{row.period}:{begun}:{row.limit:g}:{crossed:g}"
            yield name, Alert(kind=AlertKind.BUDGET, text=text, at=now, policy=row.policy, share=row.share)

    def _deadlines(self, now: float) -> Iterator[tuple[str, Alert]]:
        for job in self._records.open_jobs.values():
            if job.deadline_at is None:
                continue
            placement = self._records.placements.get(job.placement or "")
            waiting = self._turn.waiting.get(job.id) if job.status is JobStatus.PENDING else None
            if waiting is not None:
                finish_at = waiting.expected_finish_at
            elif placement is not None and not placement.ended:
                finish_at = max(now, placement.expected_end_at or now)
            else:
                continue
            if finish_at is not None and finish_at <= job.deadline_at:
                continue
            due, late = (
                _clock(job.deadline_at),
                "has no expected end"
                if finish_at is None
                else f"is expected to finish at {_clock(finish_at)}",
            )
            text = f"{job.label} ({job.id}) is due at {due} and {late}"
            name = f"{MARK}{AlertKind.DEADLINE}/{job.id}/{job.deadline_at:.0f}"
            about = {"job": job.id, "owner": job.owner, "queue": job.queue}
            yield name, Alert(kind=AlertKind.DEADLINE, text=text, at=now, **about)

    def _leases(self, now: float) -> Iterator[tuple[str, Alert]]:
        for lease in self._records.leases.values():
            if lease.failure == NEVER_JOINED:
                text = f"{lease.id} ({lease.offer.name}) was rented and never joined; it has cost {lease.billed_usd:.2f} USD"
                job = lease.evidence.job if lease.evidence else ""
                alert = Alert(
                    kind=AlertKind.LEASE, text=text, at=now, lease=lease.id, job=job, queue=lease.queue
                )
                if now - lease.requested_at < KEPT_S:
                    yield f"{MARK}{AlertKind.LEASE}/{lease.id}", alert

    def _idle(self, now: float) -> Iterator[tuple[str, Alert]]:
        """Jobs whose GPUs do nothing, each attempt once."""
        if self._settings.idle_gpus_s <= 0:
            return
        for placement, used in self._measurements.idle(self._settings.idle_gpus_s):
            job = self._records.open_jobs.get(placement.job)
            if job is not None:
                gpus = "its GPU does" if placement.gpus == 1 else f"its {placement.gpus:g} GPUs do"
                text = f"{job.label} ({job.id}) runs at {placement.site}, and {gpus} nothing for {format_duration(used.idle_s // 60 * 60)}"
                about = {"job": job.id, "owner": job.owner, "queue": job.queue, "site": placement.site}
                name = f"{MARK}{AlertKind.IDLE}/{job.id}/{placement.id}"
                yield name, Alert(kind=AlertKind.IDLE, text=text, at=now, **about)

    def _approvals(self, now: float) -> Iterator[tuple[str, Alert]]:
        for proposal, job in proposed(self._records, self._turn.plan):
            text = f"{job.label} ({job.id}): {because_of(proposal, now)}; federator burst approve {job.id}"
            name = f"{MARK}{AlertKind.APPROVAL}/{job.id}/{proposal.policy.replace('/', ':')}"
            about = {"job": job.id, "owner": job.owner, "queue": job.queue}
            yield name, Alert(kind=AlertKind.APPROVAL, text=text, at=now, policy=proposal.policy, **about)

    def _identities(self, now: float) -> Iterator[tuple[str, Alert]]:
        """For the site's admins: what may be a stolen key."""
        for member in self._records.members.values():
            found = [(member.contested_at, f"{member.contested}; nothing new starts there")]
            found = found if member.contested else []
            if member.key_changed_at is not None:
                found.append((member.key_changed_at, f"{member.id} of {member.site} has changed its key"))
            for at, text in found:
                if now - at < KEPT_S:
                    name = f"{MARK}{AlertKind.IDENTITY}/{member.id}/{at:.3f}"
                    yield name, Alert(kind=AlertKind.IDENTITY, text=text, at=now, site=member.site)

    def _set_aside(self, now: float) -> Iterator[tuple[str, Alert]]:
        for job in map(self._records.open_jobs.get, self._turn.aside.jobs):
            aside = self._turn.aside.of(job) if job is not None else None
            if job is not None and aside is not None:
                text = f"{job.label} ({job.id}) does not start: {aside.because}"
                about = {"job": job.id, "owner": job.owner, "queue": job.queue}
                name = f"{MARK}{AlertKind.SET_ASIDE}/{job.id}/{aside.revision}"
                yield name, Alert(kind=AlertKind.SET_ASIDE, text=text, at=now, **about)

    def _failing(self, now: float) -> Iterator[tuple[str, Alert]]:
        """One a day, while turn after turn fails."""
        if len(self._turn.failed) >= FAILED_IN_A_ROW:
            error = self._turn.failed[-1]
            said = error.describe() if isinstance(error, FederatorError) else type(error).__name__
            text = f"no turn succeeds, so nothing new starts: {said}; see the dispatcher's log"
            yield f"{MARK}{AlertKind.TURN}/{now // 86400:.0f}", Alert(kind=AlertKind.TURN, text=text, at=now)

    def _ledger(self, now: float) -> Iterator[tuple[str, Alert]]:
        """What was signed and is gone, each once; a place that falls behind, once a day."""
        for head in self._chain.missing:
            text = (
                f"seal {head.number} of the ledger was signed here and is not in the store: it was rolled back, or its end was removed; "
                f"compare with an export, then remove ledger.head.{head.number} from the state folder"
            )
            yield (
                f"{MARK}{AlertKind.LEDGER}/{head.number}:{head.head}",
                Alert(kind=AlertKind.LEDGER, text=text, at=now),
            )
        for export in self._exports:
            if export.is_late():
                since = _clock(export.behind_since or now)
                text = f"the ledger is not exported since {since}: {export.fault}"
                name = f"{MARK}{AlertKind.LEDGER}/{export.name}:{now // 86400:.0f}"
                yield name, Alert(kind=AlertKind.LEDGER, text=text, at=now)


def alert_of(flag: Flag) -> Alert:
    """What was written down, to be told again."""
    _, kind, about, *_ = flag.name.split("/")
    job = about if kind in ABOUT_JOBS else ""
    return Alert(kind=AlertKind(kind), text=flag.who, at=flag.at, job=job)


def _row(flag: Flag) -> AlertRow:
    alert = alert_of(flag)
    return AlertRow(kind=alert.kind, text=alert.text, at=alert.at, job=alert.job, told=not flag.on)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")

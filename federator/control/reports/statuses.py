"""Progress: what sites say of placements becomes the jobs' story.

An agent repeats every status until it is acknowledged, so everything here is idempotent: a report that says nothing new changes
nothing. What an agent says of a placement is believed; what it means for the job is in `stories`, and what a gang's members say
becomes one story in `gangs`. A pair that the lifecycle tables do not list is an anomaly from outside: it is counted and logged, and nothing changes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from federator.control.accounts.billing import book_moves, book_use, has_moved
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.reports import gangs
from federator.control.reports.history import History
from federator.control.reports.measurements import Measurements
from federator.control.reports.outcomes import OutcomeHandler, StatusReport
from federator.model.events import Event
from federator.model.jobs import Job
from federator.model.lifecycle import TOLD, allows
from federator.model.placements import (
    PLACEMENT_ENDED,
    Cause,
    Order,
    Part,
    Placement,
    PlacementReport,
    PlacementStatus,
)
from federator.ports import Blobs

log = logging.getLogger(__name__)

TOGETHER = 15
"""Statuses per transaction, mostly of four rows each."""
MAX_DETAIL = 1000
"""Characters that are kept of what an agent says of a placement."""


class StatusHandler:
    """Applies agents' statuses to records."""

    def __init__(
        self,
        records: Records,
        blobs: Blobs,
        event_writer: EventWriter,
        history: History,
        measurements: Measurements,
    ) -> None:
        self._records = records
        self._blobs = blobs
        self._measurements = measurements
        self._event_writer = event_writer
        self._history = history
        self.anomalies = 0
        self._handlers = OutcomeHandler(records, event_writer)

    async def absorb(self, member: str, reports: tuple[PlacementReport, ...]) -> int:
        """Make these statuses durable; returns the highest number that may be acknowledged. Of what is over its agent then forgets the logs."""
        if self._blobs.GATHERS_LOGS:
            known = self._records.placements
            over = {each.placement for each in reports if each.status in PLACEMENT_ENDED} & known.keys()
            await asyncio.to_thread(self._blobs.keep_logs, over)
        for turn in _one_of_each_job(reports, self._records.placements):
            parts = [turn[at : at + TOGETHER] for at in range(0, len(turn), TOGETHER)]
            if len(parts) == 1:
                await self._absorb(member, turn)
            else:
                await asyncio.gather(*(self._absorb(member, part) for part in parts))
        return max((report.seq for report in reports), default=0)

    async def _absorb(self, member: str, reports: Sequence[PlacementReport]) -> None:
        """Statuses of different jobs, which have no row in common. One that cannot be written is an anomaly: told again it would be one again."""
        jobs: dict[str, Job] = {}

        def write(changes: Changes, report: PlacementReport) -> None:
            rows = self.changes_of(member, report).rows.values()
            changes.put(*rows)
            jobs.update({row.id: row for row in rows if isinstance(row, Job)})

        for refused in await write_each(self._records, reports, write, together=TOGETHER):
            name = refused.piece.placement
            self._anomaly(f"what {member} reports of {name} cannot be written: {refused.error}")
            placement = self._records.placements.get(name)
            jobs.pop(placement.job if placement else "", None)
        for job in jobs.values():
            self._history.learn(job, self._records)

    async def rebooted(self, member: str, known: Collection[str]) -> None:
        """The member's host has booted anew, and all its work was processes of that host: none of them outlives its boot.

        Its agent tells the end of what it remembers (`known`) itself, and knows it better. What it was seen to have and does not
        remember, its disk having gone too, is given up here, before its desired set would let it begin that anew.
        """
        for placement in tuple(self._records.open_placements.values()):
            if member not in placement.members or placement.id in known:
                continue
            status = (placement.part(member) or placement).status
            if status in (PlacementStatus.ACCEPTED, PlacementStatus.STARTING, PlacementStatus.RUNNING):
                proof = f"the host of {member} was restarted, and its agent remembers nothing of it"
                alone = bool(placement.parts) or set(placement.members) == {member}
                await self.lose(placement.id, proof, acknowledged=alone, member=member)

    async def lose(
        self,
        placement_id: str,
        proof: str,
        *,
        acknowledged: bool,
        cause: Cause = Cause.NODE_LOST,
        member: str | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """A placement is proven over without a result, at `member` or everywhere. `acknowledged`: it can never come back.

        `check` raises what speaks against it at the moment of the change.
        """

        def compute() -> Changes:
            changes = Changes()
            if check is not None:
                check()
            placement = self._records.placements.get(placement_id)
            if placement is None or not allows(placement.status, "lose"):
                return changes
            job = self._records.jobs[placement.job]
            report = PlacementReport(
                placement=placement_id,
                epoch=placement.epoch,
                seq=0,
                status=PlacementStatus.LOST,
                at=self._event_writer.clock.now(),
                cause=cause,
                detail=proof,
            )
            if placement.parts:
                members = placement.members if member is None else (member,)
                self._part_company(
                    changes, StatusReport(report, placement, job), members, acknowledged=acknowledged
                )
            else:
                self._apply(
                    changes,
                    StatusReport(report, placement, job),
                    order=Order.STOP,
                    stop_acknowledged=acknowledged,
                )
            return changes

        await self._records.transact(compute)

    async def give_up(self, placement_id: str, why: str) -> None:
        """End a gang that has not been told to run: its members are told to stop, and its job waits for another place."""

        def compute() -> Changes:
            changes = Changes()
            placement = self._records.placements.get(placement_id)
            if placement is not None and not placement.ended and placement.order is Order.RESERVE:
                heard = gangs.give_up(placement, why, self._event_writer.clock.now())
                self._heard(changes, placement, heard)
            return changes

        await self._records.transact(compute)

    def changes_of(self, member: str, report: PlacementReport) -> Changes:
        """The rows that a report of the member changes."""
        changes = Changes()
        placement = self._records.placements.get(report.placement)
        if placement is None or member not in placement.members:
            self._anomaly(f"{member} reports {report.status} of {report.placement}, which it does not have")
            return changes
        if report.epoch != placement.epoch:
            self._anomaly(
                f"{member} reports epoch {report.epoch} of {placement.id}, which has {placement.epoch}"
            )
            return changes
        report = _credible(report, placement, self._event_writer.clock.now())
        part = placement.part(member)
        known: Placement | Part = part or placement
        allowed = allows(known.status, TOLD.get(report.status, ""))
        over = known.ended and (known.status is not PlacementStatus.LOST or report.status in _ENDINGS)
        if report.status is known.status or (over and not allowed):
            return self._acknowledge_stop(changes, placement, part, report)
        if not allowed:
            if report.status not in (PlacementStatus.ACCEPTED, PlacementStatus.STARTING):
                self._anomaly(f"{report.placement} is {known.status} and is reported {report.status}")
        elif part is not None:
            self._heard(changes, placement, gangs.hear(placement, member, report, acknowledged=True))
        else:
            self._apply(changes, StatusReport(report, placement, self._records.jobs[placement.job]))
        return changes

    def _acknowledge_stop(
        self, changes: Changes, placement: Placement, part: Part | None, report: PlacementReport
    ) -> Changes:
        """What we had given up speaks: now its stop needs no repeating."""
        known: Placement | Part = part or placement
        if not known.ended or known.stop_acknowledged or report.status not in _ENDINGS:
            return changes
        if part is not None:
            changes.put(gangs.acknowledge(placement, part.member).placement)
        elif placement.order is Order.STOP:
            changes.put(_without_moves(msgspec.structs.replace(placement, stop_acknowledged=True)))
        return changes

    def _part_company(
        self, changes: Changes, told: StatusReport, members: Sequence[str], *, acknowledged: bool
    ) -> None:
        """These members' parts of a gang are lost, as the report says. Once that decides how all of it ended, the rest is telling."""
        heard = gangs.GangStatus(told.placement)
        for member in dict.fromkeys(members):
            part = heard.placement.part(member)
            if heard.report is None and part is not None and allows(part.status, "lose"):
                heard = gangs.hear(heard.placement, member, told.report, acknowledged=acknowledged)
        if heard.placement != told.placement:
            self._heard(changes, told.placement, heard)

    def _heard(self, changes: Changes, before: Placement, heard: gangs.GangStatus) -> None:
        """Write down what is known of a gang's parts now, and what follows for the whole."""
        placement, job = heard.placement, self._records.jobs[before.job]
        if heard.report is not None:
            self._apply(
                changes,
                StatusReport(heard.report, placement, job),
                stop_acknowledged=placement.stop_acknowledged,
            )
            return
        changes.put(placement)
        first = placement.part(placement.ended_first)
        if first is None or before.ended_first or job.placement != placement.id:
            return
        if first.status is PlacementStatus.LOST and allows(job.status, "lose"):
            self._event_writer.job(changes, job, "lose", placement.order_reason or placement.order_why or "")
        else:
            changes.put(
                self._event_writer.event(job, "stopping", placement.order_reason or placement.order_why or "")
            )
        _locate(changes, placement)

    def _apply(self, changes: Changes, told: StatusReport, **fields: object) -> None:
        report, placement, job = told
        started_at = report.started_at if report.started_at is not None else placement.started_at
        ended = report.status in _ENDINGS
        moved = self._event_writer.placement(
            changes,
            placement,
            TOLD[report.status],
            cause=report.cause,
            detail=report.detail,
            exit_code=report.exit_code,
            started_at=started_at,
            ended_at=(report.ended_at or report.at) if ended else None,
            expected_end_at=_expected_end(placement, started_at),
            used=self._measurements.of(placement) if ended else None,
            **{"stop_acknowledged": ended, **fields},
        )
        moved = _without_moves(moved)
        changes.put(moved)
        known, job = job, book_moves(changes, self._event_writer, placement, moved, job)
        # Of one that was given up before it was known to run, the use is only known now.
        if ended and not (placement.ended and placement.started_at is not None):
            job = book_use(changes, self._event_writer, moved, job)
        if job is not known:
            changes.put(job)
        self._handlers.tell(changes, StatusReport(report, moved, job))
        _locate(changes, moved)

    def _anomaly(self, text: str) -> None:
        self.anomalies += 1
        log.warning("anomaly: %s", text)


_ENDINGS = frozenset(
    {
        PlacementStatus.SUCCEEDED,
        PlacementStatus.FAILED,
        PlacementStatus.STOPPED,
        PlacementStatus.LOST,
        PlacementStatus.REFUSED,
    }
)


def _one_of_each_job(
    reports: Sequence[PlacementReport], placements: Mapping[str, Placement]
) -> Iterator[list[PlacementReport]]:
    """The first status of each job, then the second of each that has one, and so on."""
    turns: list[list[PlacementReport]] = []
    seen: Counter[str] = Counter()
    for report in reports:
        placement = placements.get(report.placement)
        job = placement.job if placement else report.placement
        if seen[job] == len(turns):
            turns.append([])
        turns[seen[job]].append(report)
        seen[job] += 1
    yield from turns


def _credible(report: PlacementReport, placement: Placement, now: float) -> PlacementReport:
    """The report with its times between assignment and now, whatever the agent's clock says, and its text cut to a length for people.

    A job that "ended" in 1970 would at once be older than its promise, and one that ends in a thousand years never.
    """

    def within(at: float) -> float:
        return min(max(at, placement.assigned_at), now)

    return msgspec.structs.replace(
        report,
        at=within(report.at),
        started_at=None if report.started_at is None else within(report.started_at),
        ended_at=None if report.ended_at is None else within(report.ended_at),
        detail=report.detail[:MAX_DETAIL],
    )


def _locate(changes: Changes, placement: Placement) -> None:
    """Whatever this change tells of happened to this placement, at its site."""
    for event in [row for row in changes.rows.values() if isinstance(row, Event)]:
        changes.put(msgspec.structs.replace(event, site=placement.site, placement=placement.id))


def _expected_end(placement: Placement, started_at: float | None) -> float | None:
    """The forecast end moves with the real start."""
    if placement.expected_end_at is None or started_at is None or placement.started_at is not None:
        return placement.expected_end_at
    moves_s = placement.moves.seconds if placement.moves else 0.0
    return placement.expected_end_at + max(0.0, started_at - placement.assigned_at) - moves_s


def _without_moves(placement: Placement) -> Placement:
    """Of one that never ran, no data is counted once that is certain: what is only given up may still be found to have run."""
    certain = placement.ended and placement.stop_acknowledged and not has_moved(placement)
    return msgspec.structs.replace(placement, moves=None) if certain else placement

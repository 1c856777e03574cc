"""The next state while it is being made: one event's changes, what must be durable, and what is to be done after.

A draft keeps the order that exactly-once rests on: everything durable is in one `Persist`, and that comes first.
"""

from typing import Any

from msgspec.structs import replace

from federator.model.allotments import Allotment
from federator.model.placements import DesiredEntry, PlacementReport, PlacementStatus, RankStatus
from federator.wire.link import MAX_STATUSES, desired_digest
from federator_agent.core.capacity_report import HOLDING, site_report, unchanged
from federator_agent.core.events import Now
from federator_agent.core.instructions import (
    Discard,
    Instruction,
    Persist,
    SendDesiredAck,
    SendReport,
    SendStatuses,
)
from federator_agent.core.state import (
    AdmittedJob,
    AllotmentsChange,
    Change,
    DesiredChange,
    FactsChange,
    LocalChange,
    LocalGone,
    Phase,
    PlacementRecord,
    RankState,
    RecordChange,
    RecordGone,
    State,
    Verdict,
    apply_desired,
    remembered,
)

SEQ_BLOCK = 1000
"""Numbers of statuses are reserved on disk in blocks, so that giving one costs no write. Gaps are harmless."""
DERIVED = frozenset({Phase.FETCHING, Phase.COLLECTING})
"""Phases that a restart derives again, from the desired set and from what the runtime finds; they are not written."""
UNREPORTED = frozenset(
    {
        "specs",
        "desired",
        "generation",
        "seq",
        "seq_ceiling",
        "renewed_boot_s",
        "incarnation",
        "left",
        "term",
        "over",
        "local",
        "allotments",
        "heard_at",
        "down_boot_s",
        "offered_boot_s",
    }
)
"""Parts of the state that no report depends on."""


class Transition:
    """A state in the making. Handlers change it through these methods only."""

    def __init__(self, state: State, now: Now) -> None:
        self.state = state
        self.now = now
        self.records = dict(state.records)
        self._changes: list[Change] = []
        self._instructions: list[Instruction] = []
        self._statuses: list[PlacementReport] = []
        self._report = False
        self._moved = bool(state.site.lend.hours)
        """Whether a report may say something else than the last one: to find that out costs a look at every host."""

    def set(self, **fields: Any) -> None:
        """Change other parts of the state than its records."""
        self.state = replace(self.state, **fields)
        self._moved = self._moved or not fields.keys() <= UNREPORTED

    def do(self, instruction: Instruction) -> None:
        """Have something done, once what is durable is on disk."""
        self._instructions.append(instruction)

    def put(self, record: PlacementRecord) -> PlacementRecord:
        """Replace a record; durable where its phase cannot be derived again."""
        before = self.records.get(record.entry.placement)
        self._moved = self._moved or _reported(before) != _reported(record)
        self.records[record.entry.placement] = record
        if record.phase not in DERIVED:
            self._changes.append(RecordChange(record))
        return record

    def forget(self, placement: str) -> None:
        """Drop the record of a placement that is over, acknowledged and no longer desired. It held nothing: the next report leaves it out in passing."""
        record = self.records.pop(placement, None)
        if record is not None and record.phase is not Phase.ENDED:
            self._moved = self._moved or _reported(record) != _reported(None)
        self._changes.append(RecordGone(placement))
        self.set(over=remembered(self.state.over, record))

    def put_local(self, work: AdmittedJob) -> None:
        """Note a job of the agent's own, durably."""
        self._changes.append(LocalChange(work))
        self.set(local={**self.state.local, work.job.placement: work})

    def drop_local(self, placement: str) -> None:
        """Forget one, durably."""
        self._changes.append(LocalGone(placement))
        self.set(local={name: work for name, work in self.state.local.items() if name != placement})

    def put_allotments(self, allotments: tuple[Allotment, ...]) -> None:
        """Note, durably, what may be admitted here, and that the dispatcher is there or was until now."""
        if allotments or self.state.allotments:
            self._changes.append(AllotmentsChange(allotments, self.now.at))
            self.set(allotments=allotments, heard_at=self.now.at)

    def told_apart(self, placement: str) -> bool:
        """Whether the dispatcher does not know this placement yet, because the agent has admitted it by itself."""
        work = self.state.local.get(placement)
        return work is not None and not work.adopted

    def change_desired(self, change: DesiredChange) -> None:
        """Change the desired set, durably, and say so."""
        self._changes.append(change)
        self.set(desired=apply_desired(self.state.desired, change), generation=change.generation)

    def acknowledge_desired(self) -> None:
        """Tell what set is on disk."""
        digest = desired_digest(self.state.desired.values())
        self.do(SendDesiredAck(self.state.generation, digest))

    def remember_facts(self, **facts: Any) -> None:
        """Change incarnation, term or the ceiling of numbers, durably."""
        self.set(**facts)
        state = self.state
        self._changes.append(FactsChange(state.incarnation, state.left, state.term, state.seq_ceiling))

    def report_anyway(self) -> None:
        """Send a report although nothing may have changed."""
        self._report = True

    def tell(
        self,
        record: PlacementRecord,
        status: PlacementStatus,
        verdict: Verdict | None = None,
        *,
        rendezvous: str = "",
    ) -> PlacementRecord:
        """Give a record a new status, numbered and repeated until acknowledged."""
        seq = self.state.seq + 1
        self.set(seq=seq)
        if seq > self.state.seq_ceiling:
            self.remember_facts(seq_ceiling=seq + SEQ_BLOCK)
        report = PlacementReport(
            placement=record.entry.placement,
            epoch=record.entry.epoch,
            seq=seq,
            status=status,
            at=self.now.at,
            cause=verdict.cause if verdict else None,
            detail=verdict.detail if verdict else "",
            exit_code=verdict.exit_code if verdict else None,
            started_at=record.started_at,
            ended_at=verdict.ended_at if verdict else None,
            ranks=rank_statuses(record),
            checkpointed=bool(verdict and verdict.checkpointed),
            unkept=bool(verdict and verdict.unkept),
            rendezvous=rendezvous,
            job=record.entry.job,
            pool=record.entry.pool,
            form=record.entry.form,
        )
        self._statuses.append(report)
        return self.put(replace(record, report=report, acknowledged=False))

    def end(self, record: PlacementRecord, verdict: Verdict) -> PlacementRecord:
        """Make a placement's end durable and tell it."""
        ended = replace(record, phase=Phase.ENDED, verdict=verdict)
        work = self.state.local.get(record.entry.placement)
        if work is not None:
            self.put_local(replace(work, lasted_s=work.held_s(verdict.ended_at)))
        return self.tell(ended, verdict.status, verdict)

    def drop_if_done(self, record: PlacementRecord) -> None:
        """Free what an ended and acknowledged placement still has on disk; drop it whole when it is forgotten."""
        if record.phase is not Phase.ENDED or not record.acknowledged:
            return
        succeeded = record.report is not None and record.report.status is PlacementStatus.SUCCEEDED
        # Of a gang over several members this is one part: the job may have to go on from here, if another has failed.
        done = succeeded and not record.entry.rendezvous
        self.do(Discard(record.entry.placement, record.entry.job if done else None))
        if record.entry.placement not in self.state.desired:
            self.forget(record.entry.placement)

    def repeat_statuses(self) -> None:
        """Send all that is not acknowledged, oldest first."""
        self._statuses = [
            record.report for record in self.records.values() if record.report and not record.acknowledged
        ]

    def entry_changed(self, record: PlacementRecord, entry: DesiredEntry) -> PlacementRecord:
        """Take over a newer entry of a placement."""
        return record if record.entry == entry else self.put(replace(record, entry=entry))

    def finish(self) -> tuple[State, list[Instruction]]:
        """The state and the instructions, `Persist` first."""
        state = replace(self.state, records=self.records)
        instructions = [*self._instructions]
        if self._changes:
            instructions.insert(0, Persist(tuple(self._changes)))
        if not state.linked:
            return state, instructions
        newest = {
            report.placement: report for report in self._statuses if not self.told_apart(report.placement)
        }
        reports = tuple(sorted(newest.values(), key=lambda report: report.seq))
        pages = range(0, len(reports), MAX_STATUSES)
        instructions.extend(SendStatuses(reports[first : first + MAX_STATUSES]) for first in pages)
        if not (self._moved or self._report):
            return state, instructions
        report = site_report(state, self.now)
        if self._report or not unchanged(state.reported, report):
            state = replace(state, reported=report)
            instructions.append(SendReport(report))
        return state, instructions


def _reported(record: PlacementRecord | None) -> tuple[object, ...]:
    """What a report shows of a record; of one that is only being fetched, as of none, nothing."""
    if record is None or record.phase is Phase.FETCHING:
        return ()
    return (record.slots if record.phase in HOLDING else (),)


def rank_statuses(record: PlacementRecord) -> tuple[RankStatus, ...]:
    """The ranks as a person is shown them."""
    known: dict[int, RankState] = {rank.rank: rank for rank in record.ranks}
    return tuple(
        RankStatus(
            slot.rank, slot.host, _rank_phase(record, known.get(slot.rank)), _exit_code(known.get(slot.rank))
        )
        for slot in record.slots
    )


def _rank_phase(record: PlacementRecord, rank: RankState | None) -> str:
    if rank is not None and rank.ended:
        return "ended"
    if rank is None or not rank.started:
        return "setup" if record.setting_up else "staging"
    return "stopping" if record.phase is Phase.STOPPING else "running"


def _exit_code(rank: RankState | None) -> int | None:
    return rank.exit_code if rank else None

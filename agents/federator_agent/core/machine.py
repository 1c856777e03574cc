"""The agent's machine: `(state, events, now) → (state, instructions)`.

Ideal: what the desired set says runs, once, on slots that hold it; what it says to stop, stops; everything else goes on; and
the dispatcher learns each end exactly as it was. Departures: a placement that the site cannot hold is refused; a rank that
vanished without an exit code is reported lost; a reservation ends after `admission.RESERVE_FOR_S`.

Rules that hold in every step: intent is durable before ranks are started; a placement stops only on a `stop` entry, its time
limit, the failure of one of its own ranks, or being cut off for longer than its `stop_within`; absence from the desired set changes nothing that runs; a status is dropped only
when the dispatcher has it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from federator.model.placements import Cause, DesiredEntry, Order, PlacementStatus
from federator_agent.core import admission, endings, fencing, local_jobs
from federator_agent.core.events import (
    Acknowledged,
    Adopted,
    Allotted,
    Awake,
    CapacitySeen,
    Collected,
    DesiredChanged,
    DevicesSeen,
    Event,
    LinkDown,
    LinkUp,
    LocalCancelled,
    LocalSubmitted,
    Noticed,
    Now,
    Paused,
    PortFound,
    RankAbsent,
    RankEnded,
    RankStarted,
    Renewed,
    ReportDue,
    SettingUp,
    SpecArrived,
    SpecUnknown,
    Staged,
    StagingFailed,
    StagingStopped,
    Tick,
)
from federator_agent.core.instructions import (
    Collect,
    FetchSpec,
    FindPort,
    FindRanks,
    Instruction,
    KeepRenewal,
    Stage,
    StartRanks,
    StopStaging,
)
from federator_agent.core.state import DesiredChange, Phase, PlacementRecord, RankState, State
from federator_agent.core.transition import Transition


def step(state: State, events: Sequence[Event], now: Now) -> tuple[State, list[Instruction]]:
    """What follows from events that have come by now, in their order. Pure: the same state, events and time give the same answer.

    Together they have one `Persist`, one report, and of each placement the newest status.
    """
    draft = Transition(state, now)
    for event in events:
        if not isinstance(event, Awake):
            fencing.stop_all_due(draft)
        _HANDLERS[type(event)](draft, event)
    return draft.finish()


def next_wake_boot_s(state: State) -> float | None:
    """When the machine wants its next `Tick`, by the boot clock; None: not before something happens."""
    due = []
    fenced = fencing.any_fenced(state)
    for record in state.records.values():
        phase = record.phase
        if phase is Phase.STAGING or phase is Phase.RUNNING:
            limit = endings.limit_boot_s(record)
            due += [limit] if limit is not None else []
        elif phase is Phase.RESERVED and record.reserved_until_boot_s is not None:
            due.append(record.reserved_until_boot_s)
        elif phase is Phase.STOPPING and record.stop is not None:
            due.append(record.stop.kill_boot_s)
        fence = fencing.due_boot_s(state, record) if fenced else None
        due += [fence] if fence is not None else []
    return min(due, default=None)


def _awake(draft: Transition, event: Awake) -> None:
    """Look for the work of the life before, then take up what is desired and not yet begun."""
    draft.set(boot_id=event.boot_id, renewed_boot_s=event.renewed_boot_s, down_boot_s=draft.now.boot_s)
    local_jobs.awake(draft)
    for record in list(draft.records.values()):
        _resume(draft, record)
    for entry in draft.state.desired.values():
        _follow(draft, entry)


def _resume(draft: Transition, record: PlacementRecord) -> None:
    """Take up a record where the life before left it."""
    known = record.entry.spec_hash in draft.state.specs
    if draft.state.outlives:
        record = _timed_anew(draft, record)
    if record.phase is Phase.FETCHING:
        draft.do(FetchSpec(record.entry.spec_hash))
    elif record.phase is Phase.RESERVED:
        draft.put(replace(record, reserved_until_boot_s=draft.now.boot_s + admission.RESERVE_FOR_S))
    elif record.phase is Phase.STAGING and known:
        draft.do(Stage(draft.put(replace(record, setup_boot_s=None)), draft.state.spec(record)))
    elif record.phase is Phase.UNSTAGING:
        draft.do(StopStaging(record.entry.placement))
    elif record.phase in (Phase.RUNNING, Phase.STOPPING):
        draft.do(FindRanks(record, record.live_ranks))
    elif record.phase is Phase.COLLECTING and known:
        draft.do(Collect(record, draft.state.spec(record)))
    draft.drop_if_done(record)


def _timed_anew(draft: Transition, record: PlacementRecord) -> PlacementRecord:
    """Its times by this host's boot clock, which may be another than it was: from the wall clock, and what is being ended has its grace at most."""
    boot_s = draft.now.boot_s
    if record.started_at is not None:
        record = replace(record, started_boot_s=boot_s - max(0.0, draft.now.at - record.started_at))
    if record.stop is not None:
        kill_boot_s = min(record.stop.kill_boot_s, boot_s + record.entry.grace_s)
        record = replace(record, stop=replace(record.stop, kill_boot_s=kill_boot_s))
    draft.records[record.entry.placement] = record
    return record


def _link_up(draft: Transition, event: LinkUp) -> None:
    """Everything not acknowledged is told again; to a store with another past, everything is, what is over among it.

    What is not seated yet is dropped: a session begins with the whole desired set, and only that says whether it is still wanted.
    """
    state = draft.state
    draft.records = {
        name: record for name, record in draft.records.items() if record.phase is not Phase.FETCHING
    }
    if event.proved_boot_s is not None:
        _renew(draft, event.proved_boot_s)
    anew = event.incarnation != state.incarnation
    if anew:
        left = (*state.left, state.incarnation) if state.incarnation else state.left
        draft.remember_facts(incarnation=event.incarnation, left=left, term=event.term)
        draft.change_desired(DesiredChange(0, (), (), whole=False))
        draft.records = {**state.over, **draft.records}
        draft.set(over={})
        for record in list(draft.records.values()):
            draft.put(replace(record, acknowledged=False))
    elif event.term != state.term:
        draft.remember_facts(term=event.term)
    draft.set(linked=True, down_boot_s=None, reported=None, address=event.address)
    local_jobs.link_up(draft, anew=anew)
    for record in draft.records.values():
        if record.phase is Phase.RESERVED and record.report is None:
            draft.do(FindPort(record.entry.placement))
    draft.repeat_statuses()


def _renewed(draft: Transition, event: Renewed) -> None:
    if event.sent_boot_s <= draft.now.boot_s:
        _renew(draft, event.sent_boot_s)


def _renew(draft: Transition, sent_boot_s: float) -> None:
    """Count from the newest message that was answered. Answers may overtake each other in nothing but time."""
    if draft.state.renewed_boot_s is None or sent_boot_s > draft.state.renewed_boot_s:
        draft.set(renewed_boot_s=sent_boot_s)
        draft.do(KeepRenewal(sent_boot_s))


def _link_down(draft: Transition, event: LinkDown) -> None:
    del event
    if draft.state.linked:
        draft.set(linked=False, down_boot_s=draft.now.boot_s, offered_boot_s=None)
        local_jobs.note_heard(draft)


def _desired_changed(draft: Transition, event: DesiredChanged) -> None:
    """Write the new set, acknowledge it, then act on every entry that is new or changed."""
    message, before = event.message, draft.state.desired
    if message.term < draft.state.term or message.generation < draft.state.generation:
        draft.acknowledge_desired()
        return
    draft.change_desired(
        DesiredChange(message.generation, message.entries, message.forget, whole=message.whole)
    )
    draft.acknowledge_desired()
    for entry in message.entries:
        record = draft.records.get(entry.placement)
        if record is None or record.entry != entry:
            _follow(draft, entry)
    for placement in before.keys() - draft.state.desired.keys():
        _let_go(draft, placement)


def _let_go(draft: Transition, placement: str) -> None:
    """No longer desired. What runs goes on and is reported again; only what is over and known to be over is dropped."""
    record = draft.records.get(placement)
    if record is None:
        return
    draft.drop_if_done(record)
    if record.phase is not Phase.ENDED and record.report is not None:
        draft.tell(record, record.report.status)


def _follow(draft: Transition, entry: DesiredEntry) -> None:
    record = draft.records.get(entry.placement)
    if record is None:
        if entry.order is Order.STOP:
            endings.end_unknown(draft, entry)
        else:
            admission.admit(draft, entry)
        return
    record = draft.entry_changed(record, entry)
    if entry.order is Order.STOP:
        if record.phase is Phase.ENDED and record.report is not None and record.verdict is not None:
            draft.tell(record, record.report.status, record.verdict)
        endings.stop(draft, record, Cause.STOPPED, entry.reason or "told to stop")
    elif entry.order is Order.RUN and record.phase is Phase.RESERVED:
        admission.stage(draft, record)


def _setting_up(draft: Transition, event: SettingUp) -> None:
    record = draft.records.get(event.placement)
    if record is not None and record.phase is Phase.STAGING:
        record = replace(record, setting_up=True, setup_boot_s=draft.now.boot_s)
        draft.tell(record, PlacementStatus.STARTING)


def _staged(draft: Transition, event: Staged) -> None:
    """The intent to start is written; only then are the ranks started."""
    record = draft.records.get(event.placement)
    if record is None or record.phase is not Phase.STAGING:
        return
    if why := admission.unfit(draft, record):
        refused = StagingFailed(event.placement, Cause.CANNOT, why, status=PlacementStatus.REFUSED)
        endings.fail_staging(draft, record, refused)
        return
    ranks = tuple(RankState(rank=slot.rank) for slot in record.slots)
    slots = tuple(replace(slot, host=event.hosts.get(slot.rank, slot.host)) for slot in record.slots)
    record = replace(record, phase=Phase.RUNNING, slots=slots, ranks=ranks, master_port=event.master_port)
    record = draft.put(replace(record, boot_id=draft.state.boot_id))
    draft.do(StartRanks(record, draft.state.spec(record), record.live_ranks))


def _staging_failed(draft: Transition, event: StagingFailed) -> None:
    record = draft.records.get(event.placement)
    if record is not None and record.phase is Phase.STAGING:
        endings.fail_staging(draft, record, event)


def _staging_stopped(draft: Transition, event: StagingStopped) -> None:
    record = draft.records.get(event.placement)
    if record is not None and record.phase is Phase.UNSTAGING:
        endings.conclude(draft, record)


def _rank_started(draft: Transition, event: RankStarted) -> None:
    """A placement runs once all its ranks do. Found again while it is being stopped, it is asked again."""
    record = _with_rank(draft, event.placement, event.rank, started=True)
    if record is None:
        return
    if record.started_at is None:
        ago_s = max(0.0, draft.now.at - event.started_at)
        record = replace(record, started_at=event.started_at, started_boot_s=draft.now.boot_s - ago_s)
    if record.phase is Phase.STOPPING:
        draft.put(record)
        endings.ask(draft, record, (event.rank,))
        return
    if all(rank.started for rank in record.ranks):
        draft.tell(record, PlacementStatus.RUNNING)
    else:
        draft.records[event.placement] = record


def _rank_absent(draft: Transition, event: RankAbsent) -> None:
    """It was never started. In the same boot it still may be; after another, the disk's silence proves nothing."""
    record = draft.records.get(event.placement)
    if record is None or record.phase not in (Phase.RUNNING, Phase.STOPPING):
        return
    if record.phase is Phase.RUNNING and record.boot_id == draft.state.boot_id:
        draft.do(StartRanks(record, draft.state.spec(record), (event.rank,)))
        return
    code = endings.NEVER_STARTED if record.boot_id == draft.state.boot_id else None
    detail = "" if code else "the machine was restarted"
    _rank_ended(draft, RankEnded(event.placement, event.rank, draft.now.at, code, detail))


def _rank_ended(draft: Transition, event: RankEnded) -> None:
    """The last rank's end is the placement's; before that, a failed rank ends the others, and so does the first where its end is the job's."""
    record = _with_rank(
        draft,
        event.placement,
        event.rank,
        ended=True,
        exit_code=event.exit_code,
        ended_at=event.ended_at,
        detail=event.detail,
        cause=event.cause,
    )
    if record is None:
        return
    draft.records[event.placement] = record
    if not record.live_ranks:
        endings.conclude(draft, record)
    elif event.exit_code != 0 or endings.decides(record, event.rank):
        endings.stop_siblings(draft, record, event)


def _with_rank(draft: Transition, placement: str, rank: int, **fields: Any) -> PlacementRecord | None:
    """The record with one rank changed; None when that rank is already over, or nothing is known of it."""
    record = draft.records.get(placement)
    if record is None or record.phase not in (Phase.RUNNING, Phase.STOPPING) or rank not in record.live_ranks:
        return None
    ranks = tuple(replace(each, **fields) if each.rank == rank else each for each in record.ranks)
    return replace(record, ranks=ranks)


def _collected(draft: Transition, event: Collected) -> None:
    record = draft.records.get(event.placement)
    if record is None or record.phase is not Phase.COLLECTING or record.verdict is None:
        return
    detail = "; ".join(part for part in (record.verdict.detail, event.detail) if part)
    draft.end(record, replace(record.verdict, detail=detail, unkept=event.unkept))
    _drop_specs(draft)


def _drop_specs(draft: Transition) -> None:
    """Forget the specs that no live placement needs."""
    needed = {record.entry.spec_hash for record in draft.records.values() if record.phase is not Phase.ENDED}
    draft.set(specs={name: spec for name, spec in draft.state.specs.items() if name in needed})


def _acknowledged(draft: Transition, event: Acknowledged) -> None:
    for record in list(draft.records.values()):
        if draft.told_apart(record.entry.placement):
            continue
        if record.report is not None and not record.acknowledged and record.report.seq <= event.seq:
            acknowledged = replace(record, acknowledged=True)
            if record.phase is Phase.ENDED:
                draft.put(acknowledged)
            else:
                draft.records[record.entry.placement] = acknowledged
            draft.drop_if_done(acknowledged)


def _capacity_seen(draft: Transition, event: CapacitySeen) -> None:
    draft.set(seen=event.seen)


def _paused(draft: Transition, event: Paused) -> None:
    draft.set(paused=event.paused)


def _report_due(draft: Transition, event: ReportDue) -> None:
    del event
    draft.report_anyway()
    draft.repeat_statuses()
    local_jobs.report_due(draft)


def _tick(draft: Transition, event: Tick) -> None:
    del event
    for record in list(draft.records.values()):
        reserved_until = record.reserved_until_boot_s
        if (
            record.phase is Phase.RESERVED
            and reserved_until is not None
            and reserved_until <= draft.now.boot_s
        ):
            endings.refuse(draft, record, "the reservation was not used in time")
        elif record.phase is Phase.STOPPING:
            endings.kill_if_due(draft, record)
        elif record.phase in (Phase.STAGING, Phase.RUNNING):
            endings.stop_at_limit(draft, record)


_HANDLERS: dict[type, Callable[[Transition, Any], None]] = {
    Awake: _awake,
    LinkUp: _link_up,
    LinkDown: _link_down,
    Renewed: _renewed,
    DesiredChanged: _desired_changed,
    Acknowledged: _acknowledged,
    SpecArrived: admission.spec_arrived,
    SpecUnknown: admission.spec_unknown,
    PortFound: admission.port_found,
    SettingUp: _setting_up,
    Staged: _staged,
    StagingFailed: _staging_failed,
    StagingStopped: _staging_stopped,
    RankStarted: _rank_started,
    RankAbsent: _rank_absent,
    RankEnded: _rank_ended,
    Collected: _collected,
    LocalSubmitted: local_jobs.submit,
    LocalCancelled: local_jobs.cancel,
    Allotted: local_jobs.allotted,
    Adopted: local_jobs.adopted,
    CapacitySeen: _capacity_seen,
    DevicesSeen: admission.devices_seen,
    Noticed: admission.noticed,
    Paused: _paused,
    ReportDue: _report_due,
    Tick: _tick,
}

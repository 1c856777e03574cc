"""How placements end: asked, by their time limit, by a rank's failure, by refusal; and what verdict follows."""

from msgspec.structs import replace

from federator.model.jobs import FIRST
from federator.model.placements import Cause, DesiredEntry, PlacementStatus
from federator_agent.core.events import RankEnded, StagingFailed
from federator_agent.core.instructions import Collect, SignalRanks, StopStaging
from federator_agent.core.state import Phase, PlacementRecord, RankState, Stop, Verdict
from federator_agent.core.transition import Transition

NEVER_STARTED = 143
"""The exit code of a rank that was stopped before it was started: as if TERM had ended it."""
KILLED = 137
KILLED_HINT = "killed by signal 9, often because it ran out of memory"
KILL_AGAIN_S = 5.0
"""A kill that has not been answered is repeated after this time."""


def limit_boot_s(record: PlacementRecord) -> float | None:
    """When a placement has run for as long as it may, its set-up included, by the boot clock."""
    limit_s = record.entry.max_duration_s
    if limit_s is None:
        return None
    begun_boot_s = record.started_boot_s if record.setup_boot_s is None else record.setup_boot_s
    return None if begun_boot_s is None else begun_boot_s + limit_s


def stop_at_limit(draft: Transition, record: PlacementRecord) -> None:
    """End what has run, or been set up, for as long as it may."""
    limit = limit_boot_s(record)
    if limit is None or limit > draft.now.boot_s:
        return
    what = "its set-up" if record.phase is Phase.STAGING else "it"
    stop(draft, record, Cause.MAX_DURATION, f"{what} ran for longer than its max_duration")


def refuse(draft: Transition, record: PlacementRecord, why: str) -> None:
    """The site cannot. An ordinary answer, before anything has started."""
    verdict = Verdict(status=PlacementStatus.REFUSED, cause=Cause.CANNOT, detail=why, ended_at=draft.now.at)
    draft.end(record, verdict)


def end_unknown(draft: Transition, entry: DesiredEntry) -> None:
    """A `stop` for what never came here: it is over, and the record keeps an older `run` from starting it."""
    _stopped(draft, PlacementRecord(entry=entry), "it had not started here")


def _stopped(draft: Transition, record: PlacementRecord, detail: str) -> None:
    verdict = Verdict(
        status=PlacementStatus.STOPPED, cause=Cause.STOPPED, detail=detail, ended_at=draft.now.at
    )
    draft.end(record, verdict)


def stop(
    draft: Transition,
    record: PlacementRecord,
    cause: Cause,
    detail: str,
    rank: int | None = None,
    *,
    late_s: float = 0.0,
) -> None:
    """Begin to end a placement, for `rank` if its end is the reason. What is already ending goes on as it is.

    `late_s`: it was due so long ago, and counts from then.
    """
    if record.phase in (Phase.FETCHING, Phase.RESERVED):
        _stopped(draft, record, detail)
    elif record.phase is Phase.STAGING:
        why = _stop_record(draft, record, cause, detail, rank, late_s)
        draft.put(replace(record, phase=Phase.UNSTAGING, stop=why))
        draft.do(StopStaging(record.entry.placement))
    elif record.phase is Phase.RUNNING:
        why = _stop_record(draft, record, cause, detail, rank, late_s)
        asked = draft.put(replace(record, phase=Phase.STOPPING, stop=why))
        ask(draft, asked, asked.live_ranks)


def _stop_record(
    draft: Transition, record: PlacementRecord, cause: Cause, detail: str, rank: int | None, late_s: float
) -> Stop:
    kill_boot_s = draft.now.boot_s - late_s + record.entry.grace_s
    asked_at = draft.now.at - late_s
    return Stop(cause=cause, detail=detail, asked_at=asked_at, kill_boot_s=kill_boot_s, rank=rank)


def ask(draft: Transition, record: PlacementRecord, ranks: tuple[int, ...]) -> None:
    """Send the signal on which the job saves itself, or the last one when its grace is over."""
    killed = record.stop is not None and record.stop.killed
    draft.do(SignalRanks(record.entry.placement, ranks, "KILL" if killed else record.entry.signal))


def kill_if_due(draft: Transition, record: PlacementRecord) -> None:
    """Once the grace is over, kill; and again, until it is gone."""
    stop = record.stop
    if stop is None or stop.kill_boot_s > draft.now.boot_s:
        return
    killing = replace(stop, killed=True, kill_boot_s=draft.now.boot_s + KILL_AGAIN_S)
    record = draft.put(replace(record, stop=killing))
    draft.do(SignalRanks(record.entry.placement, record.live_ranks, "KILL"))


def stop_siblings(draft: Transition, record: PlacementRecord, ended: RankEnded) -> None:
    """A rank has failed, or was the one that the job ends with: the rest of the gang does not go on without it."""
    cause = Cause.NODE_LOST if ended.exit_code is None else Cause.EXIT
    stop(draft, record, cause, f"rank {ended.rank} ended first", ended.rank)


def decides(record: PlacementRecord, rank: int) -> bool:
    """Whether this rank's end is the job's, however the others end."""
    return record.entry.success == FIRST and rank == 0


def fail_staging(draft: Transition, record: PlacementRecord, event: StagingFailed) -> None:
    """It cannot start. The set-up's log still goes home before this is told."""
    verdict = Verdict(
        status=event.status,
        cause=event.cause,
        detail=event.detail,
        exit_code=event.exit_code,
        ended_at=draft.now.at,
    )
    _collect(draft, record, verdict)


def conclude(draft: Transition, record: PlacementRecord) -> None:
    """Nothing of it runs any more: decide how it ended, and bring home what it leaves."""
    _collect(draft, record, judge(record, draft.now.at))


def _collect(draft: Transition, record: PlacementRecord, verdict: Verdict) -> None:
    record = draft.put(replace(record, phase=Phase.COLLECTING, verdict=verdict))
    draft.do(Collect(record, draft.state.spec(record)))


def judge(record: PlacementRecord, now_at: float) -> Verdict:
    """How a placement ended, from how its ranks did and whether it had been asked to end."""
    ended_at = max((rank.ended_at or now_at for rank in record.ranks), default=now_at)
    ended_at = max(ended_at, record.started_at or ended_at)
    stop = record.stop
    counted = [rank for rank in record.ranks if decides(record, rank.rank)] or record.ranks
    if counted and all(_succeeded(rank, stop) for rank in counted):
        return Verdict(status=PlacementStatus.SUCCEEDED, cause=Cause.EXIT, exit_code=0, ended_at=ended_at)
    first = _first_failed(record)
    code = first.exit_code if first else 0
    if stop is not None and stop.cause is Cause.STOPPED:
        return Verdict(
            status=PlacementStatus.STOPPED,
            cause=Cause.STOPPED,
            detail=stop.detail,
            exit_code=code,
            ended_at=ended_at,
            checkpointed=bool(record.ranks)
            and not stop.killed
            and not any(_lost(rank) for rank in record.ranks),
        )
    if stop is not None and stop.cause is Cause.MAX_DURATION:
        return Verdict(
            status=PlacementStatus.FAILED,
            cause=Cause.MAX_DURATION,
            detail=stop.detail,
            exit_code=code if record.ranks else None,
            ended_at=ended_at,
            checkpointed=bool(record.ranks) and not stop.killed,
        )
    assert first is not None
    where = next((slot.host for slot in record.slots if slot.rank == first.rank), "")
    if _lost(first):
        return _lost_verdict(first, where, ended_at)
    detail = f"rank {first.rank} on {where} ended with exit code {first.exit_code}{_why(first)}"
    return Verdict(
        status=PlacementStatus.FAILED,
        cause=first.cause or Cause.EXIT,
        detail=detail,
        exit_code=first.exit_code,
        ended_at=ended_at,
    )


def _lost_verdict(rank: RankState, where: str, ended_at: float) -> Verdict:
    detail = f"rank {rank.rank} on {where}: {rank.detail or 'its process vanished'}"
    cause = rank.cause or Cause.NODE_LOST
    return Verdict(status=PlacementStatus.LOST, cause=cause, detail=detail, ended_at=ended_at)


def _why(rank: RankState) -> str:
    """What is known of an exit code beyond its number."""
    why = rank.detail or (KILLED_HINT if rank.exit_code == KILLED else "")
    return f": {why}" if why else ""


def _succeeded(rank: RankState, stop: Stop | None) -> bool:
    """Whether a rank ended well, and by itself: an end after having been asked may be that of half the work."""
    by_itself = (
        stop is None
        or stop.rank == rank.rank
        or (rank.ended_at is not None and rank.ended_at <= stop.asked_at)
    )
    return rank.exit_code == 0 and by_itself


def _lost(rank: RankState) -> bool:
    return rank.ended and rank.exit_code is None


def _first_failed(record: PlacementRecord) -> RankState | None:
    """The rank whose end ended the others; without one, the first by time, then by number."""
    failed = [rank for rank in record.ranks if rank.exit_code != 0]
    culprit = record.stop.rank if record.stop else None
    return min(failed, key=lambda rank: (rank.rank != culprit, rank.ended_at or 0.0, rank.rank), default=None)

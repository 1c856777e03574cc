"""Gangs over several members: what each member says of its ranks, folded into the story of the one placement.

Why so: a gang is whole or worth nothing, but its members speak one at a time, late, twice, or not at all. So each has a *part* with a life of its own,
and the placement's status is computed from all of them after every word. From there on a gang is a placement like any other: what
comes out of here is the report that a single member would have made of the whole.

A gang is first *reserved* on all its members, and told to run when each has accepted. Until then nothing of it can run anywhere, so it may end, and
its job be placed anew, on any member's refusal or silence. After that it ends only when every part is proven over. The first part that ends
otherwise than well makes the others stop, and how it ended is how the gang did; so does the part of rank 0 where its end is the job's. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.jobs import FIRST
from federator.model.lifecycle import TOLD, advance, allows
from federator.model.placements import (
    PLACEMENT_ENDED,
    Cause,
    Order,
    Part,
    Placement,
    PlacementReport,
    PlacementStatus,
    RankStatus,
)

_BEGUN = frozenset(
    {
        PlacementStatus.STARTING,
        PlacementStatus.RUNNING,
        PlacementStatus.SUCCEEDED,
        PlacementStatus.FAILED,
    }
)
_UP = frozenset({PlacementStatus.RUNNING, PlacementStatus.SUCCEEDED})


class GangStatus(NamedTuple):
    """A placement with what has become known of its parts, and what that says of the whole; None: nothing new."""

    placement: Placement
    report: PlacementReport | None = None


def parts_of(members: tuple[str, ...]) -> tuple[Part, ...]:
    """The parts of a placement whose ranks are at these members: none where one has them all."""
    names = tuple(dict.fromkeys(members))
    return tuple(Part(member=name) for name in names) if len(names) > 1 else ()


def hear(placement: Placement, member: str, report: PlacementReport, *, acknowledged: bool) -> GangStatus:
    """A member's part moves to `report.status`, which its present status allows. `acknowledged`: it needs no telling to stop any more.

    What was given up for lost and has stopped or failed after all stays lost: its gang is being ended, or has, for that.
    """
    part = placement.part(member)
    assert part is not None
    ended = report.status in PLACEMENT_ENDED
    if part.status is PlacementStatus.LOST and report.status is not PlacementStatus.SUCCEEDED:
        return acknowledge(placement, member)
    part = replace(
        part,
        status=advance(part.status, TOLD[report.status]),
        cause=report.cause,
        detail=report.detail,
        exit_code=report.exit_code,
        started_at=part.started_at if report.started_at is None else report.started_at,
        ended_at=(report.ended_at or report.at) if ended else None,
        rank=_first(report.ranks) if ended else None,
        checkpointed=report.checkpointed,
        unkept=report.unkept,
        rendezvous=report.rendezvous or part.rendezvous,
        stop_acknowledged=ended and acknowledged,
    )
    return _settle(_with(placement, part), report.at)


def acknowledge(placement: Placement, member: str) -> GangStatus:
    """A member whose part was given up says that it is over: it need not be told to stop any more."""
    part = placement.part(member)
    assert part is not None
    placement = _with(placement, replace(part, stop_acknowledged=True))
    return GangStatus(replace(placement, stop_acknowledged=_acknowledged(placement)))


def forgive(placement: Placement, member: str) -> Placement:
    """Of a gang that is over: a member whose machine is gone has nothing left to answer."""
    part = placement.part(member)
    if part is None:
        return placement
    placement = _with(placement, replace(part, stop_acknowledged=True))
    return replace(placement, stop_acknowledged=_acknowledged(placement))


def give_up(placement: Placement, why: str, at: float) -> GangStatus:
    """End a gang that was never told to run. Its members are told to stop, each until it has answered, though nothing runs there."""
    report = PlacementReport(
        placement=placement.id,
        epoch=placement.epoch,
        seq=0,
        status=PlacementStatus.REFUSED,
        at=at,
        cause=Cause.CANNOT,
        detail=why,
        ended_at=at,
    )
    return GangStatus(replace(placement, order=Order.STOP, order_reason=why), report)


def found(placement: Placement, told: Mapping[str, PlacementReport]) -> Placement:
    """A gang that the records do not know, from what its members say of it: told to run if it runs on all, else as it was reserved.

    Ranks that no member has are over, or never were: then it is told to stop.
    """
    members = {rank.rank: member for member, report in told.items() for rank in report.ranks}
    whole = len(members) == placement.nodes
    began = whole and all(report.status is not PlacementStatus.ACCEPTED for report in told.values())
    return replace(
        placement,
        members=tuple(members.get(rank, placement.members[0]) for rank in range(placement.nodes)),
        parts=tuple(Part(member=member) for member in told),
        order=Order.RUN if began else Order.RESERVE if whole else Order.STOP,
        order_reason="" if whole else "one of its ranks is missing: the restored store is older than its end",
    )


def silent(placement: Placement) -> tuple[str, ...]:
    """The members that have not accepted yet."""
    return tuple(part.member for part in placement.parts if part.status is PlacementStatus.ASSIGNED)


def refusing(placement: Placement) -> tuple[str, ...]:
    """The members for which a gang was given up before it began: they refused, or did not answer, or not as a gang needs it."""
    parts = placement.parts
    failed = tuple(part.member for part in parts if _failed(part))
    dumb = tuple(part.member for part in parts if not part.rendezvous)
    first = (placement.ended_first,) if placement.ended_first else ()
    return first or failed or silent(placement) or dumb


def unproven(placement: Placement) -> tuple[str, ...]:
    """The members where something of the placement may still run."""
    if not placement.parts:
        return placement.members[:1]
    return tuple(part.member for part in placement.parts if not part.ended)


def _settle(placement: Placement, at: float) -> GangStatus:
    """What all parts together say of the whole."""
    placement = replace(placement, stop_acknowledged=_acknowledged(placement))
    parts = placement.parts
    if placement.ended:
        return _late(placement, at)
    if placement.order is Order.RESERVE:
        return settle_reserved(placement, at)
    failed = next((part for part in parts if _failed(part)), None)
    if failed is not None and placement.order is Order.RUN:
        why = f"{_told_by(placement, failed)}: the rest of the gang cannot go on without it"
        placement = replace(placement, order=Order.STOP, order_reason=why, ended_first=failed.member)
    elif placement.order is Order.RUN and _decided(placement):
        why = f"rank 0 at {placement.members[0]} has ended, which is the end of the job"
        placement = replace(placement, order=Order.STOP, order_reason=why, ended_first=placement.members[0])
    if all(part.ended for part in parts):
        return GangStatus(placement, _end(placement, at))
    if placement.order is Order.STOP:
        return GangStatus(placement)
    if all(part.status in _UP for part in parts):
        return come_to(placement, PlacementStatus.RUNNING, at)
    if any(part.status in _BEGUN for part in parts):
        return come_to(placement, PlacementStatus.STARTING, at)
    return GangStatus(placement)


def settle_reserved(placement: Placement, at: float) -> GangStatus:
    """Told to run once all have accepted. One that cannot, or is gone, ends it at once: it was never told to run."""
    parts = placement.parts
    if any(part.status in _BEGUN or part.started_at is not None for part in parts):
        # These records are older than the work, so how far the others have come is not known: all of it has to be proven over.
        why = "it runs, but the records have it as reserved only: they are older than the work"
        return _settle(replace(placement, order=Order.STOP, order_reason=why), at)
    failed = next((part for part in parts if _failed(part)), None)
    if failed is not None:
        return give_up(placement, _told_by(placement, failed), at)
    if any(part.status is not PlacementStatus.ACCEPTED for part in parts):
        return GangStatus(placement)
    dumb = next((part.member for part in parts if not part.rendezvous), None)
    if dumb is not None:
        return give_up(
            placement, f"{dumb} does not say where others reach it: its federator-agent is too old", at
        )
    first = placement.part(placement.members[0])
    assert first is not None
    placement = replace(placement, order=Order.RUN, rendezvous=first.rendezvous)
    return come_to(placement, PlacementStatus.ACCEPTED, at)


def _late(placement: Placement, at: float) -> GangStatus:
    """Words on a gang that is over: only that every part has succeeded after all still counts."""
    if _succeeded(placement) and allows(placement.status, TOLD[PlacementStatus.SUCCEEDED]):
        return GangStatus(placement, _end(placement, at))
    return GangStatus(placement)


def come_to(placement: Placement, status: PlacementStatus, at: float) -> GangStatus:
    """The whole has come to `status`, unless it is there already."""
    if not allows(placement.status, TOLD[status]):
        return GangStatus(placement)
    report = PlacementReport(
        placement=placement.id,
        epoch=placement.epoch,
        seq=1,
        status=status,
        at=at,
        started_at=_started_at(placement),
    )
    return GangStatus(placement, report)


def _end(placement: Placement, at: float) -> PlacementReport:
    """How a gang ended of which every part is over. `seq` 0: some part was given up without its member's word."""
    parts = placement.parts
    part = _culprit(placement)
    status, cause = part.status, part.cause
    well = _succeeded(placement)
    if status is PlacementStatus.SUCCEEDED and not well:
        # Lost, and back with a success: too late, the others were stopped for it.
        status, cause = PlacementStatus.LOST, Cause.CUT_OFF
    elif not placement.ended_first and status in (PlacementStatus.FAILED, PlacementStatus.REFUSED):
        # It was told to stop, and a rank whose peers had gone first did not wait for that.
        status, cause = PlacementStatus.STOPPED, Cause.STOPPED
    return PlacementReport(
        placement=placement.id,
        epoch=placement.epoch,
        seq=0 if any(p.status is PlacementStatus.LOST and not p.stop_acknowledged for p in parts) else 1,
        status=status,
        at=at,
        cause=cause,
        detail="" if well else _told_by(placement, part),
        exit_code=part.exit_code,
        started_at=_started_at(placement),
        ended_at=max((p.ended_at for p in parts if p.ended_at is not None), default=at),
        ranks=(part.rank or RankStatus(placement.members.index(part.member)),),
        checkpointed=all(p.checkpointed or p.status is PlacementStatus.SUCCEEDED for p in parts),
        unkept=any(p.unkept for p in parts),
    )


def _culprit(placement: Placement) -> Part:
    """The part whose end is that of the gang: the one that made the others stop, else a lost one, else any that did not end well."""
    first = _leading(placement) if _decided(placement) else placement.part(placement.ended_first)
    if first is not None and (_decided(placement) or not _all_succeeded(placement.parts)):
        return first
    return min(
        placement.parts,
        key=lambda part: (part.status is not PlacementStatus.LOST, part.status is PlacementStatus.SUCCEEDED),
    )


def _told_by(placement: Placement, part: Part) -> str:
    """Who ended how. An agent's own words name the rank, but only its own hosts."""
    return f"{part.member}: {part.detail or f'rank {placement.members.index(part.member)} is {part.status}'}"


def _started_at(placement: Placement) -> float | None:
    """When its first rank began: from then on it uses all its GPUs."""
    return min((part.started_at for part in placement.parts if part.started_at is not None), default=None)


def _with(placement: Placement, part: Part) -> Placement:
    parts = tuple(part if each.member == part.member else each for each in placement.parts)
    return replace(placement, parts=parts)


def _acknowledged(placement: Placement) -> bool:
    return all(part.stop_acknowledged for part in placement.parts)


def _failed(part: Part) -> bool:
    return part.ended and part.status is not PlacementStatus.SUCCEEDED


def _all_succeeded(parts: tuple[Part, ...]) -> bool:
    return all(part.status is PlacementStatus.SUCCEEDED for part in parts)


def _succeeded(placement: Placement) -> bool:
    return _decided(placement) or _all_succeeded(placement.parts)


def _decided(placement: Placement) -> bool:
    """Whether it has succeeded by the end of rank 0, whatever becomes of the others."""
    return placement.success == FIRST and _leading(placement).status is PlacementStatus.SUCCEEDED


def _leading(placement: Placement) -> Part:
    """The part that has rank 0."""
    part = placement.part(placement.members[0])
    assert part is not None
    return part


def _first(ranks: tuple[RankStatus, ...]) -> RankStatus | None:
    """The rank that was lost, else the first that is told of."""
    return min(ranks, key=lambda rank: (rank.exit_code is not None, rank.rank), default=None)

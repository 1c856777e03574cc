"""What an agent knows. All of it is immutable; what must survive a crash is written as `Change` lines before it is acted on."""

from enum import StrEnum

import msgspec

from federator.model.allotments import Allotment, LocalJob
from federator.model.jobs import JobSpec
from federator.model.placements import Cause, DesiredEntry, PlacementReport, PlacementStatus
from federator.model.sites import AilingGpu, SiteReport
from federator_agent.core.lent_capacity import HostPool, Seen, Site, Slot


class Phase(StrEnum):
    """Where a placement is, here."""

    FETCHING = "fetching"
    """Its spec is on the way."""
    RESERVED = "reserved"
    """It holds its slots and waits for the order to run."""
    STAGING = "staging"
    """Its work directory is being unpacked and set up."""
    UNSTAGING = "unstaging"
    """It was stopped while it was staged."""
    RUNNING = "running"
    """Its ranks are being started, or run."""
    STOPPING = "stopping"
    """Its ranks have been asked to end."""
    COLLECTING = "collecting"
    """Nothing runs; logs and outputs are on their way."""
    ENDED = "ended"
    """Its terminal status is on disk."""


class RankState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rank of a placement that was ordered to start."""

    rank: int
    started: bool = False
    ended: bool = False
    exit_code: int | None = None
    ended_at: float | None = None
    detail: str = ""
    cause: Cause | None = None
    """Why it ended, where more is known than an exit code, or its want."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why and until when a placement is asked to end. Times `_boot_s` are of this boot."""

    cause: Cause
    detail: str
    asked_at: float
    kill_boot_s: float
    killed: bool = False
    rank: int | None = None
    """The rank that ended first and so ends the others."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How it ended, before that is told."""

    status: PlacementStatus
    cause: Cause
    ended_at: float
    detail: str = ""
    exit_code: int | None = None
    checkpointed: bool = False
    unkept: bool = False


class PlacementRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A placement at this agent. `order` fields come from the newest desired entry, also after that is forgotten."""

    entry: DesiredEntry
    phase: Phase = Phase.FETCHING
    slots: tuple[Slot, ...] = ()
    ranks: tuple[RankState, ...] = ()
    master_port: int = 0
    boot_id: str = ""
    """The boot in which its ranks were ordered to start; another boot proves that they are gone."""
    reserved_until_boot_s: float | None = None
    started_at: float | None = None
    started_boot_s: float | None = None
    setting_up: bool = False
    setup_boot_s: float | None = None
    """When its set-up began in this life of the agent: it counts as run time."""
    stop: Stop | None = None
    verdict: Verdict | None = None
    report: PlacementReport | None = None
    """The newest status."""
    acknowledged: bool = False
    """The dispatcher has that status."""

    @property
    def live_ranks(self) -> tuple[int, ...]:
        """Ranks that may still run."""
        return tuple(rank.rank for rank in self.ranks if not rank.ended)


class RecordChange(msgspec.Struct, frozen=True, tag="record", forbid_unknown_fields=True):
    """A record as it is now."""

    record: PlacementRecord


class RecordGone(msgspec.Struct, frozen=True, tag="gone", forbid_unknown_fields=True):
    """A record that is over, acknowledged and forgotten by the dispatcher."""

    placement: str


class DesiredChange(msgspec.Struct, frozen=True, tag="desired", forbid_unknown_fields=True):
    """A change of the desired set."""

    generation: int
    entries: tuple[DesiredEntry, ...]
    forget: tuple[str, ...]
    whole: bool


class FactsChange(msgspec.Struct, frozen=True, tag="facts", forbid_unknown_fields=True):
    """Who was talked to last, and a number that no status has had yet."""

    incarnation: str
    left: tuple[str, ...]
    term: int
    seq_ceiling: int


class AdmittedJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that this agent has admitted by itself, beside the record of its placement."""

    job: LocalJob
    gpus: float
    adopted: bool = False
    """The dispatcher has it."""
    lasted_s: float | None = None
    """For how long it held its GPUs; None: it is not over."""

    def held_s(self, ended_at: float) -> float:
        """That, if it ended then: there is no waiting between admission and start."""
        return max(0.0, ended_at - self.job.submitted_at)


class LocalChange(msgspec.Struct, frozen=True, tag="local", forbid_unknown_fields=True):
    """A job of the agent's own as it is now."""

    work: AdmittedJob


class LocalGone(msgspec.Struct, frozen=True, tag="local-gone", forbid_unknown_fields=True):
    """One that neither the dispatcher nor an allotment asks for any more."""

    placement: str


class AllotmentsChange(msgspec.Struct, frozen=True, tag="allotments", forbid_unknown_fields=True):
    """What may be admitted here, and when the dispatcher was last known to be there."""

    allotments: tuple[Allotment, ...]
    heard_at: float


Change = RecordChange | RecordGone | DesiredChange | FactsChange | LocalChange | LocalGone | AllotmentsChange


MOST_OVER = 500
"""Placements that are over and still remembered."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. `seq` is the last number given to a status; `seq_ceiling` is on disk and never below it."""

    site: Site
    seen: Seen | None = None
    """Of a site with a scheduler of its own: what it has. None: not looked at yet, or the hosts are those that `site` declares."""
    ailing: tuple[AilingGpu, ...] = ()
    """GPUs that take nothing new."""
    reclaim_at: float | None = None
    """When the provider takes this machine back."""
    outlives: bool = False
    """Work runs on other machines than the agent: a new boot of this one proves nothing, and its boot clock has not measured them."""
    boot_id: str = ""
    records: dict[str, PlacementRecord] = {}
    over: dict[str, PlacementRecord] = {}
    """What is over, acknowledged and forgotten by the dispatcher, oldest first: a store that is restored from a backup may not know its end, and is told."""
    desired: dict[str, DesiredEntry] = {}
    generation: int = 0
    incarnation: str = ""
    left: tuple[str, ...] = ()
    """Incarnations that this agent has been told to leave; it does not go back."""
    term: int = 0
    address: str = ""
    """Under which the site's other members reach this host; known once there was a session."""
    seq: int = 0
    seq_ceiling: int = 0
    specs: dict[str, JobSpec] = {}
    local: dict[str, AdmittedJob] = {}
    """Jobs that the agent has admitted by itself, by placement: until the dispatcher has them, and for a day at least."""
    allotments: tuple[Allotment, ...] = ()
    heard_at: float = 0.0
    """When the dispatcher was last known to be there, as far as that is on disk."""
    down_boot_s: float | None = None
    """Since when, in this boot, there has been no session; None: there is one."""
    offered_boot_s: float | None = None
    """When jobs that are not adopted were last told."""
    linked: bool = False
    runtime: str = ""
    """As reports name it."""
    abilities: tuple[str, ...] = ()
    """What jobs may need and find here, as reports name it."""
    isolation: str = ""
    trusts: tuple[str, ...] = ()
    """How jobs are kept apart and whose are taken, as reports say it."""
    self_fencing: bool = False
    """Something outside of this process ends work that is cut off for too long."""
    renewed_boot_s: float | None = None
    """When the last message that the dispatcher answered in this boot was sent."""
    paused: bool = False
    reported: SiteReport | None = None
    """The last report that was sent in this session."""

    @property
    def pools(self) -> tuple[HostPool, ...]:
        """What the site has, seen or declared."""
        return self.seen.pools if self.seen else self.site.pools

    @property
    def ailing_numbers(self) -> frozenset[tuple[str, int]]:
        """Those GPUs by host and number."""
        return frozenset((each.host, each.gpu) for each in self.ailing)

    def pool(self, name: str) -> HostPool | None:
        """The pool of that name."""
        return next((pool for pool in self.pools if pool.name == name), None)

    def spec(self, record: PlacementRecord) -> JobSpec:
        """What the placement runs: its job's spec in the form that it was given. Only for what is seated, whose spec and form are known."""
        return self.specs[record.entry.spec_hash].as_form(record.entry.form)


def restore(state: State, changes: list[Change]) -> State:
    """The state after the changes that a disk remembers."""
    records, over = dict(state.records), state.over
    desired = dict(state.desired)
    generation, facts = state.generation, FactsChange("", (), 0, 0)
    local, allotted = dict(state.local), AllotmentsChange((), 0.0)
    for change in changes:
        if isinstance(change, RecordChange):
            records[change.record.entry.placement] = change.record
        elif isinstance(change, RecordGone):
            over = remembered(over, records.pop(change.placement, None))
        elif isinstance(change, DesiredChange):
            desired = apply_desired(desired, change)
            generation = change.generation
        elif isinstance(change, LocalChange):
            local[change.work.job.placement] = change.work
        elif isinstance(change, LocalGone):
            local.pop(change.placement, None)
        elif isinstance(change, AllotmentsChange):
            allotted = change
        else:
            facts = change
    return msgspec.structs.replace(
        state,
        records=records,
        over={name: record for name, record in over.items() if name not in records},
        desired=desired,
        generation=generation,
        incarnation=facts.incarnation,
        left=facts.left,
        term=facts.term,
        seq=facts.seq_ceiling,
        seq_ceiling=facts.seq_ceiling,
        local=local,
        allotments=allotted.allotments,
        heard_at=allotted.heard_at,
    )


def remembered(
    over: dict[str, PlacementRecord], record: PlacementRecord | None
) -> dict[str, PlacementRecord]:
    """What is over, with a record that is forgotten: the newest of them."""
    if record is None or record.phase is not Phase.ENDED or record.report is None:
        return over
    kept = {**over, record.entry.placement: record}
    return dict(list(kept.items())[-MOST_OVER:])


def apply_desired(desired: dict[str, DesiredEntry], change: DesiredChange) -> dict[str, DesiredEntry]:
    """The desired set after a change."""
    after = {} if change.whole else dict(desired)
    after.update({entry.placement: entry for entry in change.entries})
    for placement in change.forget:
        after.pop(placement, None)
    return after


def whole(state: State) -> list[Change]:
    """The least changes from which `restore` makes the durable part of this state."""
    changes: list[Change] = [
        FactsChange(state.incarnation, state.left, state.term, state.seq_ceiling),
        DesiredChange(state.generation, tuple(state.desired.values()), (), whole=True),
    ]
    changes += [LocalChange(work) for work in state.local.values()]
    if state.allotments:
        changes.append(AllotmentsChange(state.allotments, state.heard_at))
    for name, record in state.over.items():
        changes += (RecordChange(record), RecordGone(name))
    changes += [RecordChange(record) for record in state.records.values()]
    return changes

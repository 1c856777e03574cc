"""The committer: the one place where a plan becomes records.

A plan was made from a snapshot that is already old. Each of its actions is tested again by the same independent checker, against a snapshot of
*now*; those that still hold are written, as many to a transaction as the store takes, guarded by the leader's term and by the revision of every row
they replace. The rest come back: stale ones for the next turn, and those that cannot be written with the error, so that their jobs are set aside. Turn, fast path and preemption all commit here, one after another, so that two of them never count on the
same free GPU. A gang is one action: all of it or nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from federator.control.leases.proposals import with_approval_spent
from federator.control.record.batches import write_each
from federator.control.record.event_writer import EventWriter, reason_of
from federator.control.record.records import Changes, Records, row_key
from federator.control.reports.gangs import parts_of
from federator.control.turns.first_forecasts import with_first_forecast
from federator.control.turns.observation import Observer, expected_ready_at
from federator.control.turns.reuse import offer_of, warm_machines
from federator.model.capacity import Lease, LeaseStatus, Market, Offer, Shape
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.model.lifecycle import allows
from federator.model.placements import Order, Placement, placement_of
from federator.model.plans import Action, Finding, Place, Plan, Preempt, Rent, Severity
from federator.model.reasons import Rents
from federator.model.snapshot import Problem, Snapshot
from federator.planning.checks import check_actions

CHUNK = 20
"""Actions that are tested against one snapshot. How many of them make a transaction, their rows decide."""


class Committed(NamedTuple):
    """What became of a plan's actions."""

    done: tuple[Action, ...]
    stale: tuple[tuple[Action, str], ...]
    refused: tuple[tuple[Action, Exception], ...] = ()
    """Actions that cannot be written, whenever they are tried."""


class Committer:
    """Writes what still holds."""

    def __init__(self, records: Records, observer: Observer, event_writer: EventWriter) -> None:
        self._records = records
        self._observer = observer
        self._event_writer = event_writer
        self._one_at_a_time = asyncio.Lock()

    async def commit(self, plan: Plan) -> Committed:
        """Test every action against the present and write those that hold."""
        async with self._one_at_a_time:
            actions, attempt = plan.actions, _Attempt(self._observer, plan, self._write)
            refused = await write_each(
                self._records, range(len(actions)), attempt.write, prepare=attempt.look, together=CHUNK
            )
            errors, stale = {each.piece: each.error for each in refused}, attempt.stale
            return Committed(
                tuple(a for number, a in enumerate(actions) if number not in stale and number not in errors),
                tuple((actions[number], fault) for number, fault in sorted(stale.items())),
                tuple((actions[number], error) for number, error in sorted(errors.items())),
            )

    def _write(self, changes: Changes, plan: Plan, action: Action, snapshot: Snapshot) -> str:
        """Add the action's rows; a non-empty answer says why it is stale instead."""
        job = self._records.jobs.get(action.job)
        if job is None or self._records.revision_of(job) != action.revision:
            return "the job has changed since the plan was made"
        if isinstance(action, Preempt):
            return self._preempt(changes, action, job)
        if job.status is not JobStatus.PENDING:
            return f"the job is {job.status}"
        if isinstance(action, Rent):
            return self._rent(changes, plan, action, job, snapshot)
        return self.place_job(changes, plan, action, job, snapshot)

    def place_job(self, changes: Changes, plan: Plan, action: Place, job: Job, snapshot: Snapshot) -> str:
        """Add the rows of a new placement. Answers why it no longer holds; empty: it does."""
        key = f"{action.site}/{action.members[0]}/{action.pool}"
        pool = next((pool for pool in snapshot.pools if pool.key == key), None)
        placement = self._placement(job, self._records.spec(job.spec_hash), plan, action)
        placement = msgspec.structs.replace(
            placement,
            members=_in_order(_of_ranks(action.members, placement), job.resume_members),
            pool=action.pool,
            market=action.market,
            lease=action.lease,
            price_usd_gpu_h=action.price_usd_gpu_h,
            model=pool.model if pool else "",
        )
        changes.put(placement)
        self._event_writer.place(
            changes, self._told(self._free_to_change(job), placement), placement, reason_of(action)
        )
        lease = self._records.leases.get(action.lease or "")
        if lease is not None:
            self._extend(changes, lease, placement)
        return ""

    def _extend(
        self,
        changes: Changes,
        lease: Lease,
        placement: Placement,
        *,
        boots_s: float = 0.0,
        counts_data: bool = True,
    ) -> None:
        """More work on a lease that is rented already: what may be paid for it grows to hold the longest run, and what is not billed yet.

        `boots_s`: so long it waits for others of its gang; `counts_data`: bringing the data counts with it. The lease's row is written in any case, so that giving the machine back and starting work on it cannot both be committed.
        """
        written = changes.rows.get(row_key(lease))  # by an earlier placement of the same transaction
        lease = written if isinstance(written, Lease) else lease
        now, offer = self._event_writer.clock.now(), lease.offer
        billed_until_at = lease.billed_until_at or lease.launched_at or lease.requested_at
        begins_at = max(now, lease.ready_at or expected_ready_at(lease, now)) + boots_s
        moves = placement.moves
        limit_s = (placement.max_duration_s or 0.0) + self._records.spec(placement.spec_hash).grace_s
        limit_s += moves.seconds if moves else 0.0
        ends_at = begins_at + limit_s + self._observer.slack_s + offer.teardown_s
        worst_usd = lease.billed_usd + offer.price_usd_h * (ends_at - billed_until_at) / 3600
        committed_usd = max(lease.committed_usd, worst_usd)
        egress_usd = lease.egress_usd + (moves.usd if moves and counts_data else 0.0)
        changes.put(
            msgspec.structs.replace(
                lease,
                committed_usd=committed_usd,
                egress_usd=egress_usd,
                idle_since_at=None,
                kept_because="",
            )
        )

    def _rent(self, changes: Changes, plan: Plan, action: Rent, job: Job, snapshot: Snapshot) -> str:
        offer = offer_of(snapshot, action)
        if offer is None:
            return "the offer is gone"
        warm = warm_machines(self._records, changes, plan, action, job, snapshot)
        new = [self._lease(job, plan, action, offer, number) for number in range(len(warm), action.machines)]
        leases = [*warm, *new]
        placement = self._placement(job, self._records.spec(job.spec_hash), plan, action)
        members = _filled(placement, offer, [lease.member for lease in leases])
        parts = parts_of(members)
        placement = msgspec.structs.replace(
            placement,
            members=members,
            parts=parts,
            order=Order.RESERVE if parts else Order.RUN,
            pool=offer.pool,
            market=offer.market,
            lease=leases[0].id,
            leases=tuple(lease.id for lease in leases) if parts else (),
            assembling=bool(parts),
            price_usd_gpu_h=offer.price_usd_h / max(1, offer.gpus),
            model=offer.model,
        )
        if warm:
            action = _with_warm(action, len(warm))
        placement = msgspec.structs.replace(placement, because=action.because, reason=action.reason)
        changes.put(*new, placement)
        job_then = self._told(self._free_to_change(with_approval_spent(job)), placement)
        self._event_writer.place(changes, job_then, placement, reason_of(action))
        if new:
            changes.put(self._rented(new, job, action))
        for number, lease in enumerate(warm):
            self._extend(
                changes, lease, placement, boots_s=offer.delay_s if new else 0.0, counts_data=not number
            )
        return ""

    def _rented(self, new: Sequence[Lease], job: Job, action: Rent) -> LedgerEntry:
        """One line for all machines of a gang: with a line for each, it could be only half as large."""
        lease, offer = new[0], new[0].offer
        count = f"{len(new)} × " if len(new) > 1 else ""
        return self._event_writer.ledger(
            LedgerKind.ACT,
            "dispatcher",
            f"rent {count}{offer.name}",
            reason=action.reason,
            job=job.id,
            queue=job.queue,
            owner=job.owner,
            site=lease.site,
            lease=lease.id,
            market=offer.market,
            model=offer.model,
        )

    def _lease(self, job: Job, plan: Plan, action: Rent, offer: Offer, number: int) -> Lease:
        """One of the machines: what all may cost is shared evenly; data that is moved counts with the first."""
        return Lease(
            id=self._event_writer.ids.new("lease"),
            provider=action.provider,
            site=action.site,
            offer=offer,
            status=LeaseStatus.REQUESTED,
            requested_at=self._event_writer.clock.now(),
            because=action.because,
            reason=action.reason,
            evidence=msgspec.structs.replace(action.evidence, decision=plan.decision),
            queue=job.queue,
            owner=job.owner,
            policy=action.evidence.policy,
            committed_usd=action.committed_usd / action.machines,
            egress_usd=action.moves.usd if action.moves and not number else 0.0,
        )

    def _placement(self, job: Job, spec: JobSpec, plan: Plan, action: Place | Rent) -> Placement:
        parts = parts_of(action.members) if isinstance(action, Place) else ()
        return placement_of(
            job,
            spec,
            action.form if job.form is None else job.form,
            id=self._event_writer.ids.new("pl"),
            epoch=job.epoch + 1,
            site=action.site,
            pool="",
            members=(),
            market=Market.OWNED,
            order=Order.RESERVE if parts else Order.RUN,
            parts=parts,
            assigned_at=self._event_writer.clock.now(),
            expected_end_at=action.expected_end_at,
            decision=plan.decision,
            winner=plan.winner,
            winner_because=plan.winner_because,
            winner_reason=plan.winner_reason,
            because=action.because,
            reason=action.reason,
            moves=action.moves,
        )

    def _preempt(self, changes: Changes, action: Preempt, job: Job) -> str:
        placement = self._records.placements.get(action.placement)
        if (
            placement is None
            or placement.ended
            or job.placement != placement.id
            or not allows(job.status, "suspend")
        ):
            return "the placement is over or being stopped"
        reserved = placement.order is Order.RESERVE
        at = self._event_writer.clock.now()
        self._event_writer.stop(changes, placement, reason_of(action), sent=not reserved)
        why: dict[str, Any] = {"pause_for": "preemption"}
        if action.form is not None:
            why = {"pause_for": "resize", "form": self._kept_to(placement, action.form)}
        job = self._event_writer.job(changes, job, "suspend", reason_of(action), displaced_at=at, **why)
        if reserved:
            self._event_writer.job(changes, job, "paused", reason_of(action), placement=None, pause_for=None)
        return ""

    def _told(self, job: Job, placement: Placement) -> Job:
        return with_first_forecast(self._observer.jobs, job, placement, self._event_writer.clock.now())

    def _free_to_change(self, job: Job) -> Job:
        """An elastic job was kept to a form for this one start."""
        elastic = job.form is not None and self._records.spec(job.spec_hash).elastic
        return msgspec.structs.replace(job, form=None) if elastic else job

    def _kept_to(self, placement: Placement, form: int) -> int | None:
        """One that gives something up is kept to that: what it gives up is for another. One that grows may do so as it can, once it is to start again."""
        spec = self._records.spec(placement.spec_hash).as_form(form)
        gpus = spec.resources.gpus.each
        smaller = spec.nodes <= placement.nodes and gpus <= placement.gpus_per_node
        return form if smaller else None


class _Attempt:
    """The actions of one plan, known by their numbers, on their way into transactions."""

    def __init__(
        self,
        observer: Observer,
        plan: Plan,
        write: Callable[[Changes, Plan, Action, Snapshot], str],
    ) -> None:
        self._observer = observer
        self._plan = plan
        self._write = write
        self._snapshot: Snapshot
        self._faults: dict[str, str] = {}
        self.stale: dict[int, str] = {}
        """Why an action no longer holds, by its number."""

    def look(self, numbers: Sequence[int]) -> None:
        """Test these actions against the present, together."""
        actions = tuple(self._plan.actions[number] for number in numbers)
        self._snapshot = self._observer.snapshot(only=_named(actions))
        part = msgspec.structs.replace(self._plan, actions=actions, waiting=())
        problem = Problem(snapshot=self._snapshot, decision=self._plan.decision)
        self._faults = fatal_by_subject(check_actions(problem, part))

    def write(self, changes: Changes, number: int) -> None:
        """Add the action's rows, or note why it is stale."""
        action = self._plan.actions[number]
        fault = self._faults.get(action.job) or self._write(changes, self._plan, action, self._snapshot)
        self.stale.pop(number, None)
        if fault:
            self.stale[number] = fault


def _with_warm(action: Rent, count: int) -> Rent:
    """Of its machines so many are rented already."""
    if not isinstance(action.reason, Rents):
        return action
    return msgspec.structs.replace(action, reason=msgspec.structs.replace(action.reason, warm=count))


def _filled(placement: Placement, offer: Offer, machines: Sequence[str]) -> tuple[str, ...]:
    """Which of these machines each rank is on: each as full as it goes, one after the other."""
    whole = Shape(offer.gpus_to_plan, offer.cpus_milli, offer.memory_mib)
    each = whole.holds(placement.gpus_per_node, placement.cpus_milli, placement.memory_mib)
    each = 1 if len(machines) == placement.nodes else each  # as many as ranks, where each is to be apart
    return tuple(machines[min(rank // each, len(machines) - 1)] for rank in range(placement.nodes))


def _of_ranks(members: tuple[str, ...], placement: Placement) -> tuple[str, ...]:
    """The member of each rank; a plan has one for all that are to be on one host."""
    return members * (placement.nodes if len(members) == 1 else 1)


def _in_order(members: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    """Hosts of before in the same order, so that each rank finds what it saved, and then new ones: to a plan their order is all one."""
    new = list(members)
    known = []
    for name in before:
        if name in new:
            new.remove(name)
            known.append(name)
    return (*known, *new)


def _named(actions: Sequence[Action]) -> set[str]:
    """All jobs that the actions are about."""
    return {action.job for action in actions} | {a.beneficiary for a in actions if isinstance(a, Preempt)}


def fatal_by_subject(findings: Sequence[Finding]) -> dict[str, str]:
    """The fatal findings, by the job whose action is at fault."""
    return {finding.subject: finding.text for finding in findings if finding.severity is Severity.FATAL}

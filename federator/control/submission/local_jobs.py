"""Local jobs: what a site has admitted by itself while it was cut off becomes jobs like all others, each exactly once.

An agent says each until it is told that it is durable here, so this is idempotent by the ids, which are random ones of the agent's. Nothing that ran is
left out: what should not have been admitted is recorded, too, with the reason, and its site is told to stop it; what it has used counts.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from federator.control.administration.authority import Authority, Right
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records, Spec
from federator.control.reports.inventory import Inventory
from federator.control.submission.expansion import put_new
from federator.kernel.errors import FederatorError
from federator.kernel.ids import made_at
from federator.model.allotments import Allotment, AllotmentRule, LocalJob
from federator.model.events import LedgerKind
from federator.model.identity import Caller, Role
from federator.model.jobs import Checkpoint, Job, JobSpec, JobStatus
from federator.model.lifecycle import allows
from federator.model.placements import Order, Placement, placement_of
from federator.model.rules import PolicyRule
from federator.model.sites import Member
from federator.wire.fields import NAME
from federator.wire.jsontext import read

MOST_A_DAY = 2000
"""Jobs that are taken over from one member in 24 hours; what there is beyond waits at its site."""
DAY_S = 86_400.0
LONGEST_S = 3650 * DAY_S
OLDEST_S = 90 * DAY_S
"""What is said to be older counts as of that time."""
MOST_NODES = 1024
log = logging.getLogger(__name__)


class LocalJobIntake:
    """Takes over what agents have admitted."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        inventory: Inventory,
        authority: Callable[[], Authority],
    ) -> None:
        self._records = records
        self._event_writer = event_writer
        self._inventory = inventory
        self._authority = authority
        self._rules: tuple[PolicyRule, ...] = ()
        self._allotments: tuple[AllotmentRule, ...] = ()
        self._taken: defaultdict[str, deque[float]] = defaultdict(deque)
        """When jobs were taken over from each member, within a day."""

    def allotments(self, member: str) -> tuple[Allotment, ...]:
        """What the member's site may admit, by the policies in force."""
        rules, known = self._records.policies.rules, self._records.members.get(member)
        if rules is not self._rules:
            self._rules = rules
            self._allotments = tuple(rule for rule in rules if isinstance(rule, AllotmentRule))
        of_site = known.site if known is not None else ""
        return tuple(rule.allotment for rule in self._allotments if of_site in rule.sites)

    async def adopt(self, member: str, jobs: Sequence[LocalJob]) -> tuple[str, ...]:
        """Make these jobs durable; the placements that the agent need not tell of again."""
        adopted = []
        for job in jobs:
            if not self._is_there(member, job) and not self._has_room(member):
                log.warning("%s has more local jobs than %d a day; the rest wait there", member, MOST_A_DAY)
                break
            await self._records.transact(partial(self._rows, member, job))
            adopted.append(job.placement)
        return tuple(adopted)

    def _has_room(self, member: str) -> bool:
        now, taken = self._event_writer.clock.now(), self._taken[member]
        while taken and taken[0] <= now - DAY_S:
            taken.popleft()
        if len(taken) >= MOST_A_DAY:
            return False
        taken.append(now)
        return True

    def _is_there(self, member: str, local: LocalJob) -> bool:
        """Whether it is a job already by that member's own word: what was planned has a decision, and its site has no say in it."""
        placement, job = self._records.placements.get(local.placement), self._records.jobs.get(local.job)
        return (
            placement is not None
            and job is not None
            and placement.job == job.id
            and member in placement.members
            and not placement.decision
            and (placement.spec_hash, job.owner) == (local.spec_hash, local.owner)
        )

    def _rows(self, member: str, local: LocalJob) -> Changes:
        """What is written of one; nothing where it is there already, but for its cancellation."""
        changes, records = Changes(), self._records
        placement, job = records.placements.get(local.placement), records.jobs.get(local.job)
        if self._is_there(member, local):
            assert placement is not None
            assert job is not None
            if local.cancelled_by and job.placement == placement.id:
                self._cancel(changes, job, placement, _cancelled(local))
            return changes
        if placement is not None or job is not None:
            return self._lost(member, local, "a job or a placement of another has its id")
        if made_at(local.job) > self._event_writer.clock.now() + DAY_S:
            return self._lost(member, local, "its id is of tomorrow: the site's clock is wrong")
        try:
            spec = read(local.spec.encode(), JobSpec)
        except (msgspec.MsgspecError, FederatorError) as error:
            return self._lost(member, local, f"its spec cannot be read: {error}")
        if not _is_sound(spec):
            return self._lost(member, local, "its spec has values that no job file may have")
        self._adopt(changes, records.members[member], local, spec)
        return changes

    def _lost(self, member: str, local: LocalJob, why: str) -> Changes:
        """It cannot become a job: the ledger has it, and it is not asked for again."""
        changes = Changes()
        text = f"{member} has run {local.job} by itself, and it cannot be a job: {why}"
        log.warning("%s", text)
        entry = self._event_writer.ledger(
            LedgerKind.LOSS, f"agent:{member}", text, queue=local.queue, owner=local.owner
        )
        changes.put(entry)
        return changes

    def _adopt(self, changes: Changes, host: Member, local: LocalJob, spec: JobSpec) -> None:
        """The job, its placement, and that it was so. Its site then tells how far it is."""
        right, refused = self._right(host, local, spec)
        job = _job(local, spec, right, self._event_writer.clock.now())
        digest = job.spec_hash
        if self._records.has_spec(digest):
            changes.relies_on.append(f"spec/{digest}")
        else:
            changes.put(Spec(digest, local.spec.encode()))
        placement = self._placement(job, spec, host, local)
        put_new(changes, self._event_writer, job)
        changes.put(placement)
        self._event_writer.act(
            changes,
            f"agent:{host.id}",
            f"admitted {job.name} by itself while cut off ({local.allotment})",
            job=job.id,
            queue=job.queue,
            owner=job.owner,
            site=host.site,
        )
        job = self._event_writer.place(changes, job, placement, placement.because)
        if refused or local.cancelled_by:
            self._cancel(changes, job, placement, refused or _cancelled(local))

    def _right(self, host: Member, local: LocalJob, spec: JobSpec) -> tuple[Right, str]:
        """The right by which it is admitted, and why it should not have been; empty: it was right to."""
        right = Right(queue=local.queue, rent=False, max_priority=0)
        allotment = next((each for each in self.allotments(host.id) if each.policy == local.allotment), None)
        if allotment is None:
            return right, f"{host.site} has no allotment {local.allotment}"
        if local.queue != allotment.queue or local.owner not in allotment.users:
            return right, f"{local.allotment} is not for {local.owner} in queue {local.queue}"
        if local.max_duration_s > allotment.max_duration_s:
            return right, f"it may run for longer than {local.allotment} lets it"
        if spec.gpus_total * local.max_duration_s / 3600 > allotment.gpu_h:
            return right, f"it may take more GPU-hours than {local.allotment} has for a day"
        if spec.stop_within_s or spec.inputs or spec.workdir or spec.forms or spec.inputs_from:
            return right, "it asks for what a site that is cut off does not admit"
        try:
            rights = self._authority().rights(Caller(local.owner, Role.USER), local.queue)
        except FederatorError as error:
            return right, error.message
        most = min(rights[0].max_priority, allotment.max_priority)
        return msgspec.structs.replace(rights[0], max_priority=most), ""

    def _cancel(self, changes: Changes, job: Job, placement: Placement, because: str) -> None:
        if not allows(job.status, "cancel") or placement.order is Order.STOP:
            return
        if not placement.ended:
            self._event_writer.stop(changes, placement, because, sent=True)
        self._event_writer.job(changes, job, "cancel", because)

    def _placement(self, job: Job, spec: JobSpec, host: Member, local: LocalJob) -> Placement:
        """The attempt as if it had been planned, before its site has said how far it is."""
        heard = self._inventory.members.get(host.id)
        report, site = heard.report if heard is not None else None, self._records.sites.get(host.site)
        pool = next((pool for pool in report.pools if pool.name == local.pool), None) if report else None
        said_usd = report.price_usd_gpu_h if report is not None else None
        return placement_of(
            job,
            spec,
            id=local.placement,
            epoch=1,
            site=host.site,
            pool=local.pool,
            members=(host.id,) * spec.nodes,
            market=host.market,
            lease=host.lease,
            model=pool.model if pool is not None else "",
            price_usd_gpu_h=said_usd if said_usd is not None else site.price_usd_gpu_h if site else 0.0,
            assigned_at=job.submitted_at,
            because=f"{host.site} has admitted it by itself while it was cut off",
        )


def _is_sound(spec: JobSpec) -> bool:
    """Whether the numbers are such as a job file may have: an agent's word is not read from one, and plans reckon with them."""
    needs, checkpoint, gpus = spec.resources, spec.checkpoint or Checkpoint(), spec.resources.gpus
    ranges = (
        (spec.nodes, 1, MOST_NODES),
        (gpus.count, 0, 1024),
        (gpus.share_milli or 0, 0, 1000),
        (needs.cpus_milli, 0, 10**8),
        (needs.memory_mib, 0, 2**30),
        (needs.shm_mib, 0, 2**30),
        (spec.estimate_s or 1.0, 0.001, LONGEST_S),
        (checkpoint.grace_s, 0, DAY_S),
        (spec.retry.max, 0, 1000),
        (spec.retry.backoff_s, 0, DAY_S),
        *((speed, 0.001, 1000) for speed in spec.speed.values()),
    )
    return bool(NAME.fullmatch(spec.name)) and all(low <= value <= high for value, low, high in ranges)


def _cancelled(local: LocalJob) -> str:
    return f"cancelled by {local.cancelled_by} at its site"


def _job(local: LocalJob, spec: JobSpec, right: Right, now: float) -> Job:
    return Job(
        id=local.job,
        name=spec.name,
        owner=local.owner,
        queue=local.queue,
        status=JobStatus.PENDING,
        spec_hash=local.spec_hash,
        submitted_at=min(max(local.submitted_at, now - OLDEST_S), now),
        team=right.team,
        may_rent=False,  # an allotment has no money: also where it is lost, and waits for another place
        priority=min(local.priority, right.max_priority),
        max_duration_s=local.max_duration_s,
    )

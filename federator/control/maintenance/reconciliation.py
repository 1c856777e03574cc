"""After a store was restored and adopted: first everybody is heard, then anything is done.

A restored store is older than the world. Jobs that wait in it may run, attempts that run in it may be over, machines may be rented that it does not
know. So nothing is placed, stopped, rented, ended or dropped until each member has reported in full, or it or its site has been declared dead:

- What a member does not have any more of what the store says it had is lost, and its job waits again.
- What it has and the store does not know is adopted, if the store knows the job. If not, it is left alone and ends by itself.
- Machines that carry our tag and no lease are spared from then on: a person ends them.

Only then are members told their desired sets, and the loops begin. The phase outlives a restart: it is a flag in the store.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from functools import partial

from msgspec.structs import replace

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Flag, Records
from federator.control.reports import gangs
from federator.control.reports.inventory import Inventory
from federator.control.reports.statuses import StatusHandler
from federator.kernel.errors import FederatorError
from federator.model.capacity import LEASE_ENDED, InstanceStatus
from federator.model.events import LedgerKind
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.model.placements import (
    PLACEMENT_ENDED,
    Cause,
    Placement,
    PlacementReport,
    placement_of,
)
from federator.model.sites import Member, SiteStatus
from federator.ports import Provider

FLAG = "reconciling"
SPARED = "spared-"
"""With an instance's name: the flag that keeps the sweeper from ending it."""
LOOK_S = 0.2
SAY_S = 30.0
log = logging.getLogger(__name__)


class Reconciliation:
    """The phase. `on` says whether it lasts. It hears what agents say ahead of `StatusHandler`."""

    def __init__(
        self,
        records: Records,
        event_writer: EventWriter,
        inventory: Inventory,
        progress: StatusHandler,
        providers: Mapping[str, Provider],
        federation: str,
    ) -> None:
        self._records = records
        self._event_writer = event_writer
        self._inventory = inventory
        self._progress = progress
        self._providers = providers
        self._federation = federation
        self._compared: set[str] = set()
        self._foreign: set[str] = set()
        """Attempts of jobs that the store does not know."""
        self._gangs: dict[str, dict[str, PlacementReport]] = {}
        """What each member has said of its part of a gang that the store does not know, by attempt."""
        self._dead: set[tuple[str, str]] = set()
        """Sites, with no member, and members of sites."""

    @property
    def on(self) -> bool:
        """Whether the store was adopted and not everybody has been heard since."""
        flag = self._records.flags.get(FLAG)
        return flag is not None and flag.on

    def declared_dead(self, site: str, member: str = "") -> None:
        """Nothing of this site, or of that member of it, is waited for any more: a person has sworn that nothing runs there."""
        self._dead.add((site, member))

    async def absorb(self, member: str, reports: tuple[PlacementReport, ...]) -> int:
        """As `StatusHandler`; what it would not know is adopted first."""
        if self.on:
            for report in reports:
                await self._adopt(member, report)
            known = self._records.placements
            # What was over before, of jobs that are dropped or went on: nothing comes of it, and it is not waited for.
            past = {r.placement for r in reports if r.status in PLACEMENT_ENDED and r.placement not in known}
            self._foreign |= past - self._gangs.keys()
            await self._progress.absorb(member, tuple(r for r in reports if r.placement not in past))
            return max((report.seq for report in reports), default=0)
        return await self._progress.absorb(member, reports)

    async def rebooted(self, member: str, known: Collection[str]) -> None:
        """As `StatusHandler`."""
        await self._progress.rebooted(member, known)

    async def finish(self) -> None:
        """Return when everybody has been heard and what they said is in the records."""
        loop = asyncio.get_running_loop()
        said_s = -SAY_S
        while waiting := await self._waiting():
            if loop.time() - said_s >= SAY_S:
                log.warning(
                    "reconciling: nothing is started or stopped before this is known: %s", "; ".join(waiting)
                )
                said_s = loop.time()
            await asyncio.sleep(LOOK_S)
        await self._spare_instances()
        await self._records.transact(partial(self._over, "all sites have reported"))
        log.info("reconciled")

    async def _waiting(self) -> list[str]:
        """What is still to be known. Members that have reported are compared with the records on the way."""
        waiting = []
        halves: set[str] = set()
        for member in tuple(self._records.members.values()):
            dead = {(member.site, ""), (member.site, member.id)} & self._dead
            if member.status is SiteStatus.GONE or dead or self._given_back(member.lease):
                continue
            heard = self._inventory.members.get(member.id)
            if heard is None or heard.report is None or not heard.session:
                waiting.append(f"what runs at {member.id}")
                continue
            if member.id not in self._compared:
                await self._miss(member.id, heard.report.counted)
                self._compared.add(member.id)
            unknown = set(heard.report.counted) - self._records.placements.keys() - self._foreign
            halves |= unknown & self._gangs.keys()
            if unknown - halves:
                waiting.append(f"which jobs {', '.join(sorted(unknown)[:3])} at {member.id} are of")
        if not waiting:
            for name in sorted(halves):
                await self._adopt_gang(name)
        return waiting

    def _given_back(self, lease: str | None) -> bool:
        known = self._records.leases.get(lease or "")
        return known is not None and known.status in LEASE_ENDED

    async def _miss(self, member: str, counted: Collection[str]) -> None:
        """Lose what the store says that the member has, and it has not. Were it told of it, it would begin that anew."""
        for placement in tuple(self._records.open_placements.values()):
            if member in placement.members and not placement.ended and placement.id not in counted:
                proof = f"{member} does not have it any more; the store is older than its end"
                alone = bool(placement.parts) or set(placement.members) == {member}
                await self._progress.lose(
                    placement.id, proof, acknowledged=alone, cause=Cause.CUT_OFF, member=member
                )

    async def _adopt(self, member: str, report: PlacementReport) -> None:
        """Make an attempt known that the store has forgotten. It was made after the one that the store has, which is over therefore."""
        if not report.job or report.placement in self._records.placements:
            return
        job = self._records.jobs.get(report.job)
        if job is None:
            if report.status not in PLACEMENT_ENDED:
                log.warning(
                    "%s runs %s of %s, which the store does not know", member, report.placement, report.job
                )
            self._foreign.add(report.placement)
            return
        former = self._records.placements.get(job.placement or "")
        if former is not None and not former.ended and former.epoch < report.epoch:
            proof = f"{member} has a later attempt, which was only made when this one was over"
            await self._progress.lose(former.id, proof, acknowledged=True, cause=Cause.CUT_OFF)
        nodes = self._records.spec(job.spec_hash).nodes
        if nodes in (1, len(report.ranks)):
            await self._records.transact(partial(self._adopted, member, report))
            return
        parts = self._gangs.setdefault(report.placement, {})
        if report.ranks:
            parts[member] = report
        if sum(len(part.ranks) for part in parts.values()) == nodes:
            await self._adopt_gang(report.placement)

    async def _adopt_gang(self, name: str) -> None:
        """A gang over several members: all of its parts that there are. What they said before it was known is heard again."""
        parts = self._gangs.pop(name)
        self._foreign.add(name)  # should the job not take it, it is not waited for
        if not parts:
            return
        member = min(parts, key=lambda member: min((r.rank for r in parts[member].ranks), default=0))
        await self._records.transact(partial(self._adopted, member, parts[member], parts))
        for each, report in parts.items():
            await self._progress.absorb(each, (report,))

    def _adopted(
        self, member: str, report: PlacementReport, parts: Mapping[str, PlacementReport] | None = None
    ) -> Changes:
        changes, records = Changes(), self._records
        job, host = records.jobs[report.job], records.members[member]
        spec = records.spec(job.spec_hash)
        if job.status not in (JobStatus.PENDING, JobStatus.HELD) or report.epoch <= job.epoch:
            return changes
        because = f"found at {member}: the restored store is older than this attempt"
        if job.status is JobStatus.HELD:
            job = self._event_writer.job(changes, job, "release", because)
        placement = _placement(job, spec, host, report, because)
        if parts is not None:
            placement = gangs.found(placement, parts)
            rented = (records.members[each].lease for each in dict.fromkeys(placement.members))
            leases = tuple(lease for lease in rented if lease)
            placement = replace(placement, leases=leases if len(leases) > 1 else ())
        changes.put(placement)
        self._event_writer.place(changes, job, placement, because)
        return changes

    async def _spare_instances(self) -> None:
        for name, provider in self._providers.items():
            try:
                instances = await provider.instances(self._federation)
            except FederatorError as error:
                log.warning("provider %s: %s; its machines that no lease knows are not spared", name, error)
                continue
            for instance in instances:
                if instance.status is not InstanceStatus.ENDED and instance.name not in self._records.leases:
                    log.error("instance %s at %s belongs to no lease: end it by hand", instance.name, name)
                    await self._records.transact(partial(self._spared, name, instance.name))

    def _spared(self, provider: str, instance: str) -> Changes:
        changes = Changes()
        changes.put(Flag(SPARED + instance, on=True, who="reconciling", at=self._event_writer.clock.now()))
        text = f"instance {instance} at {provider} belongs to no lease of the restored store: end it by hand"
        changes.put(self._event_writer.ledger(LedgerKind.LOSS, "reconciling", text))
        return changes

    def _over(self, why: str) -> Changes:
        changes = Changes()
        changes.put(Flag(FLAG, on=False, who=why, at=self._event_writer.clock.now()))
        self._event_writer.act(changes, "dispatcher", f"reconciled with the sites: {why}")
        return changes


def _placement(job: Job, spec: JobSpec, host: Member, report: PlacementReport, because: str) -> Placement:
    """The attempt as the store would have it, before its site has said how far it is."""
    return placement_of(
        job,
        spec,
        report.form,
        id=report.placement,
        epoch=report.epoch,
        site=host.site,
        pool=report.pool,
        members=(host.id,) * spec.as_form(report.form).nodes,
        market=host.market,
        lease=host.lease,
        assigned_at=report.started_at or report.at,
        because=because,
    )

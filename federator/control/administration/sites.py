"""What people do to sites: drain them, take them back, and declare them dead."""

from collections.abc import Callable
from functools import partial

import msgspec

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records, row_key
from federator.control.reports.gangs import acknowledge, unproven
from federator.control.reports.inventory import Inventory
from federator.control.reports.statuses import StatusHandler
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from federator.kernel.quantities import format_instant
from federator.model.identity import Caller, Role
from federator.model.jobs import Job
from federator.model.lifecycle import advance, allows
from federator.model.placements import Order, Placement
from federator.model.sites import REVOKED_KEY, Site, SiteStatus
from federator.wire.fields import moment_at

TOGETHER = 40
"""Jobs per transaction: two rows each, and stores take some 120 operations at once."""


class Sites:
    """Verbs on sites. A site-admin has them for one site, an admin for all."""

    def __init__(
        self, records: Records, event_writer: EventWriter, inventory: Inventory, progress: StatusHandler
    ) -> None:
        self._records = records
        self._event_writer = event_writer
        self._inventory = inventory
        self._progress = progress

    async def drain(self, caller: Caller, name: str, *, by: str = "", why: str = "") -> Site:
        """Let nothing new start there; what runs goes on, or with `by` (a duration or an instant) until then.

        Drained again, the new deadline counts: none, where none is given.
        """
        self.allow(caller, name)
        now = self._event_writer.clock.now()
        by_at = moment_at(by, "$.by", now=now) if by else None
        because = f"{name} is drained by {caller.name}" + (f": {why}" if why else "")
        until = f" by {format_instant(by_at)}" if by_at is not None else ""

        def compute() -> Changes:
            changes = Changes()
            site = self._site(name)
            new = msgspec.structs.replace(
                site, draining=True, status=_after(site, "drain"), drain_by_at=by_at, drain_because=because
            )
            if new != site:
                changes.put(new)
                self._event_writer.act(
                    changes, f"user:{caller.name}", f"drain{until}" + (f": {why}" if why else ""), site=name
                )
            return changes

        await self._records.transact(compute)
        return self._site(name)

    def drain_moment(self, caller: Caller, name: str, by: str) -> float | None:
        """What `by` of a drain means now, for who may drain. Raises as `drain` does."""
        self.allow(caller, name)
        self._site(name)
        return moment_at(by, "$.by", now=self._event_writer.clock.now()) if by else None

    async def undrain(self, caller: Caller, name: str) -> Site:
        """Let work start there again; what was not told to leave yet stays."""
        self.allow(caller, name)

        def compute() -> Changes:
            changes = Changes()
            site = self._site(name)
            if site.draining:
                changes.put(
                    msgspec.structs.replace(
                        site,
                        draining=False,
                        status=_after(site, "undrain"),
                        drain_by_at=None,
                        drain_because="",
                    )
                )
                self._event_writer.act(changes, f"user:{caller.name}", "undrain", site=name)
            return changes

        await self._records.transact(compute)
        return self._site(name)

    async def evict(
        self, caller: Caller, name: str, *, job: str = "", by: str = "", why: str = ""
    ) -> list[Job]:
        """Have one job leave the site, or all of them: each saves itself, stops, and waits for another place.

        `by`: a duration or an instant by which they have to be gone; without it they are told at once, with the grace that each asks for.
        The next turn tells them (`federator.control.turns.closings`). Returns the jobs that leave. Raises `Invalid` without a reason, `NotFound`
        where the job does not run there.
        """
        self.allow(caller, name)
        self._site(name)
        if not why.strip():
            raise Invalid("is missing", field="$.why", remedy="say why; the jobs' owners are told")
        now = self._event_writer.clock.now()
        by_at = moment_at(by, "$.by", now=now) if by else None
        because = f"evicted from {name} by {caller.name}: {why}"
        open_ = self._records.open_placements
        named = [each.id for each in open_.values() if self._runs_at(each, name, job)]
        if job and not named:
            raise NotFound(
                f"{job} does not run at {name}", remedy=f"federator list --site {name} shows what does"
            )
        told: list[Job] = []

        def compute(names: list[str]) -> Changes:
            changes = Changes()
            here = [open_[each] for each in names if each in open_ and self._runs_at(open_[each], name, job)]
            for placement in here:
                grace_s = self._records.spec(placement.spec_hash).grace_s
                leave_by_at = now + grace_s if by_at is None else by_at
                changes.put(
                    msgspec.structs.replace(placement, leave_by_at=leave_by_at, leave_because=because)
                )
                told.append(self._records.jobs[placement.job])
            if here:
                what = f"evict {len(here)} jobs: {why}" if len(here) > 1 else f"evict: {why}"
                one = {"job": here[0].job} if len(here) == 1 else {}
                self._event_writer.act(changes, f"user:{caller.name}", what, site=name, **one)
            return changes

        for start in range(0, len(named), TOGETHER):
            await self._records.transact(partial(compute, named[start : start + TOGETHER]))
        return told

    def _runs_at(self, placement: Placement, name: str, job: str) -> bool:
        """Whether a placement is at the site, of that job if one is named, and can still be told to leave."""
        known = self._records.jobs.get(placement.job)
        return (
            placement.site == name
            and not placement.ended
            and placement.order is not Order.STOP
            and known is not None
            and known.placement == placement.id
            and (not job or placement.job == job)
        )

    async def declare_dead(self, caller: Caller, name: str, reason: str, *, member: str = "") -> list[str]:
        """An operator's word that nothing of the federation runs at the site any more, or at one of its members: what was there is over.

        Jobs may start elsewhere; a gang that has ranks at other members too, once those are over. What jobs saved there is gone. Refused while the site, or that member,
        is connected, or comes back before all is given up: then it can answer for itself. Returns the placements given up. Should it come back, its copies are told to stop.
        """
        self.allow(caller, name)
        if not reason.strip():
            raise Invalid(
                "a reason is needed", field="$.reason", remedy="say how you know that nothing runs there"
            )
        check = partial(self._check_away, name, member)

        def compute() -> Changes:
            check()
            changes = Changes()
            what = f"declare {member} dead: {reason}" if member else f"declare dead: {reason}"
            self._event_writer.act(changes, f"user:{caller.name}", what, site=name)
            return changes

        await self._records.transact(compute)
        given_up = [
            placement.id
            for placement in self._records.open_placements.values()
            if placement.site == name
            and not placement.ended
            and (not member or member in unproven(placement))
        ]
        for placement in given_up:
            proof = f"{caller.name} declared {member or name} dead: {reason}"
            await self._progress.lose(
                placement, proof, acknowledged=False, member=member or None, check=check
            )
        await self._forget_checkpoints(name, member, "declared dead", check)
        dead = self._members(self._site(name), member)
        for start in range(0, len(dead), TOGETHER):
            await self._records.transact(partial(self._marked, dead[start : start + TOGETHER], check))
        return given_up

    async def remove(self, caller: Caller, name: str, *, member: str = "") -> None:
        """Forget a site that is gone for good, with its members; or one of them. Raises `Conflict` while it is connected, or something of ours may run there."""
        caller.require(Role.ADMIN)
        check = partial(self._check_over, name, member)
        check()
        gone = self._members(self._site(name), member)
        await self._forget_checkpoints(name, member, "removed", check)
        await self._answer_for(name, member, check)
        for start in range(0, 0 if member else len(gone), TOGETHER):
            await self._records.transact(partial(self._drop, gone[start : start + TOGETHER], check))

        def compute() -> Changes:
            changes = self._drop([member] if member else [], check)
            changes.deletes += [] if member else [row_key(self._site(name))]
            what = f"remove {member}" if member else "remove site"
            self._event_writer.act(changes, f"user:{caller.name}", what, site=name)
            return changes

        await self._records.transact(compute)
        for each in gone:
            self._inventory.forget(each)

    async def revoke(self, caller: Caller, name: str, member: str) -> None:
        """Revoke the member's key. What runs there goes on, and counts, until it is declared dead or its host joins again."""
        self.allow(caller, name)

        def compute() -> Changes:
            changes = Changes()
            (known,) = self._members(self._site(name), member)
            changes.put(msgspec.structs.replace(self._records.members[known], public_key=REVOKED_KEY))
            self._event_writer.act(changes, f"user:{caller.name}", f"revoke the key of {member}", site=name)
            return changes

        await self._records.transact(compute)

    async def trust(self, caller: Caller, name: str, member: str) -> None:
        """An admin has looked: the agent that holds the member's session is the right one, and the site takes work there again."""
        self.allow(caller, name)

        def compute() -> Changes:
            changes = Changes()
            (known,) = self._members(self._site(name), member)
            row = self._records.members[known]
            if row.contested:
                changes.put(msgspec.structs.replace(row, contested=""))
                self._event_writer.act(changes, f"user:{caller.name}", f"trust {member} again", site=name)
            return changes

        await self._records.transact(compute)

    def _drop(self, members: list[str], check: Callable[[], None]) -> Changes:
        """Without these members."""
        check()
        known = self._records.members
        return Changes(deletes=[row_key(known[each]) for each in members if each in known])

    async def _answer_for(self, name: str, member: str, check: Callable[[], None]) -> None:
        """Nobody is left to say that what was given up there is over: so it need not be told to stop any more."""
        open_ = self._records.open_placements
        owed = [
            each.id for each in open_.values() if each.site == name and (not member or member in each.members)
        ]

        def compute(names: list[str]) -> Changes:
            check()
            changes = Changes()
            for placement in (open_.get(each) for each in names):
                if placement is not None and member and placement.parts:
                    changes.put(acknowledge(placement, member).placement)
                elif placement is not None:
                    changes.put(msgspec.structs.replace(placement, stop_acknowledged=True))
            return changes

        for start in range(0, len(owed), TOGETHER):
            await self._records.transact(partial(compute, owed[start : start + TOGETHER]))

    async def _forget_checkpoints(self, name: str, member: str, how: str, check: Callable[[], None]) -> None:
        """Jobs that wait to go on from what they saved there start from the beginning, wherever there is room: nobody else has it."""
        jobs = [job.id for job in self._records.open_jobs.values() if self._saved_at(job, name, member)]
        because = (
            f"what it had saved is gone with {member or name}, which was {how}: it starts from the beginning"
        )

        def compute(names: list[str]) -> Changes:
            check()
            changes = Changes()
            for job in (self._records.open_jobs.get(each) for each in names):
                if job is not None and self._saved_at(job, name, member):
                    freed = msgspec.structs.replace(
                        job, resume_site=None, resume_members=(), saved_s=0.0, form=None
                    )
                    changes.put(freed, self._event_writer.event(freed, "checkpoint-lost", because, site=name))
            return changes

        for start in range(0, len(jobs), TOGETHER):
            await self._records.transact(partial(compute, jobs[start : start + TOGETHER]))

    def _saved_at(self, job: Job, name: str, member: str) -> bool:
        """Whether what the job goes on from is at the site or, where one is meant, at that member of it."""
        if job.resume_site != name:
            return False
        if not member or member in job.resume_members:
            return True
        members = self._records.members.values()
        return not any(m.site == name and m.id != member and m.status is not SiteStatus.GONE for m in members)

    def _marked(self, members: list[str], check: Callable[[], None]) -> Changes:
        """These members are declared dead, until one is heard again."""
        check()
        changes = Changes()
        known = (self._records.members[each] for each in members if each in self._records.members)
        changes.put(
            *(
                msgspec.structs.replace(each, status=SiteStatus.LOST)
                for each in known
                if each.status is not SiteStatus.GONE
            )
        )
        return changes

    def _check_over(self, name: str, member: str) -> None:
        """Raise `Conflict` while the site, or that member of it, is connected, or something of ours may run there."""
        self._check_away(name, member)
        leases = [
            lease
            for lease in self._records.leases.values()
            if lease.site == name and lease.ended_at is None and member in ("", lease.member)
        ]
        held = [
            each
            for each in self._records.open_placements.values()
            if each.site == name and not each.ended and (not member or member in unproven(each))
        ]
        if leases or held:
            what = f"{len(leases)} machines are rented for it" if leases else "attempts may still run there"
            option = f" --member {member}" if member else ""
            raise Conflict(
                f"{member or name} cannot be removed: {what}",
                remedy=f"let them end, or see federator site declare-dead {name}{option}",
            )

    def _check_away(self, name: str, member: str) -> None:
        """Raise `Conflict` if the site, or that member of it, is connected at this moment: it may have come back meanwhile."""
        heard = self._inventory.members
        members = self._members(self._site(name), member)
        connected = [each for each in members if each in heard and heard[each].session]
        if connected:
            raise Conflict(
                f"{member or name} is connected ({', '.join(connected)})",
                remedy="drain it, or cancel its jobs: it can answer for itself",
            )

    def _members(self, site: Site, only: str) -> list[str]:
        """The names of the site's members, or of the one that is meant. Raises `NotFound`."""
        names = [member.id for member in self._records.members.values() if member.site == site.name]
        if not only:
            return names
        if only not in names:
            raise NotFound(
                f"{site.name} has no member {only!r}",
                field="$.member",
                remedy=f"members are: {', '.join(names)}",
            )
        return [only]

    def allow(self, caller: Caller, name: str) -> None:
        """Raise `Forbidden` unless the site is the caller's, or the caller an admin."""
        caller.require(Role.SITE_ADMIN)
        if caller.role is Role.SITE_ADMIN and name not in caller.sites:
            raise Forbidden(f"your token is for site {', '.join(caller.sites)}, not {name}")

    def _site(self, name: str) -> Site:
        site = self._records.sites.get(name)
        if site is None:
            known = ", ".join(sorted(self._records.sites)) or "none yet"
            raise NotFound(f"no site {name!r}", remedy=f"sites are: {known}")
        return site


def _after(site: Site, event: str) -> SiteStatus:
    """The site's status after that; the same, where the event changes nothing."""
    return advance(site.status, event) if allows(site.status, event) else site.status

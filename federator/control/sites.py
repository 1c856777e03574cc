"""What people do to sites: drain them, take them back, and declare them dead."""

from collections.abc import Callable
from functools import partial

import msgspec

from federator.control.gangs import unproven
from federator.control.inventory import Inventory
from federator.control.progress import Progress
from federator.control.records import Changes, Records, row_key
from federator.control.scribe import Scribe
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from federator.model.identity import Caller, Role
from federator.model.jobs import Job
from federator.model.lifecycle import advance, allows
from federator.model.sites import Site, SiteStatus

TOGETHER = 40
"""Jobs per transaction: two rows each, and stores take some 120 operations at once."""


class Sites:
    """Verbs on sites. A site-admin has them for one site, an admin for all."""

    def __init__(self, records: Records, scribe: Scribe, inventory: Inventory, progress: Progress) -> None:
        self._records = records
        self._scribe = scribe
        self._inventory = inventory
        self._progress = progress

    async def drain(self, caller: Caller, name: str, *, on: bool) -> Site:
        """Let nothing new start there; what runs goes on."""
        self._allow(caller, name)

        def compute() -> Changes:
            changes = Changes()
            site = self._site(name)
            event = "drain" if on else "undrain"
            if site.draining is not on:
                status = advance(site.status, event) if allows(site.status, event) else site.status
                changes.put(msgspec.structs.replace(site, draining=on, status=status))
                self._scribe.act(changes, f"user:{caller.name}", event, site=name)
            return changes

        await self._records.transact(compute)
        return self._site(name)

    async def declare_dead(self, caller: Caller, name: str, reason: str, *, member: str = "") -> list[str]:
        """An operator's word that nothing of the federation runs at the site any more, or at one of its members: what was there is over.

        Jobs may start elsewhere; a gang that has ranks at other members too, once those are over. What jobs saved there is gone. Refused while the site, or that member,
        is connected, or comes back before all is given up: then it can answer for itself. Returns the placements given up. Should it come back, its copies are told to stop.
        """
        self._allow(caller, name)
        if not reason.strip():
            raise Invalid(
                "a reason is needed", field="$.reason", remedy="say how you know that nothing runs there"
            )
        check = partial(self._check_away, name, member)

        def compute() -> Changes:
            check()
            changes = Changes()
            what = f"declare {member} dead: {reason}" if member else f"declare dead: {reason}"
            self._scribe.act(changes, f"user:{caller.name}", what, site=name)
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
        return given_up

    async def remove(self, caller: Caller, name: str) -> None:
        """Forget a site that is gone for good, with its members. Raises `Conflict` while it is connected, or something of ours may run there."""
        caller.require(Role.ADMIN)
        gone: list[str] = []
        check = partial(self._check_over, name)

        def compute() -> Changes:
            check()
            changes = Changes()
            rows = [p for p in self._records.open_placements.values() if p.site == name]
            # Nobody is left to answer for what was given up there.
            changes.put(*(msgspec.structs.replace(placement, stop_acknowledged=True) for placement in rows))
            gone[:] = self._members(self._site(name), "")
            changes.deletes += [row_key(self._records.members[member]) for member in gone]
            changes.deletes.append(row_key(self._site(name)))
            self._scribe.act(changes, f"user:{caller.name}", "remove site", site=name)
            return changes

        check()
        await self._forget_checkpoints(name, "", "removed", check)
        await self._records.transact(compute)
        for member in gone:
            self._inventory.forget(member)

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
                    freed = msgspec.structs.replace(job, resume_site=None, resume_members=())
                    changes.put(freed, self._scribe.event(freed, "checkpoint-lost", because, site=name))
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

    def _check_over(self, name: str) -> None:
        """Raise `Conflict` while the site is connected, or something of ours may run there."""
        self._check_away(name, "")
        leases = [le for le in self._records.leases.values() if le.site == name and le.ended_at is None]
        rows = self._records.open_placements.values()
        if leases or any(each.site == name and not each.ended for each in rows):
            what = f"{len(leases)} machines are rented for it" if leases else "attempts may still run there"
            raise Conflict(
                f"{name} cannot be removed: {what}",
                remedy="let them end, or see federator site declare-dead",
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

    def _allow(self, caller: Caller, name: str) -> None:
        caller.require(Role.SITE_ADMIN)
        if caller.role is Role.SITE_ADMIN and caller.site != name:
            raise Forbidden(f"your token is for site {caller.site}, not {name}")

    def _site(self, name: str) -> Site:
        site = self._records.sites.get(name)
        if site is None:
            known = ", ".join(sorted(self._records.sites)) or "none yet"
            raise NotFound(f"no site {name!r}", remedy=f"sites are: {known}")
        return site

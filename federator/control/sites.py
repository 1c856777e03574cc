"""What people do to sites: drain them, take them back, and declare them dead."""

import msgspec

from federator.control.inventory import Inventory
from federator.control.progress import Progress
from federator.control.records import Changes, Records
from federator.control.scribe import Scribe
from federator.kernel.errors import Conflict, Forbidden, Invalid, NotFound
from federator.model.identity import Caller, Role
from federator.model.sites import Site


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
            if site.draining is not on:
                changes.put(msgspec.structs.replace(site, draining=on))
                self._scribe.act(changes, f"user:{caller.name}", "drain" if on else "undrain", site=name)
            return changes

        await self._records.transact(compute)
        return self._site(name)

    async def declare_dead(self, caller: Caller, name: str, reason: str) -> list[str]:
        """An operator's word that nothing of the federation runs at the site any more: its placements are over, its jobs may start elsewhere.

        Refused while the site is connected: then it can answer for itself. Returns the placements given up. Should the site come back,
        its copies are told to stop.
        """
        self._allow(caller, name)
        if not reason.strip():
            raise Invalid(
                "a reason is needed", field="$.reason", remedy="say how you know that nothing runs there"
            )
        members = [
            member.id for member in self._records.members.values() if member.site == self._site(name).name
        ]
        connected = [
            m for m in members if m in self._inventory.members and self._inventory.members[m].session
        ]
        if connected:
            raise Conflict(
                f"{name} is connected ({', '.join(connected)})",
                remedy="drain it, or cancel its jobs: it can answer for itself",
            )
        given_up = [p.id for p in self._records.open_placements.values() if p.site == name and not p.ended]
        for placement in given_up:
            await self._progress.lose(
                placement, f"{caller.name} declared {name} dead: {reason}", acknowledged=False
            )

        def compute() -> Changes:
            changes = Changes()
            self._scribe.act(changes, f"user:{caller.name}", f"declare dead: {reason}", site=name)
            return changes

        await self._records.transact(compute)
        return given_up

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

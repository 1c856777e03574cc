"""Sites, and hosts of sites, whose capacity nobody knows at the moment: a plan sees nothing of them, and an explanation names them nevertheless.

A decision is made from what was reported; of an agent that has not reported there is nothing to filter. So its reason is not planning's to give: it is that
nobody is there to ask. What is said of work that runs there is what was known last.
"""

from collections.abc import Iterable, Iterator

from federator.control.record.records import Records
from federator.control.reports.inventory import Inventory
from federator.model.placements import Placement
from federator.model.plans import SiteReason
from federator.model.sites import Member, Site, SiteKind, SiteStatus
from federator.planning.rules.feasibility import CLOSED

NOT_KNOWN = "its capacity is not known"


def unheard(records: Records, inventory: Inventory, named: Iterable[str]) -> tuple[SiteReason, ...]:
    """A reason for each site with a host that has not reported, and for each that has no host at all. `named` are sites of which something is said already."""
    told, hosts = set(named), _hosts(records)
    return tuple(
        reason
        for site in sorted(records.sites.values(), key=lambda site: site.name)
        if (reason := _reason(site, hosts.get(site.name, []), inventory, told=site.name in told)) is not None
    )


def unknown_then(records: Records, at: float, named: Iterable[str]) -> tuple[SiteReason, ...]:
    """The same of a decision of that moment: sites with hosts that had joined by then, and of which it saw nothing."""
    told, hosts = set(named), _hosts(records)
    text = "its agent had not reported when this was decided: its capacity was not known"
    return tuple(
        SiteReason(site=name, pool="", filter=CLOSED, text=text)
        for name in sorted(hosts)
        if name not in told and any(member.lease is None and member.joined_at <= at for member in hosts[name])
    )


def out_of_sight(placement: Placement | None, records: Records, inventory: Inventory) -> list[str]:
    """Of work that is somewhere, which hosts are not heard of now, and why: what is said of it is what was known last."""
    if placement is None or placement.ended:
        return []
    over = {part.member for part in placement.parts if part.ended}
    return [
        f"{member}: {why}"
        for member in dict.fromkeys(placement.members)
        if member in records.members and member not in over and (why := inventory.unseen(member))
    ]


def with_unsure(because: str, placement: Placement | None, records: Records, inventory: Inventory) -> str:
    """Why it is as it is, and that this is not sure where nobody hears of it."""
    return "; ".join((because, *out_of_sight(placement, records, inventory)))


def _hosts(records: Records) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in records.members.values():
        if member.status is not SiteStatus.GONE:
            found.setdefault(member.site, []).append(member)
    return found


def _reason(site: Site, hosts: list[Member], inventory: Inventory, *, told: bool) -> SiteReason | None:
    if not hosts:
        if told or site.kind is SiteKind.CLOUD:
            return None
        return _closed(site, f"no host of it has joined yet; {NOT_KNOWN}", f"when {site.name} has joined")
    silent = list(_silent(hosts, inventory))
    if not silent:
        return None
    member, why = silent[0]
    also = f" (and {len(silent) - 1} more of its hosts)" if len(silent) > 1 else ""
    whose = "" if len(hosts) == 1 and member.id == site.name else f"{member.id}{also}: "
    return _closed(site, f"{whose}{why}; {NOT_KNOWN}", f"when {site.name} reports")


def _silent(hosts: list[Member], inventory: Inventory) -> Iterator[tuple[Member, str]]:
    """The hosts that have reported nothing since the dispatcher started, each with why nothing starts there."""
    for member in hosts:
        heard = inventory.members.get(member.id)
        if member.lease is None and (heard is None or heard.report is None):
            dead = member.status is SiteStatus.LOST and heard is None
            yield member, "it was declared dead" if dead else inventory.closed_because(member)


def _closed(site: Site, text: str, change: str) -> SiteReason:
    return SiteReason(site=site.name, pool="", filter=CLOSED, text=text, change=change)

"""What was last heard: agents' sessions and reports, providers' offers, and what to avoid for a while.

All of it is telemetry. It lives in memory, has an age, and is gone after a restart on purpose: a report of before the outage must
not be planned on as if it were fresh.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from federator.control.record.records import Records
from federator.control.reports.gpu_use import GpuUses
from federator.control.reports.measurements import Measurements
from federator.kernel.clock import Clock
from federator.kernel.errors import Invalid, NoCapacity
from federator.kernel.quantities import format_duration
from federator.model.capacity import IN_PARTS, Offer, Stock
from federator.model.lifecycle import advance, allows
from federator.model.sites import GpuUse, LinkState, Member, SiteReport, SiteStatus
from federator.settings import LimitSettings, LinkSettings
from federator.wire.link import Sample


@dataclass
class MemberReport:
    """The last word of one member. `heard_boot_s` is our boot clock at the time."""

    site: str
    status: SiteStatus = SiteStatus.JOINING
    session: str = ""
    version: str = ""
    """Of its agent, as that said when it opened the session; empty: not said."""
    stopped_boot_s: float | None = None
    """When it has ended the last session because it stops; None: it has not."""
    report: SiteReport | None = None
    hosts: int = 0
    """In the report, or in the last one of the session before."""
    counted: frozenset[str] = frozenset()
    """The placements that the report counts."""
    heard_boot_s: float = 0.0
    link: LinkState | None = None
    """How its link is, as it has told last."""
    answered_boot_s: float = 0.0
    """When we last answered it: what `stop_within` is counted from here."""


class Inventory:
    """Sessions and reports by member, offers by provider."""

    def __init__(self, clock: Clock, settings: LinkSettings, limits: LimitSettings, records: Records) -> None:
        self.measurements, self.gpu_uses = Measurements(records), GpuUses(records, clock)
        """What ranks use, and how busy GPUs are: told by a member, and no plan depends on it."""
        self._clock = clock
        self._limits = limits
        self._settings = settings
        self._listeners: list[Callable[[], None]] = []
        self.members: dict[str, MemberReport] = {}
        self.offers: dict[str, tuple[Offer, ...]] = {}
        self.listed_at: dict[str, float] = {}
        self._avoided: dict[tuple[str, str], tuple[float, str]] = {}
        self._began_at, self._began_boot_s = clock.now(), clock.boot()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever something was heard that a plan may depend on."""
        self._listeners.append(listener)

    def opened(self, member: Member, session: str, version: str) -> None:
        """A session stands; until its first report the member's old report counts for nothing."""
        heard = self.members.setdefault(member.id, MemberReport(site=member.site))
        heard.session, heard.version, heard.stopped_boot_s = session, version, None
        heard.report = None
        heard.heard_boot_s = heard.answered_boot_s = self._clock.boot()
        self._tell()

    def measured(
        self,
        member: str,
        samples: Sequence[Sample],
        gpus: Sequence[GpuUse] = (),
        state: LinkState | None = None,
    ) -> None:
        """What a member says of what ranks use, of its GPUs, and of its link."""
        self.measurements.hear(member, samples)
        self.gpu_uses.hear(member, gpus)
        if state is not None and member in self.members:
            self.members[member].link = state

    def report(self, member: str, session: str, report: SiteReport) -> None:
        """Fresh telemetry; from an older session it is ignored. Raises `Invalid` where there would be more hosts than are taken."""
        heard = self.members.get(member)
        if heard is None or heard.session != session:
            return
        self._check_hosts(heard, report)
        changed = heard.report is None or _substance(heard.report) != _substance(report)
        if heard.report is None or heard.report.counted != report.counted:
            heard.counted = frozenset(report.counted)
        heard.report = report
        heard.heard_boot_s = self._clock.boot()
        event = "ail" if self._trouble(heard) else "report"
        if allows(heard.status, event):
            heard.status = advance(heard.status, event)
            changed = True
        if changed:
            self._tell()

    def _check_hosts(self, of: MemberReport, report: SiteReport) -> None:
        """What the site, and the federation, would have in all."""
        own = sum(pool.nodes for pool in report.pools)
        others = [each for each in self.members.values() if each is not of] if own > of.hosts else []
        for limit, name, beside in (
            (
                self._limits.site_hosts,
                "site_hosts",
                sum(each.hosts for each in others if each.site == of.site),
            ),
            (self._limits.hosts, "hosts", sum(each.hosts for each in others)),
        ):
            if own > of.hosts and beside + own > limit:
                raise Invalid(
                    f"has {own} hosts, and other members have {beside}; the limit is {limit}",
                    field="$.report.pools",
                    remedy=f"ask for a higher limits.{name} in the dispatcher's file",
                )
        of.hosts = own

    def answered(self, member: str) -> None:
        """It is about to be answered, in whichever session."""
        if member in self.members:
            self.members[member].answered_boot_s = self._clock.boot()

    def closed(self, member: str, session: str, *, stopped: bool = False) -> None:
        """The connection ended. The report stays and ages; its site gets no new work until it is back. `stopped`: the agent has said that it stops."""
        heard = self.members.get(member)
        if heard is not None and heard.session == session:
            heard.session, heard.stopped_boot_s = "", self._clock.boot() if stopped else None
            if stopped and allows(heard.status, "goodbye"):
                heard.status = advance(heard.status, "goodbye")
            self._tell()

    def forget(self, member: str) -> None:
        """The member is gone for good."""
        self.members.pop(member, None)
        self.gpu_uses.forget(member)
        self._tell()

    def age_s(self, member: str) -> float | None:
        """Seconds since the member was last heard; None: never."""
        heard = self.members.get(member)
        return None if heard is None else max(0.0, self._clock.boot() - heard.heard_boot_s)

    def silent_s(self, member: str) -> float | None:
        """The same of one that should have been heard since; None: it was, or never was."""
        age_s = self.age_s(member)
        return None if age_s is None or age_s <= self._settings.unreachable_after_s else age_s

    def unseen(self, member: str) -> str:
        """Why nobody knows how work at a member is doing now; empty: it is heard."""
        heard = self.members.get(member)
        if heard is None:
            return "not heard since the dispatcher started"
        if (silent_s := self.silent_s(member)) is not None and heard.stopped_boot_s is None:
            return f"not heard for {format_duration(silent_s // 1)}"
        return "" if heard.session else self._away(heard)

    def _away(self, heard: MemberReport) -> str:
        """Why a member that was heard is not connected."""
        if heard.stopped_boot_s is not None:
            return f"its agent was stopped {format_duration((self._clock.boot() - heard.stopped_boot_s) // 1)} ago"
        age_s = max(0.0, self._clock.boot() - heard.heard_boot_s)
        return f"its agent is not connected, last heard {format_duration(age_s // 1)} ago"

    def refresh(self) -> None:
        """Let silence count: a member not heard for too long becomes UNREACHABLE."""
        for member, heard in self.members.items():
            age_s = self.age_s(member) or 0.0
            if age_s > self._settings.unreachable_after_s and allows(heard.status, "silent"):
                heard.status = advance(heard.status, "silent")
                self._tell()

    def status(self, member: Member) -> SiteStatus:
        """How a member is, as far as it was heard; one that was here before we started and does not come back is UNREACHABLE after a while."""
        heard = self.members.get(member.id)
        if heard is not None:
            ails = member.contested and heard.status is SiteStatus.READY
            return SiteStatus.DEGRADED if ails else heard.status
        away_s = self._clock.boot() - self._began_boot_s
        missed = self._was_here(member) and away_s > self._settings.unreachable_after_s
        return SiteStatus.UNREACHABLE if missed and member.status is SiteStatus.JOINING else member.status

    def closed_because(self, member: Member) -> str:
        """Why nothing new may start at this member, as far as the connection goes; empty: it may."""
        heard = self.members.get(member.id)
        if member.contested:
            return f"{member.contested}; then federator site trust {member.site} --member {member.id}"
        if heard is None:
            return self._never_heard(member)
        if heard.status is SiteStatus.UNREACHABLE or not heard.session:
            return self._away(heard)
        if heard.report is None:
            return "its agent is connected; waiting for its first report"
        if heard.report.paused:
            return "the site has paused new work"
        if heard.status is not SiteStatus.READY:
            return f"the site is {heard.status}: {self._trouble(heard)}"
        return ""

    def _never_heard(self, member: Member) -> str:
        if not self._was_here(member):
            return "its agent has joined and not connected yet: start it with federator-agent serve"
        since = format_duration((self._clock.boot() - self._began_boot_s) // 1)
        return f"waiting for its first report since the dispatcher started {since} ago"

    def _was_here(self, member: Member) -> bool:
        """Whether it had joined before we started: then it is to come back by itself."""
        return member.joined_at < self._began_at

    def _trouble(self, heard: MemberReport) -> str:
        """What is wrong with a member; empty: nothing."""
        return "" if heard.report is None or heard.report.health == "ok" else heard.report.health

    def offered(self, provider: str, offers: Sequence[Offer], *, asked_at: float = 0.0) -> None:
        """A provider's listing; `asked_at`: what was launched from then on may not be in it."""
        self.listed_at[provider] = asked_at
        new = tuple(sorted(offers, key=lambda offer: offer.name))
        if self.offers.get(provider) != new:
            self.offers[provider] = new
            self._tell()

    def reclaim_at(self, member: str) -> float | None:
        """When its provider takes a member back, as its agent was told on the spot; None: as far as is known, it does not."""
        heard = self.members.get(member)
        return None if heard is None or heard.report is None else heard.report.reclaim_at

    def launch_failed(self, provider: str, offer: str, *, until_at: float, short: NoCapacity | None) -> None:
        """Avoid the offer, or, where its provider says that its stock is gone, note how much of that is taken."""
        if short is None or not short.stock:
            self.avoid(provider, offer, until_at=until_at, because="its last launch failed")
            return
        self.offers[provider] = tuple(
            replace(each, stock=replace(each.stock, used=max(each.stock.used, short.used)))
            if each.stock and each.stock.name == short.stock
            else each
            for each in self.offers.get(provider, ())
        )
        self._tell()

    def used_of(self, provider: str, stock: Stock) -> int:
        """How much of a stock is taken, as listed last."""
        listed = (each.stock for each in self.offers.get(provider, ()))
        return next((each.used for each in listed if each and each.name == stock.name), stock.used)

    def avoid(self, provider: str, offer: str, *, until_at: float, because: str) -> None:
        """Do not try this offer before then, with its GPU shared or not: it is one machine."""
        self._avoided[provider, offer.removesuffix(IN_PARTS)] = (until_at, because)
        self._tell()

    def avoided(self, provider: str, offer: Offer) -> tuple[float | None, str]:
        """When the offer may be tried again, and why not before; None: now."""
        until_at, because = self._avoided.get((provider, offer.name.removesuffix(IN_PARTS)), (0.0, ""))
        return (until_at, because) if until_at > self._clock.now() else (None, "")

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _substance(report: SiteReport) -> tuple[object, ...]:
    """What of a report a plan depends on: all but the time it was taken."""
    return (
        report.pools,
        report.counted,
        report.local_work,
        report.labels,
        report.lends_to,
        report.paused,
        report.health,
        report.abilities,
        report.isolation,
        report.trusts,
        report.self_fencing,
        report.reclaim_at,
    )

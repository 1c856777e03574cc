"""Observe: fold records, reports and offers into an immutable snapshot.

The only place that knows how in-flight work is taken off a report: a placement that the report does not list as counted has not been
seen by it, so its hosts are taken off here, the fullest host that holds a rank first. A gang over several members is taken off each
member's report by itself: the ranks that are there, unless that report has seen them.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from operator import is_
from typing import Any, NamedTuple

from msgspec.structs import replace

from federator.control.accounts.concrete_rules import ConcreteRules
from federator.control.accounts.money import paid_until_at, spend
from federator.control.accounts.usage import Usage
from federator.control.leases.stocks import learned_limits, unlisted_used, within
from federator.control.record.records import Records
from federator.control.reports.history import History
from federator.control.reports.interruption_counts import InterruptionCounts
from federator.control.reports.inventory import Inventory
from federator.control.turns.job_outputs import registered
from federator.control.turns.job_views import JobViews
from federator.control.turns.occupancy import OVERDUE_S, Holding, Occupancy
from federator.control.turns.set_aside import SetAside
from federator.control.turns.spreading import spread_caps
from federator.control.turns.trust import trusted
from federator.control.turns.waiting_line import WaitingLine
from federator.kernel.clock import Clock
from federator.model.capacity import LEASE_ENDED, Lease, LeaseStatus, Pool, Shape, coarser
from federator.model.owned_prices import undeclared_usd_gpu_h
from federator.model.placements import Placement
from federator.model.sites import Member, Site, SiteReport, SiteStatus
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Snapshot
from federator.settings import ProviderSettings
from federator.wire.needs import RENTED, abilities_of

MOST_SHAPES = 4096
"""Of what is free at one member: every question about a place is asked of each."""
NOTHING_HEARD = SiteReport(taken_at=0.0, pools=())
BOOTING = (LeaseStatus.REQUESTED, LeaseStatus.LAUNCHING, LeaseStatus.BOOTING)


class _PoolKept(NamedTuple):
    """A pool as a look saw it, and what holds it; that looks the same up to `settled_until_at`."""

    pool: Pool
    here: list[Holding]
    settled_until_at: float
    view: PoolView


class _MadeOf(NamedTuple):
    """What the views of a member's pools are made of."""

    member: Member
    site: Site
    lease: Lease | None
    report: SiteReport
    counted: frozenset[str]
    session: str
    because: str
    held: tuple[Holding, ...]
    interruptions_h: float


class _MemberKept(NamedTuple):
    """The pools of a member, and the very records and reports that they were made of; and what is held of pools that it does not report."""

    made_of: _MadeOf
    pools: list[_PoolKept]
    unreported: tuple[Holding, ...]


class Observer:
    """Makes snapshots of the present."""

    def __init__(  # noqa: PLR0913 - what it looks at, by name
        self,
        records: Records,
        inventory: Inventory,
        history: History,
        clock: Clock,
        providers: dict[str, ProviderSettings],
        aside: SetAside,
        *,
        reconnect_s: float = 0.0,
        slack_s: float = 0.0,
        window: bool = True,
    ) -> None:
        """`reconnect_s`: how long a site may be away, after a start of ours too, before home counts as what is left. `slack_s`: see `LeaseSettings`."""
        self._records, self._inventory, self._history = records, inventory, history
        self.measurements = inventory.measurements
        self.interruptions = InterruptionCounts(records)
        self._clock = clock
        self._providers = providers
        self._reconnect_s = reconnect_s
        self.slack_s = slack_s
        self._settled_boot_s = clock.boot() + reconnect_s
        self.aside = aside
        self.jobs = JobViews(records, history, aside)
        self._holdings = Occupancy(records, self.jobs.imagined, self.jobs.whole_run)
        self._kept: dict[str, _MemberKept] = {}
        """By member: between two looks most of them have not changed."""
        self._rules = ConcreteRules(records)
        self.usage = Usage(records)
        recent = self.usage.recent_gpus
        self.line = WaitingLine(
            records, history, self.jobs.eligible, refuse=aside.add, whole=not window, recent_gpus=recent
        )
        self.window: dict[str, float] = {}
        """The waiting jobs that the last look chose, and for how long work outside the window keeps each (s)."""

    async def look(self) -> Snapshot:
        """The world now for a decision: of very many waiting jobs, those in the window."""
        now = self._clock.now()
        self.line.look_again(self.aside.take_news() | self._records.index.limits.take_changed(now))
        self.window = await self.line.window(self.pools, now)
        return self.snapshot(only=self.window)

    def snapshot(self, *, only: Collection[str] | None = None, imagined: JobView | None = None) -> Snapshot:
        """The world now, as a decision may see it; with `only`, of the waiting jobs just these. With the offers that it has once there is a job as `imagined`."""
        now, records = self._clock.now(), self._records
        flag = records.flags.get("burst-paused")
        jobs, pools = self.jobs.seen(only, self.window, now), tuple(self._pools(now))
        read = registered(self._records, (*jobs, imagined) if imagined else jobs)
        rules = (*self._rules.at(jobs, pools), *read)
        snapshot = Snapshot(
            taken_at=now,
            incarnation=records.store.incarnation,
            revision=records.revision,
            jobs=jobs,
            pools=pools,
            offers=tuple(self._offers(in_parts=any(map(_in_parts, (*jobs, imagined) if imagined else jobs)))),
            rules=rules,
            policy_version=records.policies.version,
            spend=spend(records, now, rules),
            recent_gpus=dict(self.usage.recent_gpus(now)),
            burst_paused=flag is not None and flag.on,
            away=tuple(sorted(set(self._away()))),
        )
        spread = spread_caps(records, snapshot)
        return replace(snapshot, rules=(*rules, *spread)) if spread else snapshot

    def pools(self) -> list[PoolView]:
        """All capacity that exists or boots, as a decision would see it now."""
        return list(self._pools(self._clock.now()))

    def offers(self) -> list[OfferView]:
        """All that could be rented, as a decision would see it now."""
        self.interruptions.count(self._clock.now())
        return list(self._offers())

    def _away(self) -> Iterator[str]:
        """Home sites whose absence justifies no rental yet: they have had no time to come back, after a start of theirs or of ours."""
        now_s = self._clock.boot()
        for member in self._records.members.values():
            if member.lease is not None or member.status in (SiteStatus.GONE, SiteStatus.LOST):
                continue
            heard = self._inventory.members.get(member.id)
            if heard is not None and heard.report is not None and heard.session:
                continue
            since_s = heard.heard_boot_s + self._reconnect_s if heard is not None else 0.0
            if now_s < max(self._settled_boot_s, since_s):
                yield member.site

    def notice_silence(self) -> None:
        """Let what has not been heard for too long count as unreachable."""
        self._inventory.refresh()

    def _pools(self, now: float) -> Iterator[PoolView]:
        self.interruptions.count(now)
        by_member = self._holdings.by_member()
        if len(self._kept) > 2 * len(self._records.members):
            self._kept.clear()
        for member in self._records.members.values():
            yield from self._member_pools(member, by_member.get(member.id, ()), now)
        for lease in self._records.leases.values():
            if lease.status not in LEASE_ENDED and lease.member not in self._records.members:
                yield self._booting_pool(lease, by_member.get(lease.member, ()), now)

    def _member_pools(self, member: Member, held: tuple[Holding, ...], now: float) -> Iterator[PoolView]:
        site = self._records.sites.get(member.site)
        heard = self._inventory.members.get(member.id)
        if site is None or member.status is SiteStatus.GONE:
            return
        if member.status is SiteStatus.LOST and member.lease is None and not (heard and heard.session):
            return  # declared dead: what it had is neither busy nor free
        lease = self._records.leases.get(member.lease) if member.lease else None
        because = self._closed_because(site, member, lease)
        if heard is None or heard.report is None:
            yield from self._unheard_pools(site, member, lease, held, now)
            return
        seen = heard.report, heard.counted, heard.session
        made_of = _MadeOf(member, site, lease, *seen, because, held, self._interruptions_h(lease))
        kept = self._kept.get(member.id)
        if kept is None or not all(map(is_, kept.made_of, made_of)):
            views = [self._pool(pool, made_of, now) for pool in heard.report.pools]
            names = {pool.name for pool in heard.report.pools}
            unreported = tuple(each for each in held if each.placement.pool not in names)
            kept = self._kept[member.id] = _MemberKept(made_of, views, unreported)
        age_s = self._inventory.age_s(member.id) or 0.0
        trusts = trusted(heard.report, site.name, lease, self._records.tokens.values())
        for number, each in enumerate(kept.pools):
            if now > each.settled_until_at:
                kept.pools[number] = _as_held(each, heard.report, now)
            yield replace(kept.pools[number].view, age_s=age_s, trusts=trusts)
        if kept.unreported:  # as of a cluster's agent that has not looked at the cluster yet
            yield from self._unheard_pools(site, member, None, kept.unreported, now)

    def _pool(self, pool: Pool, of: _MadeOf, now: float) -> _PoolKept:
        """What a decision sees of a pool, but for what changes with time alone."""
        site, report = of.site, of.report
        here = [holding for holding in of.held if holding.placement.pool == pool.name]
        unseen = [each.placement for each in here if each.placement.id not in of.counted]
        view = PoolView(
            site=site.name,
            kind=site.kind,
            pool=pool.name,
            member=of.member.id,
            session=of.session,
            region=site.region,
            provider=site.provider,
            labels=(pool.labels or {}) | site.labels_with(report),
            market=of.member.market,
            **_price(site, of.lease, report, pool.model),
            model=pool.model,
            gpu_memory_mib=pool.gpu_memory_mib,
            nodes=pool.nodes,
            gpus_per_node=pool.gpus_per_node,
            cpus_milli_per_node=pool.cpus_milli_per_node,
            memory_mib_per_node=pool.memory_mib_per_node,
            free=coarser(take(pool.free, unseen), MOST_SHAPES // len(report.pools)),
            busy=(),
            lends_to=report.lends_to,
            abilities=abilities_of(report),
            self_fencing=report.self_fencing,
            open=not of.because,
            closed_because=of.because,
            shared=bool(pool.shared),
            cut_milli=pool.cut_milli or 0,
            longest_s=pool.longest_s or None,
            **_lease_fields(of.lease, self.slack_s, of.interruptions_h),
        )
        return _as_held(_PoolKept(pool, here, -math.inf, view), report, now)

    def _unheard_pools(
        self, site: Site, member: Member, lease: Lease | None, held: tuple[Holding, ...], now: float
    ) -> Iterator[PoolView]:
        """What is known of pools that a member has not reported: nothing may start there, but what runs and what is rented counts."""
        names = [holding.placement.pool for holding in held] + ([lease.offer.pool] if lease else [])
        for name in dict.fromkeys(names):
            here = [holding for holding in held if holding.placement.pool == name]
            placements = [holding.placement for holding in here]
            nodes, gpus = (1, lease.offer.gpus_to_plan) if lease else _held(placements)
            model = lease.offer.model if lease else placements[0].model
            yield PoolView(
                site=site.name,
                kind=site.kind,
                pool=name,
                member=member.id,
                session="",
                region=site.region,
                provider=site.provider,
                labels=site.labels_with(),
                market=member.market,
                **_price(site, lease, NOTHING_HEARD, model),
                model=model,
                nodes=nodes,
                gpus_per_node=gpus,
                shared=any(placement.shared for placement in placements)
                or bool(lease and lease.offer.shared),
                busy=tuple(_busy(here, NOTHING_HEARD, Pool(name=name), now)),
                open=False,
                closed_because=self._closed_because(site, member, lease)
                or "the site does not report this pool",
                **_lease_fields(lease, self.slack_s, self._interruptions_h(lease)),
            )

    def _interruptions_h(self, lease: Lease | None) -> float:
        return 0.0 if lease is None else self.interruptions.rate_h(lease.offer, lease.zone)

    def _closed_because(self, site: Site, member: Member, lease: Lease | None) -> str:
        if site.draining:
            return "the site is draining"
        if lease is not None and lease.status is not LeaseStatus.READY:
            return f"the lease is {lease.status}"
        return self._inventory.closed_because(member)

    def _booting_pool(self, lease: Lease, held: tuple[Holding, ...], now: float) -> PoolView:
        site = self._records.sites.get(lease.site)
        offer = lease.offer
        whole = (Shape(offer.gpus_to_plan, offer.cpus_milli, offer.memory_mib),)
        pool = Pool(name=offer.pool)
        return PoolView(
            site=lease.site,
            kind="cloud",
            pool=offer.pool,
            shared=bool(offer.shared),
            member=lease.member,
            session=booting_session(lease),
            region=offer.region,
            provider=lease.provider,
            labels=site.labels if site else {},
            market=offer.market,
            price_usd_gpu_h=offer.price_usd_h / max(1, offer.gpus),
            model=offer.model,
            gpu_memory_mib=offer.gpu_memory_mib,
            gpus_per_node=offer.gpus_to_plan,
            cpus_milli_per_node=offer.cpus_milli,
            memory_mib_per_node=offer.memory_mib,
            free=take(whole, [holding.placement for holding in held]),
            busy=tuple(_busy(held, NOTHING_HEARD, pool, now)),
            abilities=RENTED,
            ready_at=expected_ready_at(lease, now),
            **_lease_fields(lease, self.slack_s, self._interruptions_h(lease)),
        )

    def _offers(self, *, in_parts: bool = False) -> Iterator[OfferView]:
        """`in_parts`: machines of one GPU a second time, with that shared."""
        limits = learned_limits(self._records.leases.values(), self._clock.now())
        for provider, listed in sorted(self._inventory.offers.items()):
            settings = self._providers[provider]
            ours = (lease for lease in self._records.leases.values() if lease.provider == provider)
            offers = within(unlisted_used(listed, ours, self._inventory.listed_at.get(provider, 0.0)), limits)
            parts = [offer.as_shared() for offer in offers if in_parts and offer.gpus == 1]
            for offer in (*offers, *parts):
                until_at, because = self._inventory.avoided(provider, offer)
                yield OfferView(
                    offer=offer,
                    site=settings.site,
                    labels=settings.labels,
                    avoid_until_at=until_at,
                    avoid_because=because,
                    slack_s=self.slack_s,
                    interruptions_h=self.interruptions.rate_h(offer),
                )


def _in_parts(job: JobView) -> bool:
    """Whether it may ask for part of a GPU."""
    return job.shared or any(form.resources.gpus.share_milli for form in job.forms)


def _as_held(kept: _PoolKept, report: SiteReport, now: float) -> _PoolKept:
    """What holds the pool is looked at again, as it is expected to go on from now."""
    until_at = min((holding.settled_until_at(now) for holding in kept.here), default=math.inf)
    if any(work.ends_at is None for work in report.local_work):
        until_at = -math.inf
    busy = tuple(_busy(kept.here, report, kept.pool, now))
    return kept._replace(settled_until_at=until_at, view=replace(kept.view, busy=busy))


def _busy(held: Iterable[Holding], report: SiteReport, pool: Pool, now: float) -> Iterator[BusyView]:
    """What holds part of a member's pool; of each placement, its ranks there."""
    for holding in held:
        yield holding.seen(now)
    for work in report.local_work:
        if work.pool == pool.name and not work.queued:
            yield BusyView(nodes=work.nodes, gpus=work.gpus_per_node, ends_at=work.ends_at or now + 3600.0)


def _price(site: Site, lease: Lease | None, report: SiteReport, model: str) -> dict[str, Any]:
    """Rent of a lease; else what the agent says, else what is on record of its site, else what such a GPU is taken to cost."""
    if lease is not None:
        return {"price_usd_gpu_h": lease.offer.price_usd_h / max(1, lease.offer.gpus)}
    declared = report.price_usd_gpu_h if report.price_usd_gpu_h is not None else site.price_usd_gpu_h or None
    if declared is None:
        return {"price_usd_gpu_h": undeclared_usd_gpu_h(model), "undeclared": True}
    return {"price_usd_gpu_h": declared}


def _lease_fields(lease: Lease | None, slack_s: float, interruptions_h: float) -> dict[str, Any]:
    """What planning needs to know of the lease behind a pool."""
    if lease is None:
        return {}
    tail_s = slack_s + lease.offer.teardown_s
    return {
        "lease": lease.id,
        "rented_for": lease.evidence.job if lease.evidence else "",
        "rented_queue": lease.queue,
        "paid_until_at": paid_until_at(lease) - tail_s if lease.offer.price_usd_h > 0 else None,
        "tail_s": tail_s,
        "interruptions_h": interruptions_h,
    }


def _held(placements: Iterable[Placement]) -> tuple[int, int]:
    """Hosts, and GPUs of each, that have together what the placements hold: as many as the largest rank has where that comes out even, else one."""
    ranks = [placement.gpus_per_node for placement in placements for _ in range(placement.nodes)]
    held, largest = sum(ranks), max(ranks)
    if not held:
        return len(ranks), 0
    return (held // largest, largest) if held % largest == 0 else (1, held)


def expected_ready_at(lease: Lease, now: float) -> float:
    """When a booting machine is expected; one that is late, a while from now: never as if it were there."""
    expected_at = lease.requested_at + lease.offer.delay_s
    return expected_at if expected_at > now else now + OVERDUE_S


def booting_session(lease: Lease) -> str:
    """What stands for the session of a member that has not joined yet: placements wait there for its agent."""
    return f"booting:{lease.id}"


def take(free: tuple[Shape, ...], placements: Iterable[Placement]) -> tuple[Shape, ...]:
    """Free shapes after these placements' ranks are put on the fullest hosts that hold them; what does not fit is ignored.

    The agent packs in the same order, so that the guess is right unless its hosts differ in more than the shape shows.
    """
    hosts: Counter[tuple[int, int, int]] = Counter()
    for shape in free:
        hosts[shape.gpus, shape.cpus_milli, shape.memory_mib] += shape.count
    for placement in placements:
        gpus, cpus_milli, memory_mib = placement.gpus_per_node, placement.cpus_milli, placement.memory_mib
        for _ in range(placement.nodes):
            holding = (
                each for each in hosts if each[0] >= gpus and each[1] >= cpus_milli and each[2] >= memory_mib
            )
            host = min(holding, default=None)
            if host is None:
                break  # nor does the next one fit
            hosts[host] -= 1
            if not hosts[host]:
                del hosts[host]
            hosts[host[0] - gpus, host[1] - cpus_milli, host[2] - memory_mib] += 1
    return tuple(Shape(*host, count) for host, count in sorted(hosts.items()) if count)

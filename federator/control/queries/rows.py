"""Rows for people, made from records: pure functions beside `views`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from msgspec import UNSET

from federator import __version__
from federator.control.accounts.money import outstanding_usd, spend, spend_rows
from federator.control.administration.authority import Authority, Right
from federator.control.leases.stocks import Limits
from federator.control.record.records import Records
from federator.control.reports.interruption_counts import InterruptionCounts
from federator.control.reports.inventory import Inventory
from federator.kernel.versions import compared
from federator.model.capacity import LEASE_ENDED, Lease, LeaseStatus, Pool, Shape
from federator.model.identity import Caller
from federator.model.jobs import in_gpus, tidy
from federator.model.placements import PlacementStatus
from federator.model.rules import (
    CapRow,
    CapUnit,
    GuaranteeRow,
    Period,
    PolicyRule,
    PoolSelector,
    Scope,
    admits_queue,
)
from federator.model.sites import REVOKED_KEY, SHARED_TRUST, Member, Site, SiteKind, SiteReport, SiteStatus
from federator.model.snapshot import OfferView, PoolView, SpendView
from federator.model.whose import EVERYBODY, in_words
from federator.planning.explanations.rule_words import whose
from federator.planning.places.candidates import Candidate, of_pools
from federator.planning.rules.periods import period_end, period_start
from federator.planning.wording.told import because_of
from federator.wire.http import (
    BudgetRow,
    GpuHolder,
    GpuRow,
    LeaseRow,
    MemberRow,
    OfferRow,
    PartRow,
    PoolRow,
    QueueRow,
    SiteRow,
)
from federator.wire.rights import QueueRights, TeamRow

EARLIEST_PACE = 0.02
"""Part of a period that must be over before what it will have cost is forecast."""

SHARED = " shared"
"""After a gang whose ranks have parts of GPUs."""


def site_rows(
    sites: Iterable[Site], pools: Iterable[PoolView], records: Records, inventory: Inventory
) -> list[SiteRow]:
    """These sites with their pools as planning sees them: what belongs to each is looked up once for all."""
    pools_of: defaultdict[str, list[PoolView]] = defaultdict(list)
    for pool in pools:
        pools_of[pool.site].append(pool)
    members: defaultdict[str, list[Member]] = defaultdict(list)
    for member in records.members.values():
        if member.status != "GONE":
            members[member.site].append(member)
    placed = records.open_placements.values()
    running = Counter(each.site for each in placed if each.status is PlacementStatus.RUNNING)
    return [
        _site_row(site, pools_of[site.name], members[site.name], running[site.name], records, inventory)
        for site in sites
    ]


def _site_row(
    site: Site,
    pools: list[PoolView],
    every: list[Member],
    running: int,
    records: Records,
    inventory: Inventory,
) -> SiteRow:
    """One row per member, the largest gang over all that a gang may lie over."""
    hosts = tuple(member_row(member, inventory) for member in every)
    living = {host.name for host in hosts if host.status != SiteStatus.LOST}
    members = [member for member in every if member.id in living]
    ages = [age for age in (inventory.age_s(member.id) for member in members) if age is not None]
    statuses = [inventory.status(member) for member in members] or [SiteStatus.LOST if hosts else site.status]
    unrented = site.kind is SiteKind.CLOUD and not hosts
    reports = [inventory.members[m.id].report for m in members if m.id in inventory.members]
    silent = {m.id for m, status in zip(members, statuses, strict=False) if status == SiteStatus.UNREACHABLE}
    rows = tuple(_pool_row(pool, inventory, records) for pool in pools)
    heard = [pool for pool in pools if pool.member not in silent]
    paused = any(report is not None and report.paused for report in reports)
    status = "UNRENTED" if unrented else _status([str(each) for each in statuses])
    status = "DRAINING" if site.draining else status
    closed = _closed(pools)
    if not pools:
        nobody = hosts[0].because if hosts else _EMPTY.get(site.kind, "it has no member")
        closed = next((inventory.closed_because(member) for member in members), nobody)
    return SiteRow(
        name=site.name,
        kind=site.kind,
        status="PAUSED" if paused and status == SiteStatus.READY else status,
        region=site.region,
        labels=site.labels_with(),
        gpus=tidy(sum(in_gpus(_lent(pool, inventory), shared=pool.shared) for pool in heard)),
        busy=tidy(sum(row.busy_gpus for row in rows if row.member not in silent)),
        running=running,
        largest_gang=max(map(_gang, of_pools(pools)), key=_gang_size, default=""),
        age_s=min(ages, default=None),
        draining=site.draining,
        drain_by_at=site.drain_by_at,
        drain_because=site.drain_because if site.draining else "",
        paused=paused,
        members=len(members),
        pools=rows,
        because=closed,
        runtime=next((report.runtime for report in reports if report is not None), ""),
        isolation=_isolation(reports, pools),
        lends_to=_lends_to(pools),
        hosts=hosts,
    )


def _isolation(reports: Iterable[SiteReport | None], pools: Iterable[PoolView]) -> str:
    """Of its members the weakest counts."""
    told = {report.isolation for report in reports if report is not None and report.isolation}
    if SHARED_TRUST not in told:
        return ", ".join(sorted(told))
    trusts = sorted({each for view in pools for each in view.trusts or ()})
    return f"{SHARED_TRUST}: takes {'' if EVERYBODY in trusts else 'only '}work of {in_words(trusts)}"


def _lends_to(pools: Iterable[PoolView]) -> str:
    """Empty where some of it is for everybody."""
    named = [view.lends_to for view in pools]
    return in_words(sorted({each for lends in named for each in lends})) if named and all(named) else ""


def member_row(member: Member, inventory: Inventory) -> MemberRow:
    """A member as a line: what people have made of it goes before what was last heard."""
    heard = inventory.members.get(member.id)
    status, because = inventory.status(member), inventory.closed_because(member)
    if member.status is SiteStatus.LOST and not (heard and heard.session):
        status = SiteStatus.LOST
        because = f"declared dead; federator site remove {member.site} --member {member.id} forgets it"
    elif member.public_key == REVOKED_KEY:
        because = "its key was revoked: its host joins again by a token that is made for this member"
    version = heard.version if heard else ""
    return MemberRow(
        name=member.id,
        status=status,
        because=because,
        age_s=inventory.age_s(member.id),
        lease=member.lease or "",
        joined_at=member.joined_at,
        version=version,
        version_is=compared(version, __version__),
        link=heard.link if heard else None,
    )


_EMPTY = {SiteKind.CLOUD: "nothing of it is rented now"}
_SEVERITY = ["READY", "JOINING", "DEGRADED", "UNREACHABLE", "LOST", "DRAINING", "GONE"]


def offer_row(view: OfferView, seen: InterruptionCounts, learned: Limits) -> OfferRow:
    """What could be rented, what of the stock that it draws on is taken, and how often its machines were."""
    offer, stock, watched = view.offer, view.offer.stock, seen.of(view.offer)
    taken = f"{stock.name}: {stock.used} of {stock.limit} {stock.unit} taken" if stock else ""
    if stock and (offer.provider, stock.name) in learned:
        taken += ", more was refused"
    return OfferRow(
        provider=offer.provider,
        name=offer.name,
        site=view.site,
        model=offer.model,
        gpus=offer.gpus,
        market=offer.market,
        price_usd_h=offer.price_usd_h,
        delay_s=offer.delay_s,
        available=offer.to_be_had,
        stock=taken,
        avoid_until_at=view.avoid_until_at,
        price_source=offer.price_source,
        interruptions_h=seen.rate_h(offer),
        interruptions=watched.interruptions,
        watched_h=watched.machine_h,
        zones_interruptions_h={zone: rate for zone, rate in seen.by_zone(offer).items() if zone},
    )


def _status(statuses: list[str]) -> str:
    """The worst of the members'; where some are well, the site is no worse than degraded."""
    worst = max(statuses, key=_SEVERITY.index)
    some_well = "READY" in statuses and _SEVERITY.index(worst) > _SEVERITY.index("DEGRADED")
    return "DEGRADED" if some_well else worst


def _closed(pools: list[PoolView]) -> str:
    """Why nothing new may start there; of a site with several members, which, and how many there are."""
    shut = {pool.member: pool.closed_because for pool in pools if pool.closed_because}
    members = {pool.member for pool in pools}
    if not shut or len(members) == 1 or (len(set(shut.values())) == 1 and len(shut) == len(members)):
        return next(iter(shut.values()), "")
    member, because = next(iter(shut.items()))
    return f"{len(shut)} of {len(members)} members take no work; {member}: {because}"


def _gang(place: Candidate) -> str:
    """The largest that fits over all members of a place."""
    return gang((shape for view in place.views for shape in view.free), shared=place.shared)


def _lent(pool: PoolView, inventory: Inventory) -> int:
    """GPUs that the site lends of this pool at this hour: what its report says, else all of them."""
    report = _reported(pool, inventory)
    pools = report.pools if report else ()
    lent = next((each.lent_gpus for each in pools if each.name == pool.pool), None)
    return pool.nodes * pool.gpus_per_node if lent is None else lent


def _reported(pool: PoolView, inventory: Inventory) -> SiteReport | None:
    """What the pool's member has said last."""
    heard = inventory.members.get(pool.member)
    return heard.report if heard else None


def _pool_row(pool: PoolView, inventory: Inventory, records: Records) -> PoolRow:
    lent, report = _lent(pool, inventory), _reported(pool, inventory)
    free = sum(shape.gpus * shape.count for shape in pool.free)
    reported = Pool(
        name=pool.pool,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        nodes=pool.nodes,
        gpus_per_node=pool.gpus_per_node,
        cpus_milli_per_node=pool.cpus_milli_per_node,
        memory_mib_per_node=pool.memory_mib_per_node,
        free=pool.free,
        lent_gpus=lent,
        shared=pool.shared or UNSET,
        cut_milli=pool.cut_milli or UNSET,
    )
    return PoolRow(
        pool=reported,
        member=pool.member,
        free=pool.free,
        busy_gpus=in_gpus(max(0, lent - free), shared=pool.shared),
        largest_gang=gang(pool.free, shared=pool.shared),
        ailing=tuple(each for each in report.ailing if each.pool == pool.pool) if report else (),
        local_work=tuple(each for each in report.local_work if each.pool == pool.pool) if report else (),
        parts=tuple(_parts(pool, report, records)) if report else (),
    )


def _parts(pool: PoolView, report: SiteReport, records: Records) -> Iterator[PartRow]:
    """What its member says is on its shared GPUs, by number."""
    for part in sorted(report.parts or (), key=lambda part: (part.gpu, part.placement, part.rank)):
        placement = records.placements.get(part.placement)
        if part.pool == pool.pool and placement is not None:
            job = records.jobs[placement.job]
            share = in_gpus(part.share_milli, shared=True)
            yield PartRow(part.gpu, share, job.id, job.label, part.rank)


def gpu_rows(members: Iterable[str], records: Records, inventory: Inventory) -> tuple[GpuRow, ...]:
    """How busy each GPU of these members is, in the order of hosts and numbers."""
    found = []
    for member, at, use in inventory.gpu_uses.of_members(members):
        placements = (records.open_placements.get(name) for name in use.placements)
        holders = [records.jobs[each.job] for each in placements if each and member in each.members]
        found.append(
            GpuRow(
                member=member,
                pool=use.pool,
                host=use.host,
                gpu=use.gpu,
                busy_percent=use.busy_percent,
                memory_mib=use.memory_mib,
                power_w=use.power_w,
                slowed_by=use.slowed_by,
                near=use.near,
                told_at=at,
                jobs=tuple(GpuHolder(job.id, job.label) for job in holders),
            )
        )
    return tuple(sorted(found, key=lambda row: (row.member, row.host, row.gpu)))


def gang(free: Iterable[Shape], *, shared: bool = False) -> str:
    """The gang of most GPUs that fits now, as `nodes×GPUs`: for each size of node, as many nodes as there are. On shared GPUs only ranks with parts fit, and that is said."""
    shapes = [shape for shape in free if shape.gpus and shape.count]
    sizes = {shape.gpus for shape in shapes}
    best = max(
        ((sum(s.count for s in shapes if s.gpus >= size), size) for size in sizes),
        key=lambda g: (g[0] * g[1], g[1]),
        default=None,
    )
    return "" if best is None else f"{best[0]}×{in_gpus(best[1], shared=shared)}{SHARED if shared else ''}"


def _gang_size(text: str) -> tuple[bool, float]:
    """Of whole GPUs before any of parts, which most jobs cannot use."""
    nodes, _, gpus = text.removesuffix(SHARED).partition("×")
    return bool(gpus) and not text.endswith(SHARED), int(nodes) * float(gpus) if gpus else 0.0


def queue_rows(records: Records, authority: Authority, caller: Caller | None) -> list[QueueRow]:
    """Every queue with its use, all below it included, and what the caller may do there."""
    rules = records.policies.rules
    limits = _limits(rules)
    guarantees = {rule.queue: rule for rule in rules if isinstance(rule, GuaranteeRow) and not rule.model}
    waiting = records.index.pending_by_queue()
    running, gpus, spent = Counter[str](), defaultdict[str, float](float), defaultdict[str, float](float)
    for placement in records.open_placements.values():
        if not placement.ended:
            queue = records.jobs[placement.job].queue
            running[queue] += 1
            gpus[queue] += placement.gpus
    for lease in records.leases.values():
        spent[lease.queue] += lease.billed_usd
    rows = []
    for terms in authority.queues:
        path = terms.queue
        below = [each for each in {*running, *waiting, *spent} if admits_queue((path,), each)]
        guarantee = guarantees.get(path)
        rows.append(
            QueueRow(
                queue=path,
                guaranteed_gpus=guarantee.gpus if guarantee else 0,
                limit_gpus=limits.get(path),
                weight=guarantee.weight if guarantee else 1.0,
                gpus=tidy(sum(gpus.get(queue, 0) for queue in below)),
                running=sum(running[queue] for queue in below),
                pending=sum(waiting.get(queue, 0) for queue in below),
                interactive=terms.interactive,
                deadline_budget_s=terms.deadline_budget_s,
                max_duration_s=terms.max_duration_s,
                spent_usd=sum(spent.get(queue, 0.0) for queue in below),
                open_to=authority.admits(path),
                yours=rights_row(authority, caller, path) if caller else QueueRights(),
            )
        )
    return rows


def team_rows(authority: Authority, caller: Caller) -> list[TeamRow]:
    """The teams, with what each may do. Who is in them stands in the policies, which everybody who is signed in may read."""
    mine, paths = authority.teams_of(caller), [terms.queue for terms in authority.queues]
    return [
        TeamRow(
            team=each.team,
            members=each.members,
            groups=each.groups,
            admins=each.admins,
            yours=each.team in mine,
            queues=tuple(
                _rights(queue, rights, administer=False)
                for queue in paths
                if (rights := authority.of_team(each.team, queue))
            ),
        )
        for each in authority.teams
    ]


def rights_row(authority: Authority, caller: Caller, queue: str) -> QueueRights:
    """What somebody may do in a queue by the best of the rights."""
    return _rights(queue, authority.found(caller, queue), administer=authority.administers(caller, queue))


def _rights(queue: str, rights: Sequence[Right], *, administer: bool) -> QueueRights:
    if not rights:
        return QueueRights(queue=queue, submit=False, administer=administer, max_priority=0, rent=False)
    values = [right.max_value_usd for right in rights if right.max_value_usd is not None]
    return QueueRights(
        queue=queue,
        administer=administer,
        teams=tuple(dict.fromkeys(right.team for right in rights if right.team)),
        max_priority=max(right.max_priority for right in rights),
        max_value_usd=max(values) if len(values) == len(rights) else None,
        must=any(right.must for right in rights),
        rent=any(right.rent for right in rights),
    )


def _limits(rules: Iterable[PolicyRule]) -> dict[str, int]:
    """Of each queue, the GPUs that it may have at once, of whatever model."""
    return {
        rule.scope.queues[0]: int(rule.limit)
        for rule in rules
        if isinstance(rule, CapRow)
        and rule.unit is CapUnit.GPUS
        and rule.period is Period.NOW
        and not rule.each
        and rule.pools == PoolSelector()
        and len(rule.scope.queues) == 1
    }


def lease_row(lease: Lease) -> LeaseRow:
    """A lease as a line."""
    return LeaseRow(
        id=lease.id,
        site=lease.site,
        offer=lease.offer.name,
        market=lease.offer.market,
        status=lease.status,
        gpus=lease.offer.gpus,
        price_usd_h=lease.offer.price_usd_h,
        billed_usd=lease.billed_usd,
        committed_usd=outstanding_usd(lease),
        requested_at=lease.requested_at,
        ready_at=lease.ready_at,
        ended_at=lease.ended_at,
        because=because_of(lease, lease.requested_at),
        reason=lease.reason,
        failure=lease.failure,
        evidence=lease.evidence,
        kept_because=lease.kept_because if lease.status is LeaseStatus.READY else "",
        zone=lease.zone,
    )


def budget_rows(records: Records, now: float) -> list[BudgetRow]:
    """Every cap on money, with what counts against it."""
    rules = spend_rows(records)
    views = {(view.policy, view.period, view.share): view for view in spend(records, now, rules)}
    rows = [_period_row(rule, views[rule.policy, rule.period, rule.share], now) for rule in rules]
    return [*rows, *(_rate_row(records, rule) for rule in records.policies.rules if _is_rate(rule))]


def _period_row(rule: CapRow, view: SpendView, now: float) -> BudgetRow:
    start_at, end_at = period_start(rule.period, now), period_end(rule.period, now)
    paced = end_at is not None and now - start_at >= EARLIEST_PACE * (end_at - start_at)
    forecast = view.spent_usd / (now - start_at) * (end_at - start_at) if paced and end_at else None
    return BudgetRow(
        policy=rule.policy,
        period=rule.period,
        unit=rule.unit,
        limit=rule.limit,
        spent=view.spent_usd,
        committed=view.committed_usd,
        share=rule.share,
        who=_who(rule),
        hard=rule.hard,
        forecast=forecast,
        ends_at=end_at,
    )


def _who(rule: CapRow) -> str:
    return "" if rule.scope == Scope() else whose(rule.scope)


def _is_rate(rule: PolicyRule) -> TypeGuard[CapRow]:
    return isinstance(rule, CapRow) and rule.unit is CapUnit.USD_PER_H


def _rate_row(records: Records, rule: CapRow) -> BudgetRow:
    """What is rented at once, by the hour."""
    counted = [
        lease
        for lease in records.leases.values()
        if lease.policy == rule.policy and lease.status not in LEASE_ENDED
    ]
    return BudgetRow(
        policy=rule.policy,
        period=rule.period,
        unit=rule.unit,
        limit=rule.limit,
        spent=sum(lease.offer.price_usd_h for lease in counted),
        committed=0.0,
        who=_who(rule),
        hard=rule.hard,
    )

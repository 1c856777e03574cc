"""Services whose replicas are spread over sites, so that the loss of one is no outage: as caps that hold for one decision.

Planner and checker know no services. They see a cap on the jobs of one at each site where half of its replicas are, or would be if all that wait went there.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil

from msgspec.structs import replace

from federator.control.record.records import Records
from federator.model.rules import SPREAD, CapRow, CapUnit, PoolSelector, Scope
from federator.model.services import Service
from federator.model.snapshot import JobView, Snapshot
from federator.planning.places.candidates import of_offer, of_pools
from federator.planning.rules.caps import standing_use
from federator.planning.rules.feasibility import reject
from federator.planning.rules.filters import FilterContext
from federator.planning.rules.rulebook import RuleBook
from federator.wire.servicefile import LABEL


def spread_caps(records: Records, snapshot: Snapshot) -> tuple[CapRow, ...]:
    """What keeps the replicas that wait from too full a site. Nothing where no other site that is open could take one: its share of them moves to those that are left."""
    spread = [each for each in records.services.values() if each.scale.spread]
    views = {job.id: job for job in snapshot.jobs} if spread else {}
    return tuple(cap for service in spread for cap in _caps(records, snapshot, service, views))


def _caps(
    records: Records, snapshot: Snapshot, service: Service, views: dict[str, JobView]
) -> Iterator[CapRow]:
    waiting, here = _counted(records, snapshot, service)
    seen = next((views[job] for job in waiting if job in views), None)
    if seen is None:
        return
    most = ceil((len(waiting) + here.total()) / 2)
    places, context = (
        of_pools(snapshot.pools),
        FilterContext(snapshot, RuleBook(snapshot.rules, snapshot.taken_at)),
    )
    if not any(here[at.site] < most and reject(seen, at, context) is None for at in places):
        return
    for site in sorted({at.site for at in (*places, *map(of_offer, snapshot.offers))}):
        room = max(0, most - here[site])
        if room < len(waiting):
            cap = CapRow(
                policy=f"service {service.name}",
                unit=CapUnit.JOBS,
                limit=0.0,
                scope=Scope(owners=(service.owner,), labels={LABEL: service.name}),
                pools=PoolSelector(sites=(site,)),
                share=SPREAD,
            )
            used = sum(standing_use(cap, pool) for pool in snapshot.pools if pool.site == site)
            yield replace(cap, limit=used + room)


def _counted(records: Records, snapshot: Snapshot, service: Service) -> tuple[list[str], Counter[str]]:
    """The replicas among which no site may have more than half: jobs that wait, and how many the open sites have. Those that others take the place of do not count."""
    open_sites = {pool.site for pool in snapshot.pools if pool.open}
    waiting, here = list[str](), Counter[str]()
    for replica in service.replicas:
        job = records.jobs.get(replica.job)
        replaced = not service.canary and replica.revision != service.revision.number
        if job is None or job.terminal or replica.drained_at is not None or replaced:
            continue
        placement = records.placements.get(job.placement or "")
        if placement is None or placement.ended:
            waiting.append(job.id)
        elif placement.site in open_sites:
            here[placement.site] += 1
    return waiting, here

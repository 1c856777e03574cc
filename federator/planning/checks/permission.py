"""Permission: what the job's own constraints, the site's lending and the policies' filters let it use."""

from collections.abc import Iterator

from msgspec.structs import replace

from federator.model.capacity import Market
from federator.model.jobs import APART
from federator.model.rules import BurstMode, Effect, Filter, Opening, Window, selects
from federator.model.snapshot import JobView
from federator.model.whose import is_among
from federator.planning.checks.context import (
    TOLERANCE,
    CheckContext,
    Target,
    concerns,
    expected_run_s,
    extension_usd,
    window_holds,
)
from federator.wire.needs import RENTED

LOOK_S = 7 * 86400.0
"""So far ahead a closing hour is looked for."""


def check_permission(context: CheckContext, job: JobView, target: Target) -> Iterator[str]:
    """All that the job, the site and the policies say of its being there."""
    yield from check_constraints(context, job, target)
    yield from check_filters(context, job, target)


def check_constraints(context: CheckContext, job: JobView, target: Target) -> Iterator[str]:
    """The job asked for such GPUs and such a place, and the site takes its work."""
    yield from _hardware(job, target)
    yield from _too_long(job, target)
    yield from _whereabouts(job, target)
    if any(site == target.site and until_at > context.now for site, until_at in job.refused):
        yield f"{target.site} has refused the job again and again, and is not to be tried again yet"
    if target.lends_to and not is_among(target.lends_to, job.whose):
        yield f"{target.key} does not lend to {job.queue}, {job.owner}, {job.team or 'no team'}"
    trusts = target.pool.trusts if target.pool is not None else None
    if trusts is not None and not is_among(trusts, job.whose):
        yield f"{target.key} keeps no jobs apart, and does not trust {job.owner}"
    for need in job.needs:
        if need not in (target.pool.abilities if target.pool is not None else RENTED):
            yield f"{target.key} has not what the job needs: {need}"
    for name, asks in job.licenses.items():
        limits = [cap.limit for cap in context.caps if cap.license == name and selects(cap.pools, target)]
        if not limits or asks > min(limits):
            yield f"no policy has {asks} licences {name} for work on {target.key}"
    if job.needs_fencing and (target.pool is None or not target.pool.self_fencing):
        yield f"{target.key} does not enforce stop_within, which the job asks for"


def _too_long(job: JobView, target: Target) -> Iterator[str]:
    most = target.pool.longest_s if target.pool is not None else None
    if most is not None and (job.max_duration_s or 0.0) > most:
        yield f"{target.key} ends what runs there after {most:g} s, the job may run for longer"


def _hardware(job: JobView, target: Target) -> Iterator[str]:
    if job.gpus and job.models and target.model not in job.models:
        yield f"{target.key} has {target.model or 'no GPUs'}, the job wants {' or '.join(job.models)}"
    if job.gpus and job.gpu_memory_mib > target.gpu_memory_mib:
        yield f"GPUs of {target.key} have {target.gpu_memory_mib} MiB, the job wants {job.gpu_memory_mib}"
    source = target.pool or (target.offer.offer if target.offer is not None else None)
    if job.gpus and job.shared != bool(source is not None and source.shared):
        yield f"{target.key} {'has no shared GPUs' if job.shared else 'shares its GPUs'}"
    cut, part = target.pool.cut_milli if target.pool is not None else 0, job.gpus / max(1, job.ranks_in_one)
    if job.shared and cut and abs(part - max(1, round(part / cut)) * cut) > cut / 20:
        yield f"{target.key} cuts its GPUs into parts of {cut}, the job wants {part:g}"
    if not job.may_rent and not target.owned:
        yield f"{target.key} is rented, and the job's queue gives its owner no right to rent"
    unwanted = {"spot": Market.ON_DEMAND, "on-demand": Market.SPOT}.get(job.spot_policy)
    if target.market is unwanted:
        yield f"{target.key} is {target.market}, the job's spot_policy is {job.spot_policy}"


def _whereabouts(job: JobView, target: Target) -> Iterator[str]:
    if job.kinds and target.kind not in job.kinds:
        yield f"{target.site} is {target.kind}, the job wants {' or '.join(job.kinds)}"
    if job.sites and target.site not in job.sites:
        yield f"{target.site} is not among the sites that the job names"
    if target.site in job.not_sites:
        yield f"the job excludes {target.site}"
    if job.nodes > 1 and job.together not in ("", APART) and job.together not in target.labels:
        yield f"the job's nodes are to be in one {job.together}, which {target.key} is not"
    for key, value in job.site_labels.items():
        if target.labels.get(key) != value:
            yield f"{target.key} has no label {key}: {value}"


def check_filters(context: CheckContext, job: JobView, target: Target) -> Iterator[str]:
    """It takes work at this hour, no policy denies it; and what is rented, or would be, is allowed by one."""
    yield from _hours(context, job, target)
    for rule in context.filters_on(Effect.DENY, job, target):
        if window_holds(rule.window, context.now):
            yield f"policy {rule.policy} denies {target.key}: {rule.reason or 'no reason given'}"
    if target.owned:
        return
    for rule in context.filters_on(Effect.ALLOW, job, target):
        if rule.mode is BurstMode.OFF and window_holds(rule.window, context.now):
            yield f"policy {rule.policy} has bursting off, whatever others permit"
    if target.offer is not None:
        yield from _halted(context, job)
        if not renting_allows(context, job, target):
            yield f"no policy permits to rent {target.key} for this job now, at {target.price_usd_h:.4g} USD/h"
    elif context.snapshot.burst_paused and extension_usd(job, target, context.now) > TOLERANCE:
        yield f"bursting is paused, and {target.key} would have to be paid for longer"
    elif not _may_use(context, job, target):
        # Hours and price limit renting. What is rented may be used by whoever could rent it: it costs the same idle.
        yield f"no policy permits {target.key}, which is rented, for this job"


def _hours(context: CheckContext, job: JobView, target: Target) -> Iterator[str]:
    """A calendar has it open, and where it stops what runs when it closes, for as long as the job needs that cannot save itself."""
    for rule in context.openings:
        reserved_for_it = rule.but_for is not None and concerns(rule.but_for, job)
        if reserved_for_it or not selects(rule.pools, target):
            continue
        if not _open(rule, context.now):
            yield f"policy {rule.policy} has {target.key} closed at this hour"
        elif rule.stops and not job.saves:
            until = context.now + expected_run_s(job, target)
            if not all(_open(rule, at) for at in _moments(rule, context.now, until)):
                yield f"policy {rule.policy} closes {target.key} before the job is done, which cannot save itself"


def _moments(rule: Opening, now: float, until: float) -> Iterator[float]:
    """When to look whether it is closed before `until`: where a closed time begins, and each minute where hours of the week count."""
    begins = (each.first_at for each in rule.closed if each.first_at is not None)
    yield from (at for at in begins if now < at < until)
    if rule.windows or any(replace(each, first_at=None, until_at=None) != Window() for each in rule.closed):
        first, last = int(now // 60) + 1, int(min(until, now + LOOK_S) // 60) + 1
        yield from (minute * 60.0 for minute in range(first, last) if minute * 60.0 < until)


def _open(rule: Opening, at: float) -> bool:
    return (not rule.windows or any(window_holds(window, at) for window in rule.windows)) and not any(
        window_holds(window, at) for window in rule.closed
    )


def renting_allows(context: CheckContext, job: JobView, target: Target) -> tuple[Filter, ...]:
    """The filters that permit renting this offer for this job at this hour and price."""
    return tuple(
        rule
        for rule in context.filters_on(Effect.ALLOW, job, target)
        if rule.mode is not BurstMode.OFF
        and not rule.advisory
        and window_holds(rule.window, context.now)
        and (rule.max_price_usd_h is None or target.price_usd_h <= rule.max_price_usd_h + TOLERANCE)
    )


def _halted(context: CheckContext, job: JobView) -> Iterator[str]:
    """What stops renting for the job for now; a site that it may not use at all is not waited for. What is away is never of kind `cloud`."""
    if context.snapshot.burst_paused:
        yield "bursting is paused"
    at_home = not job.kinds or any(kind != "cloud" for kind in job.kinds)
    usable = (site for site in context.snapshot.away if not job.sites or site in job.sites)
    if at_home and not set(job.not_sites).issuperset(usable):
        yield "home is not known: a site has been away for a moment only"


def _may_use(context: CheckContext, job: JobView, target: Target) -> bool:
    allows = context.filters_on(Effect.ALLOW, job, target)
    rented_for = target.pool.rented_for if target.pool is not None else ""
    return rented_for == job.id or any(
        rule.mode is not BurstMode.OFF and not rule.advisory for rule in allows
    )

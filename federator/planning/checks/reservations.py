"""Whether GPUs may idle beside a job that fits them: what its reservation says is looked up, and reckoned again from the records alone.

What cannot be known here is what the forecast of the line for a place is. So a moment is held against the ends of what runs there, which
it may not be before, and against the job's patience, which it may not be after; and a saving against the most that it could be.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from federator.model.capacity import Shape
from federator.model.plans import Reservation, ReservedFor
from federator.model.rules import BurstMode, Effect, PriceKind, PriceTerm, selects
from federator.model.snapshot import JobView, PoolView
from federator.planning.checks.context import (
    CheckContext,
    Target,
    concerns,
    forms_of,
    target_of_offer,
    window_holds,
)
from federator.planning.checks.evidence import SLACK_S
from federator.planning.checks.packing import Hosts, rank_of
from federator.planning.checks.permission import check_constraints, check_filters

CENT_USD = 0.01
MUST_USD = 1_000_000.0
DEADLINE_USD_GPU_H = 12.0
"""What a deadline is worth where nobody says, per GPU-hour of the run; and what an hour of waiting is, per GPU."""
WAIT_USD_GPU_H = 0.05
UNPRICED_GPUS = 0.1
"""Of a rank without GPUs, where money is by the GPU."""
RETRIED_H = 10 * 300.0 / 3600.0
"""A start that may be refused, because little is known of the place, costs as much as five minutes of waiting, of interactive work ten times that."""

Option = tuple[JobView, Target]
"""A form of the job, and free owned GPUs that it could start on now."""


def broken(context: CheckContext, job: JobView, kept: Reservation, free: Sequence[Option]) -> str | None:
    """What is wrong with the reservation for which the job leaves these free GPUs alone; None if nothing is."""
    return next(_faults(context, job, kept, free), None)


def _faults(context: CheckContext, job: JobView, kept: Reservation, free: Sequence[Option]) -> Iterator[str]:
    target = _place(context, kept.place)
    if target is None:
        yield f"waits for {kept.place}, which the problem does not have"
        return
    if kept.until_at < context.now - SLACK_S:
        yield f"waits for {kept.place} until {context.now - kept.until_at:.0f} s ago"
    if kept.why is ReservedFor.GANG:
        yield from _gang(context, job, kept, target, free)
        return
    forms = [form for form in forms_of(job) if _permitted(context, form, target)]
    if not forms:
        yield f"waits for {target.key}, which it may not use or which can never hold it"
    elif all(any(form == one and target.key in _keys(context, at) for one, at in free) for form in forms):
        yield f"waits for {target.key}, which is free for it"
    elif kept.why is ReservedFor.CHEAPER:
        yield from _cheaper(context, job, kept, target, free)
    else:
        yield from _in_time(context, job, kept, target, free)
    yield from _room(context, forms, target, kept.until_at, held=False)


def _cheaper(
    context: CheckContext, job: JobView, kept: Reservation, target: Target, free: Sequence[Option]
) -> Iterator[str]:
    late_s = kept.until_at - job.submitted_at - job.patience_s
    if not target.owned:
        yield f"waits for {target.key}, which is rented, because it is cheaper"
    if late_s > SLACK_S:
        yield f"waits for {target.key} until {late_s:.0f} s after its patience ends"
    most = _here_usd(context, job, free) - _run_usd(context, job, target) + _at_stake_usd(context, job)
    if not 0.0 < kept.saves_usd <= most + CENT_USD:
        yield f"waits for {target.key} to save {kept.saves_usd:.2f} USD, which can save at most {most:.2f}"


def _in_time(
    context: CheckContext, job: JobView, kept: Reservation, target: Target, free: Sequence[Option]
) -> Iterator[str]:
    if job.deadline_at is None:
        yield f"waits for {target.key} for its deadline, and has none"
        return
    here = next((at for form, at in free if _end_at(context, form, at) <= job.deadline_at - SLACK_S), None)
    if here is not None:
        yield f"waits for {target.key} for its deadline, which it meets at {here.key}"
    soonest_s = min(_run_s(form, target) for form in forms_of(job))
    if kept.why is ReservedFor.DEADLINE and kept.until_at + soonest_s > job.deadline_at + SLACK_S:
        yield f"waits for {target.key} for its deadline, which it does not meet there"
    if kept.why is ReservedFor.RENTAL and (target.offer is None or kept.until_at > job.deadline_at):
        yield f"waits for a rental of {target.key} that cannot meet its deadline"


def _gang(
    context: CheckContext, job: JobView, kept: Reservation, target: Target, free: Sequence[Option]
) -> Iterator[str]:
    """Another job, which waits for the place and does not fit there yet; and this one would not be done by then."""
    gang = context.jobs.get(kept.for_job)
    if gang is None or gang.id == job.id or gang.id in context.acted:
        yield f"leaves {target.key} to {kept.for_job or 'nobody'}, which does not wait"
        return
    forms = [form for form in forms_of(gang) if _permitted(context, form, target)]
    if not forms:
        yield f"leaves {target.key} to {gang.id}, which may not use it or never fits"
    elif any(context.room(form, context.alike.get(target.key, ())) >= form.nodes for form in forms):
        yield f"leaves {target.key} to {gang.id}, which fits there now"
    yield from _room(context, forms, target, kept.until_at, held=True)
    for form, at in free:
        if target.key not in _keys(context, at):
            yield f"leaves {target.key} to {gang.id}, but {at.key} has free GPUs too that it fits and may use"
        elif _end_at(context, form, at) <= kept.until_at - SLACK_S:
            yield f"leaves {target.key} to {gang.id}, before whose start it would be done"


def _place(context: CheckContext, key: str) -> Target | None:
    found = next((target for target in context.targets if target.key == key), None)
    if found is None and key in context.offers:
        found = target_of_offer(context.offers[key], context.moving)
    return found


def _keys(context: CheckContext, target: Target) -> set[str]:
    return {pool.key for pool in context.alike.get(target.key, ())}


def _end_at(context: CheckContext, form: JobView, at: Target) -> float:
    return context.now + _run_s(form, at)


def _run_s(job: JobView, at: Target) -> float:
    """As planned, from when its data begins to be moved; not cut at its limit."""
    return at.moved(job).seconds + max(1.0, job.run_s / max(job.speed.get(at.model, 1.0), 1e-6))


def _priced_gpus(job: JobView) -> float:
    return job.gpus_total or UNPRICED_GPUS * job.nodes


def _run_usd(context: CheckContext, job: JobView, at: Target) -> float:
    """Owned GPU-hours by their price and what policies add to it, and the data that is moved."""
    hours, price = _run_s(job, at) / 3600.0, at.pool.price_usd_gpu_h if at.pool is not None else 0.0
    more = sum(rule.usd for rule in _prices(context, job, PriceKind.POOL) if selects(rule.pools, at))
    return hours * (price * job.gpus_total + more * _priced_gpus(job)) + at.moved(job).usd


def _prices(context: CheckContext, job: JobView, kind: PriceKind) -> list[PriceTerm]:
    return [
        rule
        for rule in context.snapshot.rules
        if isinstance(rule, PriceTerm)
        and rule.kind is kind
        and concerns(rule.scope, job)
        and window_holds(rule.window, context.now)
    ]


def _here_usd(context: CheckContext, job: JobView, free: Sequence[Option]) -> float:
    """The cheapest run that could start now; of those that meet the deadline, if any does."""
    by = math.inf if job.deadline_at is None else job.deadline_at
    in_time = [at for form, at in free if _end_at(context, form, at) <= by]
    return min(_run_usd(context, job, at) for at in in_time or [at for _, at in free])


def _at_stake_usd(context: CheckContext, job: JobView) -> float:
    """What a better place may gain beside its run at most: the deadline, and no start that is refused. How much sooner a job of several forms is done in another is not reckoned."""
    if job.forms:
        return math.inf
    per_gpu = max((rule.usd for rule in _prices(context, job, PriceKind.WAIT)), default=WAIT_USD_GPU_H)
    per_job = max((rule.usd for rule in _prices(context, job, PriceKind.WAIT_JOB)), default=0.0)
    gpus = job.priced_gpus or _priced_gpus(job)
    stake = RETRIED_H * (per_gpu * gpus + per_job)
    if job.deadline_at is None:
        return stake
    if job.must or job.value_usd is not None:
        return stake + (MUST_USD if job.must else job.value_usd or 0.0)
    price = max((rule.usd for rule in _prices(context, job, PriceKind.MISS)), default=DEADLINE_USD_GPU_H)
    return stake + price * gpus * (job.priced_run_s or job.run_s) / 3600.0


def _permitted(context: CheckContext, job: JobView, target: Target) -> bool:
    """Whether the job may run there, and the place holds it when it is empty. What an hour or a stop of all renting forbids now may be permitted then."""
    if any(check_constraints(context, job, target)):
        return False
    if target.offer is not None:
        return any(rule.mode is not BurstMode.OFF for rule in context.filters_on(Effect.ALLOW, job, target))
    if any(check_filters(context, job, target)):
        return False
    empty = (Hosts([_host(pool)]) for pool in context.alike[target.key])
    return sum(hosts.more(rank_of(job), job.nodes, apart=job.apart) for hosts in empty) >= job.nodes


def _host(pool: PoolView) -> Shape:
    return Shape(pool.gpus_per_node, pool.cpus_milli_per_node, pool.memory_mib_per_node, pool.nodes)


def _room(
    context: CheckContext, forms: Iterable[JobView], target: Target, until_at: float, *, held: bool
) -> Iterator[str]:
    """So many GPUs are free there by then, as far as what runs there ends; of what is held, also what starts there: nothing keeps that from a place that is only waited for."""
    if target.pool is None:
        return
    pools, by = context.alike[target.key], until_at + SLACK_S
    gpus = sum(context.hosts[pool.key].free[0] for pool in pools)
    gpus += sum(busy.nodes * busy.gpus for pool in pools for busy in pool.busy if busy.ends_at <= by)
    starts = (start for pool in pools for start in context.starts.get(pool.key, ()))
    gpus += sum(each for end_at, each in starts if not held or end_at <= by)
    if all(form.nodes * form.gpus > gpus for form in forms):
        yield f"counts on {target.key}, where too few GPUs are free by then"

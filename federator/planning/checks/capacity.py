"""Promises 3 and 4: gangs are whole, and capacity is respected host by host."""

from collections import Counter
from collections.abc import Iterator

from federator.model.capacity import Shape
from federator.model.plans import Place, Rent
from federator.model.snapshot import JobView, PoolView
from federator.planning.checks.context import CheckContext, Fault, Target, draws
from federator.planning.checks.packing import Hosts, Mark, rank_of


def unknown_target(action: Place | Rent) -> Fault:
    """The pool or offer is not (or no longer) there. A place without members names no pool."""
    if isinstance(action, Rent):
        return Fault(4, f"no offer {action.provider}/{action.offer}")
    if not action.members:
        return Fault(3, "the gang has no members")
    return Fault(4, f"no pool {action.pool} at {action.site}/{action.members[0]}")


def check_place(context: CheckContext, job: JobView, target: Target, action: Place) -> Iterator[Fault]:
    """Every rank has a member, all in pools of one place; each is open and ready, in the agent's session that the plan saw."""
    first = target.pool
    if first is None:
        return
    if len(action.members) != job.nodes:
        yield Fault(3, f"the gang has {job.nodes} ranks, the plan has members for {len(action.members)}")
    elif len(action.sessions) != job.nodes:
        yield Fault(4, f"the plan saw sessions for {len(action.sessions)} of {len(action.members)} ranks")
    for member in dict.fromkeys(action.members):
        key = f"{action.site}/{member}/{action.pool}"
        pool = context.pools.get(key)
        if pool is None:
            yield Fault(4, f"no pool {action.pool} at {action.site}/{member}")
            continue
        if context.alike[key] is not context.alike[first.key]:
            yield Fault(
                3, f"the gang lies over {first.key} and {key}, which are not hosts of one make at one site"
            )
        sessions = {s for m, s in zip(action.members, action.sessions, strict=False) if m == member}
        yield from _check_pool(context, pool, sessions, action)


def _check_pool(context: CheckContext, pool: PoolView, sessions: set[str], action: Place) -> Iterator[Fault]:
    """One of the pools that an action uses."""
    if not pool.open:
        yield Fault(4, f"{pool.key} is closed: {pool.closed_because or 'no reason given'}")
    if sessions - {pool.session}:
        yield Fault(
            4, f"{pool.key} has another session than the plan saw: what is free there may have changed"
        )
    if pool.ready_at is not None and pool.ready_at > context.now:
        yield Fault(4, f"{pool.key} still boots, for another {pool.ready_at - context.now:.0f} s")
    if pool.market is not action.market:
        yield Fault(6, f"{pool.key} is {pool.market}, the plan says {action.market}")
    if pool.lease != action.lease:
        yield Fault(6, f"{pool.key} belongs to lease {pool.lease}, the plan says {action.lease}")


def check_rent(context: CheckContext, target: Target, action: Rent) -> Iterator[Fault]:
    """The offer joins the site that the plan says, is not avoided, and so many instances are to be had."""
    view = target.offer
    if view is None:
        return
    if view.site != action.site:
        yield Fault(4, f"{view.key} joins {view.site}, the plan says {action.site}")
    if view.avoid_until_at is not None and view.avoid_until_at > context.now:
        yield Fault(
            4,
            f"{view.key} failed lately and is avoided for another {view.avoid_until_at - context.now:.0f} s",
        )
    if action.machines < 1:
        yield Fault(4, f"the plan rents {action.machines} instances of {view.key}")
    for drawn in draws(view.offer):
        if context.drawn.get(drawn.of, 0) + action.machines * drawn.each > drawn.left:
            text = f"{view.key} has only {drawn.text}, this takes {action.machines} beside earlier actions"
            yield Fault(4, text)


def take_hosts(context: CheckContext, job: JobView, target: Target, action: Place | Rent) -> Iterator[Fault]:
    """Each member's ranks fit hosts of its pool beside earlier actions, and take them; or the instances that are rented hold the whole gang, and not one of them is too many."""
    rank, apart = rank_of(job), job.id if job.apart else ""
    if isinstance(action, Rent):
        offer = target.offer.offer if target.offer is not None else None
        if offer is None:
            return
        whole = offer.gpus_to_plan, offer.cpus_milli, offer.memory_mib
        if not Hosts([Shape(*whole, count=action.machines)]).take(rank, job.nodes, apart):
            yield Fault(3, f"{action.machines} of {target.key} do not hold {_gang(job, job.nodes)}")
        elif action.machines > 1 and Hosts([Shape(*whole, count=action.machines - 1)]).take(
            rank, job.nodes, apart
        ):
            yield Fault(6, f"one less than {action.machines} of {target.key} holds {_gang(job, job.nodes)}")
        return
    before: list[tuple[Hosts, Mark]] = []
    for member, ranks in Counter(action.members).items():
        key = f"{action.site}/{member}/{action.pool}"
        hosts = context.hosts[key]
        before.append((hosts, hosts.mark()))
        if not hosts.take(rank, ranks, apart):
            for changed, mark in before:
                changed.back_to(mark)
            yield Fault(
                4, f"{key} has no room for {_gang(job, ranks)} beside what runs there and earlier actions"
            )
            return


def _gang(job: JobView, ranks: int) -> str:
    return f"{ranks} x ({job.gpus} GPUs, {job.cpus_milli} milli-cores, {job.memory_mib} MiB)"

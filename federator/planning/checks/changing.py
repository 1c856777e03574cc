"""Promise 5 for elastic jobs: one goes on wider within all limits, together with all others that do; and narrower only for a job that room would help.

A job that a limit keeps gains nothing from GPUs that others give up for it: they would idle, and the job would ask for more of them at the next turn.
What is said of a job that is helped holds of the whole plan: others may narrow for it, too.
"""

from collections.abc import Iterator

from federator.model.plans import Preempt
from federator.model.rules import CapUnit
from federator.model.snapshot import JobView, PoolView
from federator.planning.checks.ground import TOLERANCE, Fault, Ground, Target
from federator.planning.checks.permission import check_constraints, check_filters


def check_wider(ground: Ground, action: Preempt) -> Iterator[Fault]:
    """No cap on GPUs and no limit on borrowing is exceeded by what all take that go on wider."""
    caps, guarantees = change_of(ground, action)
    for index, more in enumerate(caps):
        cap, use = ground.caps[index], ground.cap_use[index] + ground.cap_changes[index]
        if more > 0.0 and use + more > cap.limit + TOLERANCE:
            yield Fault(
                5,
                f"policy {cap.policy} caps {cap.unit} at {cap.limit:g}: {use:g} are in use, this adds {more:g}",
            )
    for index, more in enumerate(guarantees):
        row, use = ground.guarantees[index], ground.guarantee_use[index] + ground.guarantee_changes[index]
        if (
            row.borrowing_limit is not None
            and more > 0.0
            and use + more > row.gpus + row.borrowing_limit + TOLERANCE
        ):
            yield Fault(
                5,
                f"queue {row.queue} may borrow {row.borrowing_limit}: it has {use:g} GPUs, this adds {more:g}",
            )


def check_helped(ground: Ground, job: JobView, action: Preempt) -> Iterator[Fault]:
    """The job that others make room for may run there, has no room yet, and then has it and is within its limits."""
    victims = [target for target, _ in ground.running[action.placement]]
    pools = [pool for pool in ground.alike[victims[0].key] if _takes_work(ground, pool)]
    views = [job.as_form(form) for form in range(1 + len(job.forms))]
    views = [view for view in views if pools and _permitted(ground, view, pools[0])]
    if not views:
        yield Fault(5, f"{job.id} may not run where this job does")
    elif any(_room(ground, view, pools) >= view.nodes for view in views):
        yield Fault(5, f"{job.id} has room there without this job")
    elif not (within := [view for view in views if _within_limits(ground, view, victims[0])]):
        yield Fault(5, f"a limit keeps {job.id}, and room does not help it")
    elif not any(_would_fit(ground, view, pools) for view in within):
        yield Fault(5, f"{job.id} would have no room there then, either")


def _takes_work(ground: Ground, pool: PoolView) -> bool:
    return pool.open and (pool.ready_at or 0.0) <= ground.now


def _permitted(ground: Ground, view: JobView, pool: PoolView) -> bool:
    target = next(target for target in ground.targets if target.pool is pool)
    return not (any(check_constraints(ground, view, target)) or any(check_filters(ground, view, target)))


def _room(ground: Ground, view: JobView, pools: list[PoolView]) -> int:
    """For how many of its ranks there is room as things lie."""
    rank = view.gpus, view.cpus_milli, view.memory_mib
    return sum(ground.hosts[pool.key].more(rank, view.nodes, apart=view.apart) for pool in pools)


def _within_limits(ground: Ground, view: JobView, target: Target) -> bool:
    """Whether no cap in use at once and no limit on borrowing keeps it, once all have narrowed that do."""
    _, by_cap, by_guarantee = _narrowed(ground)
    for index in ground.caps_on(view, target):
        cap = ground.caps[index]
        more = {CapUnit.GPUS: view.gpus_total, CapUnit.JOBS: 1.0}.get(cap.unit, 0.0)
        use = ground.cap_use[index] + by_cap[index]
        if more and use + more > cap.limit + TOLERANCE:
            return False
    for index in ground.guarantees_on(view, target):
        row = ground.guarantees[index]
        use = ground.guarantee_use[index] + by_guarantee[index]
        most = None if row.borrowing_limit is None else row.gpus + row.borrowing_limit
        if most is not None and view.gpus_total and use + view.gpus_total > most + TOLERANCE:
            return False
    return True


def _would_fit(ground: Ground, view: JobView, pools: list[PoolView]) -> bool:
    """Whether what is free and what those give up is enough in all: nobody says on which hosts they are."""
    keys = {pool.key for pool in pools}
    left = [0, 0, 0]
    for pool in pools:
        for part, free in enumerate(ground.hosts[pool.key].free):
            left[part] += free
    for action in _narrowed(ground)[0]:
        parts = [busy for target, busy in ground.running[action.placement] if target.key in keys]
        whole = ground.elastic_part(action.placement).waits_as
        if not parts or whole is None or (action.form or 0) > len(whole.forms):
            continue
        then = whole.as_form(action.form or 0)
        for busy in parts:
            left = _plus(left, busy.nodes, (busy.gpus, busy.cpus_milli, busy.memory_mib))
        left = _plus(left, -then.nodes, (then.gpus, then.cpus_milli, then.memory_mib))
    return min(_plus(left, -view.nodes, (view.gpus, view.cpus_milli, view.memory_mib))) >= 0


def _plus(left: list[int], ranks: int, rank: tuple[int, int, int]) -> list[int]:
    return [has + ranks * each for has, each in zip(left, rank, strict=True)]


def change_of(ground: Ground, action: Preempt) -> tuple[list[float], list[float]]:
    """GPUs that a change of form adds to each cap on GPUs, and to each guaranteed queue; less than nothing, where it gives some back."""
    caps, guarantees = [0.0] * len(ground.caps), [0.0] * len(ground.guarantees)
    parts = ground.running[action.placement]
    waits_as = ground.elastic_part(action.placement).waits_as
    if waits_as is None or action.form is None or action.form > len(waits_as.forms):
        return caps, guarantees
    then, target = waits_as.as_form(action.form), parts[0][0]
    more = then.gpus_total - sum(busy.gpus_total for _, busy in parts)
    for index in ground.caps_on(then, target):
        caps[index] = more if ground.caps[index].unit is CapUnit.GPUS else 0.0
    for index in ground.guarantees_on(then, target):
        guarantees[index] = more
    return caps, guarantees


def apply_change(ground: Ground, action: Preempt) -> None:
    """Count an accepted change of form: what others take by theirs comes on top."""
    caps, guarantees = change_of(ground, action)
    ground.cap_changes = _sums(ground.cap_changes, caps)
    ground.guarantee_changes = _sums(ground.guarantee_changes, guarantees)


def _narrowed(ground: Ground) -> tuple[list[Preempt], list[float], list[float]]:
    """The changes of form that make room for others, and what they come to for each cap and each guaranteed queue."""
    if ground.narrowed is None:
        stops = [a for a in ground.plan.actions if isinstance(a, Preempt) and a.form is not None]
        found = [a for a in stops if a.beneficiary != a.job and a.placement in ground.running]
        caps, guarantees = [0.0] * len(ground.caps), [0.0] * len(ground.guarantees)
        for by_cap, by_guarantee in (change_of(ground, action) for action in found):
            caps, guarantees = _sums(caps, by_cap), _sums(guarantees, by_guarantee)
        ground.narrowed = found, caps, guarantees
    return ground.narrowed


def _sums(these: list[float], those: list[float]) -> list[float]:
    return [sum(pair) for pair in zip(these, those, strict=True)]

"""What a right admits, and what a patch may change. Pure: rights and values in, values or a named refusal out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from federator.control.administration.authority import Authority, Right
from federator.control.submission.amended_specs import NONE, amends
from federator.kernel.errors import Forbidden, Invalid, TooMany
from federator.kernel.quantities import parse_duration_s, parse_usd
from federator.model.identity import Caller
from federator.model.jobs import Job
from federator.model.rights import MAY_CHANGE
from federator.model.rules import CapRow, CapUnit, PolicyRule, QueueTerms
from federator.settings import LimitSettings
from federator.wire.fields import moment_at
from federator.wire.http import JobPatch
from federator.wire.nearest import nearest

DEFAULT_PRIORITY = 50
MUST = "must"
MOST_NAMED = 10
"""Names that a refusal lists."""


class Claim(NamedTuple):
    """What a job claims, and the right by which it may."""

    right: Right
    priority: int
    value_usd: float | None
    must: bool


def claim(
    rights: Sequence[Right], *, priority: int | None, value_usd: float | None = None, must: bool = False
) -> Claim:
    """The first of the rights that admits all that is claimed. Raises `Invalid` as the first of them refuses it, naming the field."""
    refused: Invalid | None = None
    for right in rights:
        try:
            return Claim(right, _priority(right, priority), _value_usd(right, value_usd), _must(right, must))
        except Invalid as error:
            refused = refused or error
    assert refused is not None, "there is no empty list of rights"
    raise refused


def _priority(right: Right, wanted: int | None) -> int:
    """The priority asked for, or the default, never above the cap."""
    if wanted is None:
        return min(DEFAULT_PRIORITY, right.max_priority)
    if not 0 <= wanted <= right.max_priority:
        raise Invalid(
            f"{wanted} is outside 0..{right.max_priority}, which {_gives(right)}",
            field="$.priority",
            remedy="lower it" if wanted > 0 else "raise it",
        )
    return wanted


def _value_usd(right: Right, wanted: float | None) -> float | None:
    """The value claimed, never above the cap."""
    if wanted is not None and right.max_value_usd is not None and wanted > right.max_value_usd:
        raise Invalid(
            f"{wanted:.2f} USD is above the {right.max_value_usd:.2f} USD that {_gives(right)}",
            field="$.value",
            remedy="lower it",
        )
    return wanted


def _must(right: Right, wanted: bool) -> bool:  # noqa: FBT001 - the value that is claimed
    """`value: must`, where it is allowed."""
    if wanted and not right.must:
        raise Invalid(
            f"queue {right.queue} does not allow {f'{right.whom} ' if right.whom else ''}'must'",
            field="$.value",
            remedy="give an amount, or ask an administrator of the queue",
        )
    return wanted


def _gives(right: Right) -> str:
    return f"queue {right.queue} allows {right.whom}".rstrip()


def deadline_at(terms: QueueTerms, wanted: float | None, now: float) -> float | None:
    """The job's own deadline, or the queue's deadline budget from now."""
    if wanted is not None or terms.deadline_budget_s is None:
        return wanted
    return now + terms.deadline_budget_s


def check_limits(tasks: int, wait: int, queued: int, limits: LimitSettings) -> None:
    """Raise the refusal of a submission of so many tasks, of which so many wait as jobs at once, while so many jobs are queued."""
    if queued + wait > limits.queued_jobs:
        most = f"at most {limits.queued_jobs} may be (limits.queued_jobs)"
        raise TooMany(f"queued jobs would be {queued + wait}, and {most}", retry_after_s=60.0)
    if tasks > limits.array_tasks:
        raise Invalid(
            f"{tasks} tasks are more than {limits.array_tasks}", field="$.array", remedy="split the array"
        )


def check_licenses(asked: Mapping[str, int], rules: Iterable[PolicyRule]) -> None:
    """Raise `Invalid` for licences that no policy has, or has not so many of anywhere."""
    if not asked:
        return
    most: dict[str, float] = {}
    for rule in rules:
        if isinstance(rule, CapRow) and rule.unit is CapUnit.LICENSES:
            most[rule.license] = max(rule.limit, most.get(rule.license, 0.0))
    for name, count in asked.items():
        if name not in most:
            near = nearest(name, most)
            known = f"known are {', '.join(sorted(most)[:MOST_NAMED])}" if most else "there are none"
            raise Invalid(
                "no policy has such licences",
                field=f"$.licenses.{name}",
                remedy=f"did you mean {near}?" if near else known,
            )
        if count > most[name]:
            raise Invalid(
                f"{count} are more than the {most[name]:g} that there are",
                field=f"$.licenses.{name}",
                remedy="ask for fewer",
            )


def patched(job: Job, patch: JobPatch, authority: Authority, caller: Caller, now: float) -> tuple[Job, str]:
    """The job after the patch, and what was set, in words; of what it needs and where it may run nothing (`amended_specs`). Raises `Invalid` with the field, and `Forbidden` for what `caller` has no right to.

    A right is needed for what is claimed anew: another queue, a higher priority, a higher value, `must`. To ask for less needs none.
    """
    fields: dict[str, object] = {}
    if patch.deadline is not None:
        fields["deadline_at"] = (
            None if patch.deadline == NONE else moment_at(patch.deadline, "$.deadline", now=now)
        )
    if patch.max_duration is not None:
        fields["max_duration_s"] = (
            None
            if patch.max_duration == NONE
            else _read(parse_duration_s, patch.max_duration, "$.max_duration")
        )
    if patch.max_cost is not None:
        fields["max_cost_usd"] = (
            None if patch.max_cost == NONE else _read(parse_usd, patch.max_cost, "$.max_cost")
        )
    if patch.priority is not None:
        fields["priority"] = patch.priority
    if patch.value == MUST:
        fields["must"] = True
    elif patch.value is not None:
        amount = None if patch.value == NONE else _read(parse_usd, patch.value, "$.value")
        fields |= {"value_usd": amount, "must": False}
    wished = msgspec.structs.replace(job, **fields)
    if patch.queue is not None:
        fields |= _moved(job, wished, patch, authority, caller)
    elif _claims_more(job, wished):
        rights = _rights(job, job.queue, authority, caller)
        claim(rights, priority=wished.priority, value_usd=wished.value_usd, must=wished.must)
    if not fields and not amends(patch):
        raise Invalid("nothing to change", remedy=f"give one of {', '.join(JobPatch.__struct_fields__)}")
    what = ", ".join(
        f"{name}={value}" for name, value in msgspec.to_builtins(patch).items() if value is not None
    )
    return msgspec.structs.replace(job, **fields), what


def most_priority(job: Job, authority: Authority, caller: Caller) -> int | None:
    """The highest priority that `caller` may give the job where it is; None for whoever may not change it."""
    if not authority.relations(caller, job) & MAY_CHANGE:
        return None
    try:
        return max(right.max_priority for right in _rights(job, job.queue, authority, caller))
    except (Invalid, Forbidden):
        return None


def _claims_more(job: Job, wished: Job) -> bool:
    return (
        wished.priority > job.priority
        or wished.priority < 0
        or (wished.must and not job.must)
        or (wished.value_usd or 0.0) > (job.value_usd or 0.0)
    )


def _moved(job: Job, wished: Job, patch: JobPatch, authority: Authority, caller: Caller) -> dict[str, object]:
    """What becomes of it in another queue. All that it claims is claimed there; a priority that is not given is lowered to what is allowed."""
    assert patch.queue is not None
    rights = _rights(job, patch.queue, authority, caller)
    priority = patch.priority
    if priority is None:
        priority = min(job.priority, max(right.max_priority for right in rights))
    won = claim(rights, priority=priority, value_usd=wished.value_usd, must=wished.must)
    fields: dict[str, object] = {"queue": won.right.queue, "priority": won.priority}
    if patch.queue == job.queue:
        return fields
    return {**fields, "team": won.right.team, "may_rent": won.right.rent}


def _rights(job: Job, queue: str, authority: Authority, caller: Caller) -> tuple[Right, ...]:
    """By whose right a job may be in a queue: its owner's, unless who administers that queue decides it."""
    team = job.team if queue == job.queue else ""
    if caller.name == job.owner:
        return authority.rights(caller, queue, team)
    if authority.administers(caller, queue):
        return tuple(
            msgspec.structs.replace(right, team=job.team) for right in authority.rights(caller, queue)
        )
    return authority.owners_rights(job, queue)


def _read(parse: Callable[[str], float], text: str, field: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise Invalid(str(error), field=field) from error

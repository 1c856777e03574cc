"""`apply`: do what `explain` advises, as far as a job can be changed while it lives."""

import math
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from federator.cli.jobs import act_on
from federator.cli.output import Output
from federator.cli.session import HERE, Connection, JobName, ask
from federator.kernel.errors import Conflict, Invalid
from federator.kernel.quantities import format_instant
from federator.model.changes import AskFor, Remedy, WaitUntil
from federator.wire.http import JobPatch

_PATCHED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "deadline_at": ("deadline", lambda at: format_instant(math.ceil(float(at)))),
    "value_usd": ("value", lambda usd: f"{usd} USD"),
    "max_cost_usd": ("max_cost", lambda usd: f"{usd} USD"),
    "max_duration_s": ("max_duration", lambda seconds: f"{math.ceil(float(seconds))}s"),
    "queue": ("queue", str),
    "priority": ("priority", str),
    "models": ("models", lambda names: "|".join(names) or "none"),
    "nodes": ("nodes", str),
    "gpus": ("gpus", str),
    "gpu_memory_mib": ("gpu_memory", lambda mib: f"{mib}MiB"),
    "cpus_milli": ("cpus", lambda milli: f"{milli / 1000:g}"),
    "memory_mib": ("memory", lambda mib: f"{mib}MiB"),
    "sites": ("sites", lambda names: "|".join(names) or "none"),
    "not_sites": ("not_sites", lambda names: "|".join(names) or "none"),
}
"""What may be changed while a job lives, by the field that advice is about, and as it is written."""


def apply(
    job: JobName,
    number: Annotated[int, Parameter(help="Which advice, by its number in `federator explain JOB`.")],
    /,
    *,
    output: Output = "table",
    connection: Connection = HERE,
) -> int:
    """Do what `federator explain JOB` advises: change the job's priority, deadline, value, limit on cost or duration, queue, what it needs, or its sites.

    Of an array, that of the task that is explained is done to all its tasks. What only another job file, a site or a policy could change is refused with what to do instead. Advice is of the moment; what was done is printed.
    """
    told, _ = ask(connection, lambda client: client.explain(job))
    if not 1 <= number <= len(told.remedies):
        there = f"it is 1 to {len(told.remedies)}" if told.remedies else "there is none for this job"
        raise Invalid(
            f"there is no advice {number}", field="NUMBER", remedy=f"{there}: federator explain {job}"
        )
    remedy = told.remedies[number - 1]
    patch = patch_of(remedy, told.job)
    whom = job if told.tasks else told.job
    return act_on("update", (whom,), output, connection, patch, f"now has {remedy.text}")


def patch_of(remedy: Remedy, job: str) -> JobPatch:
    """What it changes of the job. Raises `Conflict` for what is not the job's to change."""
    fields: dict[str, str] = {}
    for change in remedy.changes:
        if isinstance(change, WaitUntil):
            raise Conflict(f"it only takes time: {remedy.text}", remedy=f"federator wait {job}")
        if not isinstance(change, AskFor) or change.job != job:
            raise Conflict(
                f"this is not the job's to change: {remedy.text}",
                remedy="ask a user with the role platform, or the site's administrator",
            )
        if change.field == "approved_usd":
            raise Conflict(
                f"a person has to approve it: {remedy.text}", remedy=f"federator burst approve {job}"
            )
        if change.field not in _PATCHED or change.form:
            raise Conflict(
                f"a job cannot be changed in that: {remedy.text}",
                remedy="change its file, cancel it and submit it again",
            )
        name, text = _PATCHED[change.field]
        fields[name] = "none" if change.value is None else text(change.value)
    return msgspec.convert(fields, JobPatch, strict=False)


def can_be_applied(remedy: Remedy, job: str) -> bool:
    """Whether `apply` would do it."""
    try:
        patch_of(remedy, job)
    except Conflict:
        return False
    return True

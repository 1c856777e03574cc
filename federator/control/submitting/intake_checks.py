"""What a queue gives and forbids, and what a patch may change. Pure: rules and values in, values or a named refusal out."""

from collections.abc import Callable, Iterable

import msgspec

from federator.kernel.errors import Invalid, TooMany
from federator.kernel.quantities import parse_duration_s, parse_usd
from federator.model.jobs import Job
from federator.model.rules import QueueTerms, Rule
from federator.settings import LimitSettings
from federator.wire.fields import moment_at
from federator.wire.http import JobPatch

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 50
NONE = "none"


class QueueBook:
    """The queues that policies name, and `default`, which always exists."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._terms = {rule.queue: rule for rule in rules if isinstance(rule, QueueTerms)}
        self._terms.setdefault(DEFAULT_QUEUE, QueueTerms(policy="built-in", queue=DEFAULT_QUEUE))

    @property
    def queues(self) -> tuple[QueueTerms, ...]:
        """All of them, by path."""
        return tuple(self._terms[path] for path in sorted(self._terms))

    def terms(self, path: str) -> QueueTerms:
        """The queue of that path. Raises `Invalid`, naming those that exist."""
        if path not in self._terms:
            known = ", ".join(sorted(self._terms)[:20])
            raise Invalid(f"no queue {path!r}", field="$.queue", remedy=f"queues are: {known}")
        return self._terms[path]

    def priority(self, terms: QueueTerms, wanted: int | None) -> int:
        """The priority asked for, or the default, never above the queue's cap."""
        if wanted is None:
            return min(DEFAULT_PRIORITY, terms.max_priority)
        if not 0 <= wanted <= terms.max_priority:
            raise Invalid(
                f"{wanted} is outside 0..{terms.max_priority}, which queue {terms.queue} allows",
                field="$.priority",
                remedy="lower it",
            )
        return wanted

    def deadline_at(self, terms: QueueTerms, wanted: float | None, now: float) -> float | None:
        """The job's own deadline, or the queue's deadline budget from now."""
        if wanted is not None or terms.deadline_budget_s is None:
            return wanted
        return now + terms.deadline_budget_s

    def value_usd(self, terms: QueueTerms, wanted: float | None) -> float | None:
        """The value claimed, never above the queue's cap."""
        if wanted is not None and terms.max_value_usd is not None and wanted > terms.max_value_usd:
            raise Invalid(
                f"{wanted:.2f} USD is above the {terms.max_value_usd:.2f} USD that queue {terms.queue} allows",
                field="$.value",
            )
        return wanted

    def must(self, terms: QueueTerms, *, wanted: bool) -> bool:
        """`value: must`, where the queue allows it."""
        if wanted and not terms.allow_must:
            raise Invalid(
                f"queue {terms.queue} does not allow 'must'",
                field="$.value",
                remedy="give an amount, or ask its owner",
            )
        return wanted


def check_limits(tasks: int, queued: int, limits: LimitSettings) -> None:
    """Raise the refusal of a submission of so many tasks, while so many jobs are queued."""
    if queued + tasks > limits.queued_jobs:
        most = f"at most {limits.queued_jobs} may be (limits.queued_jobs)"
        raise TooMany(f"queued jobs would be {queued + tasks}, and {most}", retry_after_s=60.0)
    if tasks > limits.array_tasks:
        raise Invalid(
            f"{tasks} tasks are more than {limits.array_tasks}", field="$.array", remedy="split the array"
        )


def patched(job: Job, patch: JobPatch, queues: QueueBook, now: float) -> tuple[Job, str]:
    """The job after the patch, and what was set, in words. Raises `Invalid` with the field."""
    terms = queues.terms(patch.queue or job.queue)
    fields: dict[str, object] = {}
    if patch.queue is not None:
        fields["queue"] = terms.queue
    if patch.priority is not None or patch.queue is not None:
        fields["priority"] = queues.priority(
            terms, patch.priority if patch.priority is not None else min(job.priority, terms.max_priority)
        )
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
    if patch.value == "must":
        fields["must"] = queues.must(terms, wanted=True)
    elif patch.value is not None:
        amount = None if patch.value == NONE else _read(parse_usd, patch.value, "$.value")
        fields |= {"value_usd": queues.value_usd(terms, amount), "must": False}
    if not fields:
        raise Invalid(
            "nothing to change", remedy="give priority, deadline, queue, max_cost, max_duration or value"
        )
    what = ", ".join(
        f"{name}={value}" for name, value in msgspec.to_builtins(patch).items() if value is not None
    )
    return msgspec.structs.replace(job, **fields), what


def _read(parse: Callable[[str], float], text: str, field: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise Invalid(str(error), field=field) from error

"""What can only be seen of a whole set of rules: contradictions between documents, and what queues take from those above.

It works on the closed vocabulary and not on specs, so that a kind that is added needs no change here.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from federator.kernel.errors import Invalid
from federator.model.allotments import AllotmentRule
from federator.model.queues import DEFAULT_QUEUE, under, upwards
from federator.model.rights import AccessRule, TeamRule
from federator.model.rules import (
    CapRow,
    CapUnit,
    Each,
    Filter,
    GuaranteeRow,
    Opening,
    Period,
    PolicyRule,
    PoolSelector,
    PreemptRule,
    PriceTerm,
    QueueTerms,
    Scope,
)

NEAREST = (
    "deadline_budget_s",
    "idle_verb",
    "max_duration_s",
    "max_idle_s",
    "max_wait_s",
    "patience_s",
    "usage_half_life_s",
)
"""What a queue does not say of these, the nearest queue above says."""


class Fault(NamedTuple):
    """A contradiction, and the policy (`Kind/name`) whose document shows it."""

    policy: str
    error: Invalid


def check_rules(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """Every contradiction between documents; the first of a kind is enough for an error."""
    yield from _queues_given_twice(rules)
    yield from _unknown_queues(rules)
    yield from _guarantees_above_limits(rules)
    yield from _weights_of_nothing(rules)
    yield from _unknown_teams(rules)
    yield from _allotments_of_no_queue(rules)
    yield from _reserved_twice(rules)


def completed(rules: Sequence[PolicyRule]) -> tuple[PolicyRule, ...]:
    """With the default queue, and each queue's terms filled in from the queues above it.

    Terms in `NEAREST` that a queue does not say are those of the nearest queue above that does. Caps on priority and
    value hold for all below: the lowest on the way up counts.
    """
    terms = {rule.queue: rule for rule in rules if isinstance(rule, QueueTerms)}
    added = [] if DEFAULT_QUEUE in terms else [QueueTerms(policy="Queue/default", queue=DEFAULT_QUEUE)]
    return (*(_inherited(rule, terms) if isinstance(rule, QueueTerms) else rule for rule in rules), *added)


def _inherited(own: QueueTerms, terms: dict[str, QueueTerms]) -> QueueTerms:
    for path in upwards(own.queue)[1:]:
        upper = terms.get(path)
        if upper is None:
            continue
        values = [each for each in (own.max_value_usd, upper.max_value_usd) if each is not None]
        own = msgspec.structs.replace(
            own,
            **{name: getattr(upper, name) for name in NEAREST if getattr(own, name) is None},
            max_priority=min(own.max_priority, upper.max_priority),
            max_value_usd=min(values, default=None),
            usage_weights=own.usage_weights or upper.usage_weights,
        )
    return own


def _weights_of_nothing(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """Weights of past use where past use does not count, in the queue itself or in any below."""
    counting = {
        rule.queue for rule in completed(rules) if isinstance(rule, QueueTerms) and rule.usage_half_life_s
    }
    for rule in rules:
        if (
            isinstance(rule, QueueTerms)
            and rule.usage_weights
            and not any(under(queue, rule.queue) for queue in counting)
        ):
            yield Fault(
                rule.policy,
                Invalid(
                    "has no effect where past use does not count",
                    field="$.spec.usage_weights",
                    remedy="write usage_half_life: 7d beside it, or leave it out",
                ),
            )


def _queues_given_twice(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    first: dict[str, str] = {}
    for rule in rules:
        if isinstance(rule, QueueTerms) and first.setdefault(rule.queue, rule.policy) != rule.policy:
            yield Fault(
                rule.policy,
                Invalid(
                    f"the queue {rule.queue} is already that of {first[rule.queue]}",
                    field="$.spec.path",
                    remedy="write both into one document",
                ),
            )


def _unknown_queues(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """A queue that has none below it and no document is a mistyped name."""
    paths = {rule.queue for rule in rules if isinstance(rule, QueueTerms)} | {DEFAULT_QUEUE}
    known = {above for path in paths for above in upwards(path)}
    for rule in rules:
        for field, scope in _scopes(rule):
            for index, path in enumerate(scope.queues):
                if path not in known:
                    yield Fault(
                        rule.policy,
                        Invalid(
                            f"there is no queue {path}",
                            field=f"$.spec.{field}.queues[{index}]",
                            remedy=f"known are {', '.join(sorted(known))}",
                        ),
                    )


def _unknown_teams(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """A team without a document is a mistyped name, and would let nobody in."""
    known = {rule.team for rule in rules if isinstance(rule, TeamRule)}
    for rule in rules:
        for field, teams in _teams_named(rule):
            for index, team in enumerate(teams):
                if team not in known:
                    yield Fault(
                        rule.policy,
                        Invalid(
                            f"there is no team {team!r}",
                            field=f"$.spec.{field}.teams[{index}]",
                            remedy=f"known are {', '.join(sorted(known))}"
                            if known
                            else f"write a Team document called {team}",
                        ),
                    )


def _allotments_of_no_queue(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """Nobody can submit to a queue that has no document."""
    known = {rule.queue for rule in rules if isinstance(rule, QueueTerms)} | {DEFAULT_QUEUE}
    for rule in rules:
        if isinstance(rule, AllotmentRule) and rule.allotment.queue not in known:
            remedy = f"known are {', '.join(sorted(known))}"
            error = Invalid(f"there is no queue {rule.allotment.queue}", field="$.spec.queue", remedy=remedy)
            yield Fault(rule.policy, error)


def _reserved_twice(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """Where capacity is reserved for some and at the same time for others, neither may use it."""
    kept = [rule for rule in rules if isinstance(rule, Opening) and rule.but_for is not None]
    spans = sorted(
        (
            (span.first_at or 0.0, span.until_at or math.inf, n)
            for n, rule in enumerate(kept)
            for span in rule.closed
        )
    )
    for place, (_, until_at, first) in enumerate(spans):
        for begins_at, _, second in spans[place + 1 :]:
            if begins_at >= until_at:
                break
            one, other = kept[first], kept[second]
            if one.but_for != other.but_for and _may_meet(one.pools, other.pools):
                remedy = "choose other times, or name sites or models of which the other has none"
                told = f"overlaps with {one.policy}, which reserves for others: nobody could use what both are about"
                yield Fault(other.policy, Invalid(told, field="$.spec.from", remedy=remedy))
                return


def _may_meet(one: PoolSelector, other: PoolSelector) -> bool:
    """Whether some capacity may be of both."""
    pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    return all(not a or not b or set(a) & set(b) for a, b in pairs)


def _teams_named(rule: PolicyRule) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The teams that a rule names, each by the field that does."""
    if isinstance(rule, AccessRule):
        for number, grant in enumerate(rule.allow or ()):
            yield f"allow[{number}]", grant.who.teams
        yield "admins", rule.admins.teams


def _scopes(rule: PolicyRule) -> tuple[tuple[str, Scope], ...]:
    """Whom it is about, each by the field that says so."""
    if isinstance(rule, Filter | CapRow | PriceTerm):
        return (("who", rule.scope),)
    if isinstance(rule, Opening) and rule.but_for is not None:
        return (("who", rule.but_for),)
    if isinstance(rule, PreemptRule):
        return (("who", rule.who), ("may_displace", rule.victims))
    return ()


def _guarantees_above_limits(rules: Sequence[PolicyRule]) -> Iterator[Fault]:
    """What a queue's children are guaranteed together must fit under its limit, and under every limit further up; so must each model's."""
    guaranteed: dict[str, dict[str, int]] = {}
    for rule in rules:
        if isinstance(rule, GuaranteeRow):
            guaranteed.setdefault(rule.model, {})[rule.queue] = rule.gpus
    for rule in rules:
        limited = _limited_queue(rule)
        if limited is None or not isinstance(rule, CapRow):
            continue
        path, model = limited
        gpus = guaranteed.get(model, {})
        owed = _owed(path, gpus)
        if owed > rule.limit:
            what = f"{model} GPUs" if model else "GPUs"
            below = ", ".join(
                f"{queue} {count}" for queue, count in sorted(gpus.items()) if count and under(queue, path)
            )
            yield Fault(
                rule.policy,
                Invalid(
                    f"the limit of {rule.limit:g} {what} is below the {owed} that are guaranteed to queues in it ({below})",
                    field=f"$.spec.limit.models.{model}" if model else "$.spec.limit.gpus",
                    remedy=f"write at least {owed}, or guarantee less below",
                ),
            )


def _limited_queue(rule: PolicyRule) -> tuple[str, str] | None:
    """The queue whose GPUs a rule limits, wherever they are and whoever uses them, and the one model that it limits, or all."""
    if (
        isinstance(rule, CapRow)
        and rule.unit == CapUnit.GPUS
        and rule.period == Period.NOW
        and rule.each is Each.TOGETHER
        and rule.pools == PoolSelector(models=rule.pools.models)
        and len(rule.pools.models) <= 1
        and len(rule.scope.queues) == 1
        and rule.scope == Scope(queues=rule.scope.queues)
    ):
        return rule.scope.queues[0], "".join(rule.pools.models)
    return None


def _owed(path: str, guaranteed: dict[str, int]) -> int:
    """What the queue must be able to use: its own guarantee, or its children's together if that is more."""
    below = [queue for queue in guaranteed if _is_below(queue, path)]
    nearest = [queue for queue in below if not any(_is_below(queue, other) for other in below)]
    return max(guaranteed.get(path, 0), sum(_owed(queue, guaranteed) for queue in nearest))


def _is_below(queue: str, path: str) -> bool:
    return queue != path and under(queue, path)

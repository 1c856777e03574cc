"""Rules in words: what a set of policies will do, one sentence per rule, so that two sets can be compared by their effect."""

from collections.abc import Callable
from typing import Any

import msgspec

from federator.kernel.quantities import format_duration as span
from federator.model.allotments import AllotmentRule
from federator.model.rights import MAX_PRIORITY, AccessRule, Grant, Members, TeamRule
from federator.model.rules import (
    CapRow,
    CapUnit,
    Each,
    Effect,
    Filter,
    GuaranteeRow,
    Opening,
    Period,
    PolicyRule,
    PoolSelector,
    PreemptRule,
    PriceKind,
    PriceTerm,
    QueueTerms,
    Scope,
    Window,
)
from federator.planning.wording import guaranteed, moment, money

ALWAYS = "every day 00:00-24:00"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_UNITS = {
    CapUnit.GPUS: "{:g} GPU{} at once",
    CapUnit.JOBS: "{:g} job{} at once",
    CapUnit.USD_PER_H: "{:.2f} USD per hour rented at once",
    CapUnit.USD: "{:.2f} USD spent and committed",
    CapUnit.INSTANCES: "{:g} instance{} at once",
    CapUnit.LICENSES: "{:g} licence{} {} at once",
}


def in_words(rule: PolicyRule) -> str:
    """One sentence that begins with the policy; equal for rules that do the same."""
    said = _SAID.get(type(rule))
    # Or a kind that is not of this page.
    text = said(rule) if said else msgspec.json.encode(rule, order="sorted").decode()
    return f"{rule.policy}: {text}"


def whose(scope: Scope) -> str:
    """Whom a rule is about."""
    parts = []
    if scope.queues:
        parts.append(f"queue {' or '.join(scope.queues)}")
    if scope.not_queues:
        parts.append(f"everybody except queue {' and '.join(scope.not_queues)}")
    if scope.owners:
        parts.append(f"owner {' or '.join(scope.owners)}")
    parts += [f"label {key}={value}" for key, value in sorted(scope.labels.items())]
    return ", ".join(parts) or "everybody"


def kept_for(rule: Opening) -> str:
    """For whom a place is kept that the rule closes."""
    return "nobody" if rule.but_for is None else whose(rule.but_for)


def where(pools: PoolSelector) -> str:
    """Which capacity a rule is about."""
    fields = {
        "site": pools.sites,
        "kind": pools.kinds,
        "provider": pools.providers,
        "region": pools.regions,
        "market": pools.markets,
        "model": pools.models,
    }
    return (
        ", ".join(f"{name} {' or '.join(words)}" for name, words in fields.items() if words) or "everywhere"
    )


def hours(window: Window) -> str:
    """When a window holds."""
    days = "every day" if len(window.days) == len(DAYS) else ", ".join(DAYS[day] for day in window.days)
    begin, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (window.from_minute, window.to_minute))
    daily = f"{days} {begin}-{end}"
    if daily == ALWAYS and window.first_at is not None:
        daily = ""
    since = "" if window.first_at is None else f" from {moment(window.first_at, 0.0)}"
    until = "" if window.until_at is None else f" until {moment(window.until_at, 0.0)}"
    return f"{daily}{since}{until}".strip()


def _filter(rule: Filter) -> str:
    when = f", {hours(rule.window)}" if rule.window else ""
    about = f"{whose(rule.scope)}; {'all but ' if rule.beyond else ''}{where(rule.pools)}{when}"
    if rule.data is not None:
        about += f"; data {msgspec.json.encode(rule.data, order='sorted').decode()}"
    if rule.effect is Effect.DENY:
        return f"forbids {about}{': ' + rule.reason if rule.reason else ''}"
    how = rule.mode.value if rule.mode else "economic"
    how += " (also against waiting)" if rule.for_waiting else ""
    how += f" after {span(rule.after_wait_s)} of waiting" if rule.after_wait_s is not None else ""
    how += f", up to {money(rule.max_price_usd_h)} per hour" if rule.max_price_usd_h is not None else ""
    if rule.approval_above_usd is not None:
        how += f", with a person's approval above {money(rule.approval_above_usd)}"
    verb = "advises to rent, and rents nothing" if rule.advisory else "lets rent"
    return f"{verb}, {how}: {about}"


def _cap(rule: CapRow) -> str:
    period = {Period.NOW: "", Period.TOTAL: " in all"}.get(rule.period, f" per {rule.period.value}")
    each = {Each.OWNER: "each owner of ", Each.JOB: "each job of "}.get(rule.each, "")
    verb = "holds" if rule.hard else "only warns"
    alerts = ", ".join(f"{level:.0%}" for level in rule.alerts)
    told = f"; people are told at {alerts}" if alerts else ""
    amount = _UNITS[rule.unit].format(rule.limit, "" if rule.limit == 1 else "s", rule.license)
    return f"{verb} {each}{whose(rule.scope)} to {amount}{period} ({where(rule.pools)}){told}"


def _guarantee(rule: GuaranteeRow) -> str:
    model = f" {rule.model}" if rule.model else ""
    beside = (
        f" with {guaranteed(msgspec.structs.replace(rule, gpus=0))}"
        if rule.cpus_milli or rule.memory_mib
        else ""
    )
    text = f"queue {rule.queue} is guaranteed {rule.gpus} owned{model} GPUs{beside}, back within {span(rule.reclaim_s)}, weight {rule.weight:g}"
    if rule.borrowing_limit is not None:
        text += f", borrows at most {rule.borrowing_limit}"
    if rule.lending_limit is not None:
        text += f", lends at most {rule.lending_limit}"
    return text


def _price(rule: PriceTerm) -> str:
    when = f", {hours(rule.window)}" if rule.window else ""
    about = f"{whose(rule.scope)}{when}"
    if rule.kind is PriceKind.POOL:
        return f"adds {money(rule.usd)} per GPU-hour: {about}; {where(rule.pools)}"
    if rule.kind is PriceKind.WAIT_JOB:
        return f"waiting costs {money(rule.usd)} per job and hour besides: {about}"
    what = "a met deadline is worth" if rule.kind is PriceKind.MISS else "waiting costs"
    return f"{what} {money(rule.usd)} per GPU-hour: {about}"


def _preempt(rule: PreemptRule) -> str:
    return (
        f"{whose(rule.who)} may displace {whose(rule.victims)}, {rule.minimum_priority_gap} points of priority below, after a run of "
        f"{span(rule.minimum_run_s)}, not again within {span(rule.cool_down_s)}, to start sooner than in {span(rule.patience_s)}"
    )


def _queue(rule: QueueTerms) -> str:
    parts = [f"queue {rule.queue}: priority up to {rule.max_priority}"]
    parts += ["interactive"] if rule.interactive else []
    parts += ["must allowed"] if rule.allow_must else []
    if rule.max_value_usd is not None:
        parts.append(f"value up to {money(rule.max_value_usd)}")
    for text, seconds in (
        ("a deadline {} after submission for jobs that say none", rule.deadline_budget_s),
        ("to start within {} of submission", rule.max_wait_s),
        (f"to {rule.idle_verb or 'cancel'} once its GPUs have done nothing for {{}}", rule.max_idle_s),
        ("a max_duration of {} for jobs that say none", rule.max_duration_s),
        ("jobs that do not say wait up to {} for a better place beside free GPUs", rule.patience_s),
        ("past use counts half after {}", rule.usage_half_life_s),
    ):
        if seconds is not None:
            parts.append(text.format(span(seconds)))
    if rule.usage_weights:
        parts.append(
            "by model " + ", ".join(f"{name} {many:g}×" for name, many in rule.usage_weights.items())
        )
    return ", ".join(parts)


def _opening(rule: Opening) -> str:
    text = f"{where(rule.pools)} takes work"
    text += f" of others than {whose(rule.but_for)}" if rule.but_for is not None else ""
    text += f" only {'; '.join(hours(each) for each in rule.windows)}" if rule.windows else ""
    text += f", not {'; '.join(hours(each) for each in rule.closed)}" if rule.closed else ""
    return text + (", and stops it then" if rule.stops else "")


def _team(rule: TeamRule) -> str:
    admins = f"; administered by {Members(users=rule.admins).shown}" if rule.admins else ""
    return f"team {rule.team}: {Members(users=rule.members, groups=rule.groups).shown}{admins}"


def _allotment(rule: AllotmentRule) -> str:
    given = rule.allotment
    return (
        f"{', '.join(rule.sites)} by itself, while cut off: queue {given.queue}, {Members(users=given.users).shown}, "
        f"{given.gpu_h:g} GPU-hours and {given.jobs} jobs a day, each up to {span(given.max_duration_s)}"
    )


def _access(rule: AccessRule) -> str:
    parts = [] if rule.allow is None else [_grant(grant) for grant in rule.allow] or ["nobody may submit"]
    parts += [f"administered by {rule.admins.shown}"] if rule.admins else []
    return f"queue {rule.queue}: {'; '.join(parts)}"


def _grant(grant: Grant) -> str:
    limits = [f"priority up to {grant.max_priority}"] if grant.max_priority < MAX_PRIORITY else []
    if grant.max_value_usd is not None:
        limits.append(f"value up to {money(grant.max_value_usd)}")
    limits += [] if grant.must else ["without must"]
    limits += [] if grant.rent else ["nothing is rented for it"]
    return f"{grant.who.shown} may submit{' (' + ', '.join(limits) + ')' if limits else ''}"


_SAID: dict[type, Callable[[Any], str]] = {
    Filter: _filter,
    CapRow: _cap,
    GuaranteeRow: _guarantee,
    PriceTerm: _price,
    PreemptRule: _preempt,
    QueueTerms: _queue,
    Opening: _opening,
    TeamRule: _team,
    AccessRule: _access,
    AllotmentRule: _allotment,
}

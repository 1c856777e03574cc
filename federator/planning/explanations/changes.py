"""Applies changes to a problem: the world as it would be if somebody did what an explanation advises.

Pure, and the same for everybody: the tests that hold advice to its word, a person who tries it out, and the search for what opens a place, which asks only
for the part of the world that a filter looks at.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.capacity import Offer, Shape
from federator.model.changes import (
    AskFor,
    Change,
    ChangeRule,
    Federation,
    MoreHosts,
    Offers,
    Open,
    Permit,
    RaiseCap,
    Value,
    WaitUntil,
)
from federator.model.jobs import WHOLE_MILLI, Accelerators, Form, Resources
from federator.model.rules import (
    BurstMode,
    CapRow,
    Effect,
    Filter,
    GuaranteeRow,
    PoolSelector,
    Rule,
    Scope,
)
from federator.model.snapshot import JobView, OfferView, PoolView, Problem, Snapshot, asked
from federator.planning.places.host_sets import HostSet, expected_end
from federator.planning.rules.rulebook import borrowing_cap

LIFTED = "lifted"
OF_A_FORM = frozenset({"nodes", "gpus", "models", "gpu_memory_mib", "cpus_milli", "memory_mib", "shared"})
"""What forms may differ in."""


def apply(problem: Problem, changes: Iterable[Change]) -> Problem:
    """The problem with all of these done, one after the other. `Invalid` where one is about nothing that the problem holds."""
    snapshot = problem.snapshot
    for change in changes:
        after = changed(snapshot, change)
        if after == snapshot and not isinstance(change, WaitUntil):
            raise Invalid("the problem holds nothing that this would change", field=type(change).__name__)
        snapshot = after
    return replace(problem, snapshot=snapshot)


def changed(snapshot: Snapshot, change: Change) -> Snapshot:
    """The snapshot with one change."""
    match change:
        case AskFor():
            return replace(snapshot, jobs=tuple(job_with(job, change) for job in snapshot.jobs))
        case MoreHosts() | Open() | Offers():
            return replace(
                snapshot,
                pools=tuple(pool_with(view, change) for view in snapshot.pools),
                offers=_offers_with(snapshot.offers, change),
            )
        case RaiseCap():
            return replace(snapshot, rules=tuple(_raised(rule, change) for rule in snapshot.rules))
        case ChangeRule():
            rules = (_rule_with(rule, change) for rule in snapshot.rules)
            return replace(snapshot, rules=tuple(rule for rule in rules if rule is not None))
        case Permit():
            scope, pools = Scope(queues=(change.queue,)), PoolSelector(sites=(change.site,))
            name = f"{change.queue} at {change.site}"
            permit = Filter(name, Effect.ALLOW, scope, pools, mode=BurstMode.ECONOMIC)
            return replace(snapshot, rules=(*snapshot.rules, permit))
        case WaitUntil():
            later = tuple(_later(view, snapshot.taken_at, change.at) for view in snapshot.pools)
            return replace(snapshot, taken_at=max(snapshot.taken_at, change.at), pools=later)
        case Federation():
            return replace(snapshot, **{change.field: () if change.field == "away" else False})


def job_with(job: JobView, change: Change) -> JobView:
    """The job as it would then be."""
    if not isinstance(change, AskFor) or change.job != job.id:
        return job
    if not job.forms or job.ranks_in_one or change.field not in OF_A_FORM:
        return replace(job, **{change.field: change.value})
    return _in_forms(job, change)


def _in_forms(job: JobView, change: AskFor) -> JobView:
    """The job with its form changed, and with those that its file says in the same words: the same number, of the same entry of its list."""
    forms = [Form(job.nodes, _resources(job)), *job.forms]
    mine = forms[change.form]
    old = _said(mine, change.field)
    for number, form in enumerate(forms):
        alike = change.field == "nodes" or form.option == mine.option
        if alike and _said(form, change.field) == old:
            forms[number] = _changed_form(form, change)
            if not number:
                job = replace(job, **{change.field: change.value})
    return replace(job, forms=tuple(forms[1:]))


def _resources(job: JobView) -> Resources:
    """What form 0 asks for, as the others have it."""
    gpus = Accelerators(job.gpus, job.models, job.gpu_memory_mib)
    if job.shared:
        gpus = replace(gpus, count=1, share_milli=job.gpus)
    return Resources(gpus, cpus_milli=job.cpus_milli, memory_mib=job.memory_mib)


def _said(form: Form, field: str) -> Value:
    """What a form asks for, by the name that views have for it."""
    return form.nodes if field == "nodes" else asked(form.nodes, form.resources)[field]


def _changed_form(form: Form, change: AskFor) -> Form:
    value: Any = change.value
    if change.field == "nodes":
        return replace(form, nodes=value)
    if change.field == "cpus_milli":
        return replace(form, resources=replace(form.resources, cpus_milli=value))
    if change.field == "memory_mib":
        return replace(form, resources=replace(form.resources, memory_mib=value, shm_mib=0))
    gpus = form.resources.gpus
    match change.field:
        case "models":
            gpus = replace(gpus, models=value)
        case "gpu_memory_mib":
            gpus = replace(gpus, memory_mib=value)
        case "shared":
            gpus = replace(gpus, share_milli=WHOLE_MILLI if value else UNSET)
        case "gpus" if gpus.share_milli:
            gpus = replace(gpus, share_milli=value)
        case "gpus":
            gpus = replace(gpus, count=value)
    return replace(form, resources=replace(form.resources, gpus=gpus))


def pool_with(view: PoolView, change: Change) -> PoolView:
    """The pool as it would then be."""
    if isinstance(change, Open) and view.key in change.keys:
        return replace(view, open=True, closed_because="")
    if isinstance(change, Offers) and view.key in change.keys:
        return replace(view, abilities=tuple(sorted({*view.abilities, change.ability})))
    if isinstance(change, MoreHosts) and view.key == change.key:
        whole = Shape(view.gpus_per_node, view.cpus_milli_per_node, view.memory_mib_per_node, change.hosts)
        return replace(view, nodes=view.nodes + change.hosts, free=(*view.free, whole))
    return view


def _offers_with(offers: tuple[OfferView, ...], change: Change) -> tuple[OfferView, ...]:
    """So many more machines of an offer are so many more with its GPU shared, and as much more of its stock."""
    if not isinstance(change, MoreHosts):
        return offers
    more = next((view.offer for view in offers if view.key == change.key), None)
    if more is None:
        return offers
    return tuple(replace(view, offer=_with_more(view.offer, more, change.hosts)) for view in offers)


def _with_more(offer: Offer, more: Offer, machines: int) -> Offer:
    if offer.provider != more.provider:
        return offer
    if offer.as_offered().name == more.as_offered().name:
        offer = replace(offer, available=offer.available + machines)
    if offer.stock and more.stock and offer.stock.name == more.stock.name:
        stock = replace(offer.stock, limit=offer.stock.limit + machines * more.stock.each)
        offer = replace(offer, stock=stock)
    return offer


def _raised(rule: Rule, change: RaiseCap) -> Rule:
    if rule == change.row and isinstance(rule, CapRow):
        return replace(rule, limit=change.limit)
    if isinstance(rule, GuaranteeRow) and borrowing_cap(rule) == change.row:
        return replace(rule, borrowing_limit=int(change.limit) - rule.gpus)
    return rule


def _rule_with(rule: Rule, change: ChangeRule) -> Rule | None:
    if not isinstance(rule, Filter) or (rule.policy, rule.effect.value) != (change.policy, change.effect):
        return rule
    if change.field == LIFTED:
        return None
    value = BurstMode(str(change.value)) if change.field == "mode" else change.value
    return replace(rule, **{change.field: value})


def _later(view: PoolView, now: float, at: float) -> PoolView:
    """The pool at a later moment: what is expected to end by then has given its part back, and what boots has booted."""
    if at <= now:
        return view
    host_set = HostSet.of_pool(view, now)
    host_set.advance(at)
    still = tuple(work for work in view.busy if expected_end(work, now) > at)
    boots = view.ready_at is not None and view.ready_at > at
    if len(still) == len(view.busy) and (view.ready_at is None or boots):
        return view
    free = view.free if boots else tuple(Shape(*host) for host in host_set.hosts)
    return replace(view, busy=still, free=free)

"""What would open a place to a job: for each filter the change that lifts it, and the shortest way past all that fail.

A place may fail several filters; advice that lifts only the first would be true of the reason and useless to the reader. So the filters are asked again
with each change made, until all pass, and what is offered is the whole way. Where somebody would have to buy other machines, nothing is offered.
"""

import math
from collections.abc import Iterable

from msgspec.structs import replace

from federator.kernel.quantities import cents_up
from federator.model import rejections as why
from federator.model.changes import (
    AskFor,
    Change,
    ChangeRule,
    Federation,
    Offers,
    Open,
    Permit,
    Remedy,
    Value,
    WaitUntil,
)
from federator.model.jobs import WHOLE_MILLI, longest_s
from federator.model.rejections import Rejected
from federator.model.rules import BurstMode, Effect, Opening, PoolSelector, QueueTerms
from federator.model.snapshot import JobView
from federator.planning.explanations.advice import burden
from federator.planning.explanations.changes import LIFTED, OF_A_FORM, changed, job_with, pool_with
from federator.planning.places.candidates import Candidate, made_of
from federator.planning.rules.feasibility import FILTERS, reject
from federator.planning.rules.filters import FilterContext, Rejection
from federator.planning.rules.openings import changes_at
from federator.planning.rules.rulebook import RuleBook
from federator.planning.wording import moment
from federator.planning.wording.told import words
from federator.planning.world.problem import World
from federator.wire.needs import IMAGES

HALF = 500
"""Parts of a GPU are thousandths."""
STEPS = 12
"""So many filters are lifted one after the other; a place that fails more is none that anybody would open."""
ORDER = {test.name: number for number, test in enumerate(FILTERS)}


NOTHING = Remedy("", ())
"""Where nothing is known to help."""


def all_of(ways: Iterable[Remedy]) -> Remedy:
    """All of them, one after the other."""
    known = [way for way in ways if way.changes]
    return Remedy(
        "; and ".join(way.text for way in known), tuple(each for way in known for each in way.changes)
    )


def wait_until(at: float | None, now: float) -> Remedy:
    """To wait until then; nothing where that is past or not known."""
    return NOTHING if at is None or at <= now else Remedy(f"wait until {moment(at, now)}", (WaitUntil(at),))


MOST_FORMS = 4
"""Of a job of many forms, so many are looked at: those that came furthest."""


def smallest_way(world: World, job: JobView, place: int) -> tuple[Remedy, int]:
    """Of all its forms, the one that asks least of people before the place is open to it, and which it is (a choice)."""
    choices = world.choices(job, place)
    if len(choices) > 1:
        choices = sorted(choices, key=lambda choice: _remaining(world, job, choice))[:MOST_FORMS]
    ways = [(_way_of(world, job, choice), choice) for choice in choices]
    known = [each for each in ways if each[0].changes]
    if len(known) < 2:
        return (known or ways)[0]
    return min(known, key=lambda each: burden(job, each[0].changes, world.now))


def _remaining(world: World, job: JobView, choice: int) -> int:
    """How many filters lie behind the first that fails, that one included."""
    failing = world.rejection(job, choice)
    return 0 if failing is None else len(ORDER) - ORDER[failing.filter]


def _way_of(world: World, job: JobView, choice: int) -> Remedy:
    failing = world.rejection(job, choice)
    if failing is None or (job.ranks_in_one and job.forms and world.form_of(choice)):
        return NOTHING
    way = way_in(world.as_form(job, choice), world.places[choice], world.context, failing)
    return in_its_form(job, way, world.form_of(choice))


def in_its_form(job: JobView, way: Remedy, form: int) -> Remedy:
    """The same, said of that form of the job."""
    changes = tuple(
        replace(change, form=form)
        if form and isinstance(change, AskFor) and change.field in OF_A_FORM
        else change
        for change in way.changes
    )
    options = {0, *(each.option for each in job.forms)}
    entry = job.forms[form - 1].option if form else 0
    of_an_entry = any(isinstance(c, AskFor) and c.field in OF_A_FORM - {"nodes"} for c in changes)
    text = f"in entry {entry + 1}: {way.text}" if len(options) > 1 and of_an_entry else way.text
    return Remedy(text, changes)


def way_in(job: JobView, at: Candidate, context: FilterContext, first: Rejection) -> Remedy:
    """From the first filter that fails to where all pass. `job` is as in one of its forms."""
    steps: list[str] = []
    made: list[Change] = []
    failing: Rejection | None = first
    for _ in range(STEPS):
        if failing is None:
            return Remedy("; and ".join(dict.fromkeys(steps)), tuple(made))
        changes = _lifted(job, at, context, failing.reason)
        step = words(failing.reason, context.snapshot.taken_at).change if changes else ""
        if not step:
            return NOTHING
        steps.append(step)
        made += changes
        for change in changes:
            job, at, context = _with(job, at, context, change)
        failing = reject(job, at, context)
    return NOTHING


def _with(
    job: JobView, at: Candidate, context: FilterContext, change: Change
) -> tuple[JobView, Candidate, FilterContext]:
    """The three things that filters look at, with the change made; only what it is about is made anew."""
    if isinstance(change, AskFor):
        if change.field == "max_duration_s" and isinstance(change.value, int | float):
            change = replace(change, value=longest_s(change.value, job.throughput))
        return job_with(job, change), at, context
    if isinstance(change, Open | Offers):
        return job, _reopened(at, change), context
    if isinstance(change, WaitUntil):
        snapshot = replace(context.snapshot, taken_at=max(context.snapshot.taken_at, change.at))
    else:
        snapshot = changed(context.snapshot, change)
    return job, at, FilterContext(snapshot, RuleBook(snapshot.rules, snapshot.taken_at))


def _reopened(at: Candidate, change: Change) -> Candidate:
    pools = [pool_with(view, change) for view in (*at.views, *at.shut)]
    return made_of(at, pools) if pools else at


# -- one reason each ------------------------------------------------------------------------------------------------------


def _lifted(job: JobView, at: Candidate, context: FilterContext, reason: Rejected) -> tuple[Change, ...]:  # noqa: C901, PLR0911 - one for each sort of reason
    """What lifts a filter's reason; nothing where nothing is known to."""
    now = context.snapshot.taken_at
    match reason:
        case why.Closed():
            return _opened(at)
        case why.GangTooLarge() if reason.shut:
            return _opened(at)
        case why.OutsideHours() | why.OfferAvoided() | why.SiteRefused():
            return wait_until(reason.until_at, now).changes
        case why.ClosesSoon() if job.saves:
            return wait_until(_opens_again_at(job, at, context, reason), now).changes
        case why.PolicyHours():
            window = context.book.permits_for(job, at)[0].window
            begins_at = changes_at(Opening("", PoolSelector(), (window,)), now) if window else None
            return wait_until(begins_at, now).changes
        case why.RentingPaused():
            return (Federation("burst_paused"),)
        case why.HomeAway():
            return (Federation("away"),)
        case why.AbilityMissing() if reason.ability != IMAGES and not reason.offered:
            return (Offers(tuple(view.key for view in (*at.views, *at.shut)), reason.ability),)
        case why.Denied():
            return (ChangeRule(reason.policy, Effect.DENY.value, LIFTED, None),)
        case why.OnlyAdvises():
            return _permits(reason.policy, "advisory", value=False)
        case why.DataKept():
            return _permits(reason.policy, "data", value=None)
        case why.PolicyOff():
            return _permits(reason.policy, "mode", value=BurstMode.ECONOMIC.value)
        case why.PriceLimit():
            return _permits(reason.policy, "max_price_usd_h", value=cents_up(reason.price_usd_h))
        case why.NoBurstPolicy():
            return (Permit(job.queue, at.site),)
    asks = _place_asked(job, at, context, reason) or _size_asked(job, at, reason)
    others = [(field, value) for field, value in asks.items() if getattr(job, field) != value]
    return tuple(AskFor(job.id, field, value) for field, value in others)


def _opened(at: Candidate) -> tuple[Change, ...]:
    return (Open(tuple(view.key for view in (*at.views, *at.shut) if not view.open)),)


def _permits(policy: str, field: str, *, value: bool | float | str | None) -> tuple[Change, ...]:
    return (ChangeRule(policy, Effect.ALLOW.value, field, value),)


def _opens_again_at(
    job: JobView, at: Candidate, context: FilterContext, soon: why.ClosesSoon
) -> float | None:
    rules = (rule for rule in context.book.hours_of(job, at) if rule.stops)
    closing = (rule for rule in rules if changes_at(rule, context.book.at) == soon.closes_at)
    return changes_at(next(closing), soon.closes_at)


def _place_asked(job: JobView, at: Candidate, context: FilterContext, reason: Rejected) -> dict[str, Value]:  # noqa: C901, PLR0911 - as above
    """What the job would have to ask for to be let in there, by field."""
    match reason:
        case why.ClosesSoon():
            return {"saves": True}
        case why.SavedAt():
            return {"sites": (), "resumes_at": ""}
        case why.OtherSites():
            return {"sites": (*job.sites, at.site)}
        case why.SiteExcluded():
            return {"not_sites": tuple(site for site in job.not_sites if site != at.site)}
        case why.OtherKinds():
            return {"kinds": (*job.kinds, at.kind)}
        case why.LabelsMissing():
            labels = job.site_labels.items()
            return {"site_labels": {key: value for key, value in labels if at.labels.get(key) == value}}
        case why.LendsToOthers():
            # Another queue, where it is one that a policy has made; to ask the site for more is all that is left otherwise.
            known = {rule.queue for rule in context.snapshot.rules if isinstance(rule, QueueTerms)}
            return {"queue": reason.usable} if reason.usable and (not known or reason.usable in known) else {}
        case why.AbilityMissing():
            return {"needs": tuple(need for need in job.needs if need != reason.ability)}
        case why.NoLicense():
            left = {name: count for name, count in job.licenses.items() if name != reason.license}
            return {"licenses": left | ({reason.license: reason.most} if reason.most else {})}
        case why.Unfenced():
            return {"needs_fencing": False}
        case why.OtherMarket():
            return {"spot_policy": "auto"}
        case why.NoRightToRent():
            return {"may_rent": True}
        case why.NoMaxDuration():
            return {"max_duration_s": reason.enough_s}
        case why.MaxCost():
            more_usd = cents_up(reason.worst_usd - reason.left_usd)
            return {"max_cost_usd": (job.max_cost_usd or 0.0) + more_usd}
    return {}


def _size_asked(job: JobView, at: Candidate, reason: Rejected) -> dict[str, Value]:  # noqa: C901, PLR0911 - as above
    """What it would have to ask for to fit there; nothing, where there is none of it."""
    match reason:
        case why.RunTooLong():
            return {"max_duration_s": reason.longest_s}
        case why.OtherModels() if at.gpus:
            return {"models": (*job.models, at.model)}
        case why.GpuMemory():
            return {"gpu_memory_mib": reason.has_mib}
        case why.OtherParts() | why.GpusShared() | why.GpusWhole() if at.gpus:
            # Half a GPU instead of one, or such a part as they are cut into; or a whole one instead of a part.
            ranks = max(1, job.ranks_in_one)
            whole = ranks * math.ceil(job.gpus / ranks / WHOLE_MILLI)
            return {"shared": at.shared, "gpus": ranks * (at.cut_milli or HALF) if at.shared else whole}
        case why.NotOnOneHost():  # as it comes instead
            nodes = job.ranks_in_one
            each = {name: getattr(job, name) // nodes for name in ("gpus", "cpus_milli", "memory_mib")}
            return {"nodes": nodes, "ranks_in_one": 0, "together": "", **each}
        case why.NotLabelled():
            return {"together": ""}
        case why.GpusPerNode() if at.gpus:
            return {"gpus": at.gpus}
        case why.CpusPerNode() if at.cpus_milli:
            return {"cpus_milli": at.cpus_milli}
        case why.MemoryPerNode() if at.memory_mib:
            return {"memory_mib": at.memory_mib}
        case why.GangTooLarge() if reason.holds:
            return {"nodes": reason.holds}
    return {}  # also where the site decides whom it trusts

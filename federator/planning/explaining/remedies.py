"""What would open a place to a job: for each filter the change that lifts it, and the shortest way past all that fail.

A place may fail several filters; advice that lifts only the first would be true of the reason and useless to the reader. So the filters are asked again
with each change made, until all pass, and what is offered is the whole way. Where somebody would have to buy other machines, nothing is offered.
"""
# ruff: noqa: ARG001, ARG005 - every lift is asked with the same three arguments, whichever it needs

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from federator.kernel.quantities import cents_up
from federator.model.changes import AskFor, Change, ChangeRule, Federation, Offers, Open, Permit, WaitUntil
from federator.model.jobs import WHOLE_MILLI, longest_s
from federator.model.rules import BurstMode, Opening, PoolSelector, QueueTerms, Window
from federator.model.snapshot import JobView
from federator.planning.explaining.advice import burden
from federator.planning.explaining.changes import LIFTED, OF_A_FORM, changed, job_with, pool_with
from federator.planning.places.candidates import Candidate, made_of
from federator.planning.rules.asking import Ground, Rejection
from federator.planning.rules.calendars import SHORTEST_STAY_S
from federator.planning.rules.feasibility import FILTERS, ranks_ever, reject, usable_of
from federator.planning.rules.openings import changes_at, open_at, takes_work
from federator.planning.rules.permits import dearest_permit, proposed_limit_s, worst_usd
from federator.planning.rules.rulebook import RuleBook
from federator.planning.wording import moment
from federator.planning.wording.told import words
from federator.planning.world.problem import World
from federator.wire.needs import IMAGES, RENTED

HALF = 500
"""Parts of a GPU are thousandths."""
STEPS = 12
"""So many filters are lifted one after the other; a place that fails more is none that anybody would open."""
ORDER = {test.name: number for number, test in enumerate(FILTERS)}
Lift = Callable[[JobView, Candidate, Ground], tuple[Change, ...]]


class Way(NamedTuple):
    """What opens a place: in words, and as changes. Empty where nothing is known to."""

    text: str
    changes: tuple[Change, ...]


NO_WAY = Way("", ())


def all_of(ways: Iterable[Way]) -> Way:
    """All of them, one after the other."""
    known = [way for way in ways if way.changes]
    return Way("; and ".join(way.text for way in known), tuple(each for way in known for each in way.changes))


def wait_until(at: float | None, now: float) -> Way:
    """To wait until then; nothing where that is past or not known."""
    return NO_WAY if at is None or at <= now else Way(f"wait until {moment(at, now)}", (WaitUntil(at),))


MOST_FORMS = 4
"""Of a job of many forms, so many are looked at: those that came furthest."""


def smallest_way(world: World, job: JobView, place: int) -> tuple[Way, int]:
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


def _way_of(world: World, job: JobView, choice: int) -> Way:
    failing = world.rejection(job, choice)
    if failing is None or (job.ranks_in_one and job.forms and world.form_of(choice)):
        return NO_WAY
    way = way_in(world.as_form(job, choice), world.places[choice], world.ground, failing)
    return in_its_form(job, way, world.form_of(choice))


def in_its_form(job: JobView, way: Way, form: int) -> Way:
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
    return Way(text, changes)


def way_in(job: JobView, at: Candidate, ground: Ground, first: Rejection) -> Way:
    """From the first filter that fails to where all pass. `job` is as in one of its forms."""
    steps: list[str] = []
    made: list[Change] = []
    failing: Rejection | None = first
    for _ in range(STEPS):
        if failing is None:
            return Way("; and ".join(dict.fromkeys(steps)), tuple(made))
        lift = LIFTS.get(failing.filter)
        changes = lift(job, at, ground) if lift is not None else ()
        step = words(failing.reason, ground.snapshot.taken_at).change if changes else ""
        if not step:
            return NO_WAY
        steps.append(step)
        made += changes
        for change in changes:
            job, at, ground = _with(job, at, ground, change)
        failing = reject(job, at, ground)
    return NO_WAY


def _with(job: JobView, at: Candidate, ground: Ground, change: Change) -> tuple[JobView, Candidate, Ground]:
    """The three things that filters look at, with the change made; only what it is about is made anew."""
    if isinstance(change, AskFor):
        if change.field == "max_duration_s" and isinstance(change.value, int | float):
            change = replace(change, value=longest_s(change.value, job.throughput))
        return job_with(job, change), at, ground
    if isinstance(change, Open | Offers):
        return job, _reopened(at, change), ground
    if isinstance(change, WaitUntil):
        snapshot = replace(ground.snapshot, taken_at=max(ground.snapshot.taken_at, change.at))
    else:
        snapshot = changed(ground.snapshot, change)
    return job, at, Ground(snapshot, RuleBook(snapshot.rules, snapshot.taken_at))


def _reopened(at: Candidate, change: Change) -> Candidate:
    pools = [pool_with(view, change) for view in (*at.views, *at.shut)]
    return made_of(at, pools) if pools else at


# -- one filter each ------------------------------------------------------------------------------------------------------


def _ask(job: JobView, field: str, value: object) -> tuple[Change, ...]:
    """Nothing where it asks for that already."""
    if getattr(job, field) == value:
        return ()
    return (AskFor(job.id, field, value),)  # type: ignore[arg-type]  # whatever the field has


def _ask_for(job: JobView, field: str, has: int) -> tuple[Change, ...]:
    """So much as there is, where there is any."""
    return _ask(job, field, has) if has else ()


def _open(at: Candidate) -> tuple[Change, ...]:
    return (Open(tuple(view.key for view in (*at.views, *at.shut) if not view.open)),)


def _calendar(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    book = ground.book
    for rule in (rule for rule in book.openings if at.selected_by(rule.pools)):
        change = changes_at(rule, book.at)
        if not takes_work(rule, book.at):
            return wait_until(change, book.at).changes
        if not rule.stops or change is None or book.at + at.run_s(job) <= change:
            continue
        if not job.saves:
            return _ask(job, "saves", value=True)
        if change - job.grace_s < book.at + SHORTEST_STAY_S:
            return wait_until(changes_at(rule, change), book.at).changes
    return ()


def _sites(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    if job.resumes_at:
        return (*_ask(job, "sites", ()), *_ask(job, "resumes_at", ""))
    return _ask(job, "sites", (*job.sites, at.site))


def _refused(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    until = max((until_at for site, until_at in job.refused if site == at.site), default=None)
    return wait_until(until, ground.snapshot.taken_at).changes


def _labels(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    kept = {key: value for key, value in job.site_labels.items() if at.labels.get(key) == value}
    return _ask(job, "site_labels", kept)


def _lends(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    """Another queue, where it is one that a policy has made; to ask the site for more is all that is left otherwise."""
    lends = at.standing.lends_to if at.standing is not None else ()
    known = {rule.queue for rule in ground.snapshot.rules if isinstance(rule, QueueTerms)}
    queue = usable_of(lends, job) if lends else ""
    return _ask(job, "queue", queue) if queue and (not known or queue in known) else ()


def _abilities(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    has = at.standing.abilities if at.standing is not None else RENTED
    lacking = next(need for need in job.needs if need not in has)
    if lacking == IMAGES or at.standing is None:
        return _ask(job, "needs", tuple(need for need in job.needs if need != lacking))
    return (Offers(tuple(view.key for view in (*at.views, *at.shut)), lacking),)


def _parts(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    """Half a GPU instead of one, or such a part as they are cut into; or a whole one instead of a part."""
    if not at.gpus:
        return ()
    ranks = max(1, job.ranks_in_one)
    whole = ranks * math.ceil(job.gpus / ranks / WHOLE_MILLI)
    count = ranks * (at.cut_milli or HALF) if at.shared else whole
    return (*_ask(job, "shared", at.shared), *_ask(job, "gpus", count))


def _together(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    """As it comes instead."""
    in_one = job.ranks_in_one
    if not in_one:
        return _ask(job, "together", "")
    each = {"nodes": in_one, "ranks_in_one": 0, "together": ""}
    each |= {name: getattr(job, name) // in_one for name in ("gpus", "cpus_milli", "memory_mib")}
    return tuple(change for name, value in each.items() for change in _ask(job, name, value))


def _gang(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    if not at.rented and ranks_ever(job, at, shut=True) >= job.nodes:
        return _open(at)
    return _ask_for(job, "nodes", ranks_ever(job, at))


def _denied(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    rule = ground.book.denial(job, at)
    return (ChangeRule(rule.policy, rule.effect.value, LIFTED, None),) if rule is not None else ()


def _permit(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    book = ground.book
    permits, advisers = book.permits_for(job, at), book.advisers_for(job, at)
    if advisers and not permits:
        return (ChangeRule(advisers[0].policy, "allow", "advisory", value=False),)
    if not permits and (kept := book.kept_by(job, at)):
        return (ChangeRule(kept[0].policy, "allow", "data", None),)
    if not permits:
        return (Permit(job.queue, at.site),)
    off = next((p for p in permits if p.mode is BurstMode.OFF and open_at(p.window, book.at)), None)
    if off is not None:
        return (ChangeRule(off.policy, "allow", "mode", BurstMode.ECONOMIC.value),)
    return wait_until(_begins_at(permits[0].window, book.at), book.at).changes


def _begins_at(window: Window | None, at: float) -> float | None:
    return None if window is None else changes_at(Opening("", PoolSelector(), (window,)), at)


def _price(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    policy = dearest_permit(job, at, ground.book).policy
    return (ChangeRule(policy, "allow", "max_price_usd_h", cents_up(at.instance_usd_h)),)


def _cost(job: JobView, at: Candidate, ground: Ground) -> tuple[Change, ...]:
    left = (job.max_cost_usd or 0.0) - job.spent_usd
    return _ask(job, "max_cost_usd", (job.max_cost_usd or 0.0) + cents_up(worst_usd(job, at) - left))


LIFTS: dict[str, Lift] = {
    "closed": lambda job, at, ground: _open(at),
    "calendar": _calendar,
    "burst-paused": lambda job, at, ground: (Federation("burst_paused"),),
    "home-away": lambda job, at, ground: (Federation("away"),),
    "offer-avoided": lambda job, at, ground: (
        wait_until(at.offer.avoid_until_at if at.offer else None, ground.snapshot.taken_at).changes
    ),
    "sites": _sites,
    "not-sites": lambda job, at, ground: _ask(
        job, "not_sites", tuple(site for site in job.not_sites if site != at.site)
    ),
    "refused": _refused,
    "kinds": lambda job, at, ground: _ask(job, "kinds", (*job.kinds, at.kind)),
    "site-labels": _labels,
    "lends-to": _lends,
    "isolation": lambda job, at, ground: (),  # the site decides whom it trusts
    "abilities": _abilities,
    "fencing": lambda job, at, ground: _ask(job, "needs_fencing", value=False),
    "longest-run": lambda job, at, ground: _ask(job, "max_duration_s", at.longest_s),
    "gpu-model": lambda job, at, ground: _ask(job, "models", (*job.models, at.model)) if at.gpus else (),
    "gpu-memory": lambda job, at, ground: _ask(job, "gpu_memory_mib", at.gpu_memory_mib),
    "shared-gpus": _parts,
    "together": _together,
    "gpus-per-node": lambda job, at, ground: _ask_for(job, "gpus", at.gpus),
    "cpus-per-node": lambda job, at, ground: _ask_for(job, "cpus_milli", at.cpus_milli),
    "memory-per-node": lambda job, at, ground: _ask_for(job, "memory_mib", at.memory_mib),
    "gang": _gang,
    "spot-policy": lambda job, at, ground: _ask(job, "spot_policy", "auto"),
    "denied": _denied,
    "no-right-to-rent": lambda job, at, ground: _ask(job, "may_rent", value=True),
    "no-burst-policy": _permit,
    "price-limit": _price,
    "max-duration": lambda job, at, ground: _ask(job, "max_duration_s", proposed_limit_s(job)),
    "max-cost": _cost,
}
"""By the name of the filter; a test holds that each has one."""

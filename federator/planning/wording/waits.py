"""Why a job waits, why nothing is rented for it, and how a place stands to it, in words, with the smallest change that would help."""

import math

from federator.kernel.quantities import format_chance
from federator.kernel.quantities import format_duration as span
from federator.model import reasons as r
from federator.model.rules import SPREAD, CapUnit, Period
from federator.planning.wording import gpus, guaranteed, later_deadline, moment, money
from federator.planning.wording.starts import asked_words, beside, form_words, start_by_words
from federator.planning.wording.words import Words, phrase, word, words

# -- its turn -----------------------------------------------------------------------------------------------------------


phrase(r.NotBefore, "it is not tried again before {until_at:moment}", "wait until {until_at:moment}")


@word(r.OwedGuarantee)
def _owed_guarantee(why: r.OwedGuarantee, _now: float) -> Words:
    text = f"queue {why.queue} is owed its guarantee of {guaranteed(why)} within {span(why.reclaim_s)}"
    return Words(f"{text}{_stopping(why)}")


@word(r.Displaces)
def _displaces(why: r.Displaces, _now: float) -> Words:
    return Words(f"policy {why.policy} lets it displace work of lower priority{_stopping(why)}")


def _stopping(why: r.OwedGuarantee | r.Displaces) -> str:
    if why.made:
        return "; what stops already makes room for it"
    if not (count := why.stops):
        return ""
    return f"; {'1 placement stops' if count == 1 else f'{count} placements stop'} for it"


@word(r.NoRoom)
def _no_room(why: r.NoRoom, now: float) -> Words:
    expected = why.expected
    starts = "" if expected is None else _expected(expected, now)
    due = "" if why.start_by_at is None else start_by_words(why.queue, why.start_by_at, now)
    if why.elsewhere:
        return Words("; ".join(filter(None, (due, starts))))
    places = f"any of the {why.places} places" if why.places > 1 else "the one place"
    text = f"no room now for {asked_words(why.asked)} at {places} it may use{f'; {due}' if due else ''}"
    never = ", and nothing that runs there is expected to end and make enough"
    narrowing = "; elastic jobs there go on narrower to make room for it" if why.narrowing else ""
    return Words(f"{text}{f'; {starts}' if starts else never}{narrowing}")


def _expected(where: r.Expected, now: float) -> str:
    place = f"beside the job that {where.place} is rented for" if where.offered else f"at {where.place}"
    boots = " (rented, booting)" if where.booting else ""
    return f"expected to start {place}{boots} at about {moment(where.start_at, now)}"


@word(r.ToRent)
def _to_rent(why: r.ToRent, now: float) -> Words:
    where = f"{why.machines} × {why.place}" if why.machines > 1 else why.place
    by = "" if why.home_finish_at is None else moment(why.home_finish_at, now)
    late = f"it would finish at {by}, after its deadline" if by else "it can never run"
    text = f"would rent {where} at {moment(why.rent_at, now)} for about {money(why.cost_usd)} if home capacity does not free first: at home {late}"
    first = "" if why.beside is None else f"{words(why.beside, now).text}; "
    return Words(f"{first}{text}", f"a deadline after {by}" if by and why.start_by_at is None else "")


phrase(r.NoSites, "no site is connected and nothing is offered for rent", "connect a site")
phrase(r.Nowhere, "nowhere to run: closest is {place}: {why:words}", "{why:change}")


@word(r.LateUnrented)
def _late(why: r.LateUnrented, now: float) -> Words:
    waits = words(why.waits, now)
    if why.why is None:
        return Words(
            f"{waits.text}; that is after its deadline, and nothing is offered for rent", waits.change
        )
    near = words(why.why, now)
    text = f"{waits.text}; that misses its deadline, and {why.place} is not rented: {near.text}"
    return Words(text, near.change or waits.change)


@word(r.Held)
def _held(why: r.Held, now: float) -> Words:
    until = moment(why.until_at, now)
    who = f"{why.job.removesuffix(')')}, {gpus(why.gpus)})" if why.job.endswith(")") else why.job
    text = f"free GPUs at {why.place} are held for {who} until {until}"
    return Words(text, f"an estimate short enough to end by {until}")


phrase(
    r.BetterElsewhere,
    "where it fits now it would miss its deadline; {place} is free at about {start_at:moment}",
    "a later deadline",
)
phrase(
    r.CheaperElsewhere,
    "it waits for {place}, where it can start by {start_at:moment}, with all that wait for it before: with its run, "
    "its data, its wait and the risk to its deadline, that costs {saves_usd:money} less than to start where it fits now",
    "a higher price of waiting",
)
phrase(
    r.RentalAwaited,
    "where it fits now it would miss its deadline; {place} is to be rented at {rent_at:moment}",
    "a later deadline",
)


@word(r.Behind)
def _behind(why: r.Behind, _now: float) -> Words:
    jobs = "1 waiting job is" if why.jobs == 1 else f"{why.jobs:,} waiting jobs are"
    return Words(f"{jobs} before it, and what is free now is for them")


@word(r.CapReached)
def _cap(why: r.CapReached, _now: float) -> Words:
    raise_it = f"a higher cap in {why.policy}"
    if why.unit == CapUnit.LICENSES:
        text = f"{why.used:g} of {why.limit:g} licences {why.license} are in use, this needs {why.adds:g} (policy {why.policy})"
        return Words(text, "when work that holds some ends, or with more of them")
    if why.share == SPREAD:
        return Words(f"{why.policy} is {SPREAD}, and half of its replicas are there", "room at another site")
    if why.unit in (CapUnit.GPUS, CapUnit.JOBS):
        of = f" ({why.share})" if why.share else ""
        text = f"limit of {why.limit:g} {why.unit} of policy {why.policy}{of}: {why.used:g} in use, this adds {why.adds:g}"
        return Words(text, f"when work of {', '.join(why.scope) or 'its scope'} ends, or {raise_it}")
    if why.unit == CapUnit.INSTANCES:
        return Words(f"cap of {why.limit:g} instances of policy {why.policy}: {why.used:g} rented", raise_it)
    hourly, of = why.unit == CapUnit.USD_PER_H, f" for {why.share}" if why.share else ""
    per, sofar, worst = (
        (" per hour", "rented", "") if hourly else (_period(why), "spent and committed", " in the worst case")
    )
    adds = f"{money(why.used)} {sofar}, this adds {money(why.adds)}{worst}"
    text = f"cap of {money(why.limit)}{per}{of} of policy {why.policy}: {adds}"
    return Words(text, f"{raise_it} (by {money(why.used + why.adds - why.limit)})")


def _period(why: r.CapReached) -> str:
    named = {Period.NOW.value: "", Period.TOTAL.value: " in total"}
    return named.get(why.period, f" per {why.period}")


# -- why nothing is rented ----------------------------------------------------------------------------------------------


phrase(r.Uncovered, "no burst policy in force covers it")
phrase(
    r.NoDeadline,
    "the job has no deadline, and policy {policy} rents only to meet one",
    "give the job a deadline (finish_within)",
)


@word(r.WaitsLonger)
def _waits_longer(why: r.WaitsLonger, _now: float) -> Words:
    text = f"policy {why.policy} rents after {span(why.after_s)} of waiting; so far {span(why.waited_s)}"
    return Words(text, f"wait {span(why.after_s - why.waited_s)}")


phrase(
    r.InTimeAtHome,
    "no need to rent: at home it is expected to finish at {finish_at:moment}, before its deadline {deadline_at:moment}",
    "a deadline before {finish_at:moment}",
)


@word(r.TooLate)
def _too_late(why: r.TooLate, now: float) -> Words:
    late = f"{moment(why.late_at, now)}, {span(math.ceil(why.late_at - why.deadline_at))} after its deadline"
    text = f"even there it {'would probably' if why.probably else 'would'} finish at {late}"
    if why.again_s:
        text += f", and taken back at the very end at {moment(why.finish_at, now)}"
    return Words(text, later_deadline(why.finish_at, why.deadline_at))


@word(r.SpotTooLate)
def _spot_too_late(why: r.SpotTooLate, now: float) -> Words:
    text = (
        f"it is spot: taken back at the very end, the job would finish at {moment(why.finish_at, now)}, "
        f"{span(math.ceil(why.finish_at - why.deadline_at))} after its deadline"
    )
    later = later_deadline(why.finish_at, why.deadline_at)
    return Words(text, f"{later}, or spot_policy: spot to take the risk")


phrase(
    r.Unapproved,
    "it could cost {committed_usd:money} in the worst case; policy {policy} wants what is over {above_usd:money} approved",
    "the platform team runs `federator burst approve {job}`",
)


@word(r.GainsLess)
def _gains_less(why: r.GainsLess, _now: float) -> Words:
    cost, worth = money(why.cost_usd), money(why.value_usd)
    if not why.deadline:
        return Words(f"it costs {cost}; the wait it saves is worth {worth}")
    surer = "" if why.surer is None else f", and that much likelier there: {format_chance(why.surer)}"
    change = "" if why.enough_usd is None else f"a value of {money(why.enough_usd)}"
    return Words(f"it costs {cost}; meeting the deadline is worth {worth}{surer}", change)


@word(r.SoldOut)
def _sold_out(why: r.SoldOut, _now: float) -> Words:
    if why.stock:
        text = f"{why.taken} of {why.limit} {why.unit} that {why.provider} has of {why.stock} are taken, and the job needs {why.needs}"
    elif why.left > 0:
        text = f"{why.provider} has {why.left} more of it, and the job needs {why.needs}"
    else:
        text = f"{why.provider} has no more of it"
    return Words(text, "another offer, or wait")


phrase(
    r.RentLater,
    "would rent it at {rent_at:moment} for {cost_usd:money} if home capacity does not free first (policy {policy})",
    "wait until {rent_at:moment}",
)
phrase(r.Rentable, "can be rented for {cost_usd:money} (policy {policy})")


# -- how a place stands to it -------------------------------------------------------------------------------------------


phrase(r.Booting, "rented and booting; the job can start there at about {start_at:moment}")
phrase(r.InUse, "its hosts are in use by work that is not expected to end", "{gpus:gpus} more there")


@word(r.Busy)
def _busy(why: r.Busy, now: float) -> Words:
    when = moment(why.start_at, now)
    free, change = _lacking(why, when)
    return Words(f"no room now for {asked_words(why.asked)}: {free}; room at about {when}", change)


def _lacking(why: r.Busy, when: str) -> tuple[str, str]:
    """What is free there and yet not enough, and what would be: time, or what has to go with the GPUs."""
    if why.lacks == "cpus":
        return f"{why.free:g} CPUs free", f"wait until {when}, or more CPUs or memory on one host"
    free = f"{gpus(why.free)} free"
    if why.lacks == "hosts":
        nodes = why.asked.nodes
        part = f", on hosts that hold {why.fits} of its {nodes} nodes" if nodes > 1 else ""
        return f"{free}{part}", f"wait until {when}, or more hosts there"
    return (
        f"{free}, but too few CPUs or too little memory beside them",
        "ask for fewer CPUs or less memory per node",
    )


phrase(r.FitsNow, "it fits there now")


@word(r.InForm)
def _in_form(why: r.InForm, now: float) -> Words:
    there = words(why.why, now)
    return Words(f"{form_words(why.form)}: {there.text}", there.change)


@word(r.WithData)
def _with_data(why: r.WithData, now: float) -> Words:
    there = words(why.why, now)
    return Words("; ".join((there.text, *beside(why.brought, why.heard_s))), there.change)

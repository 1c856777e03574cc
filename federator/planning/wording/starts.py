"""Why a job starts, is rented for, stops or changes its width, in words."""

from federator.kernel.quantities import format_chance, format_mib
from federator.kernel.quantities import format_duration as span
from federator.model import reasons as r
from federator.model.rejections import Brought
from federator.planning.wording import gpus, moment, money
from federator.planning.wording.rejections import data_words
from federator.planning.wording.words import Words, phrase, word, words

EVEN = 0.5
"""Of being in time: less has to be said."""


def asked_words(asked: r.Asked) -> str:
    """What a job asks for: `2 nodes with 8 GPUs (A100)`."""
    nodes = f"{asked.nodes} node{'s' if asked.nodes > 1 else ''}"
    if not asked.gpus:
        cores = asked.cpus_milli / 1000
        memory = f" and {format_mib(asked.memory_mib)}" if asked.memory_mib else ""
        return f"{nodes} with {cores:g} CPU{'' if cores == 1 else 's'}{memory}"
    models = f" ({' or '.join(asked.models)})" if asked.models else ""
    return f"{nodes} with {gpus(asked.gpus)}{models}"


def form_words(form: r.FormTaken) -> str:
    """Which of its forms: `on 2 of 1..8 nodes`, `with 4 of 1..8 GPUs per node`, `entry 2 of 3`."""
    said = [f"entry {form.entry} of {form.entries}"] if form.entries > 1 else []
    if form.nodes_low < form.nodes_high:
        said.append(f"on {form.nodes} of {form.nodes_low}..{form.nodes_high} nodes")
    if form.gpus_low < form.gpus_high:
        said.append(f"with {form.gpus:g} of {form.gpus_low:g}..{form.gpus_high:g} GPUs per node")
    return ", ".join(said)


def start_by_words(queue: str, start_by_at: float, now: float) -> str:
    """By when a queue that says how long its work may wait is to start it."""
    return f"queue {queue} is to start it by {moment(start_by_at, now)}"


def beside(brought: Brought | None, heard_s: float) -> list[str]:
    """What else there is to say of a place: data that is brought there, and how old what is known of it is."""
    heard = f"last heard {span(round(heard_s))} ago" if heard_s else ""
    return [said for said in (data_words(brought), heard) if said]


def _with_beside(brought: Brought | None, heard_s: float) -> str:
    said = ", ".join(beside(brought, heard_s))
    return f", {said}" if said else ""


@word(r.Fits)
def _fits(why: r.Fits, now: float) -> Words:
    choice = f"best of {why.places} places it may use" if why.places > 1 else "the one place it may use"
    price = f", {money(why.price_usd_gpu_h)} per GPU-hour" if why.price_usd_gpu_h else ""
    lease = " (rented already)" if why.rented else ""
    finish = f"expected to finish by {moment(why.finish_at, now)}"
    if why.start_by_at is not None:
        finish += f"; {start_by_words(why.queue, why.start_by_at, now)}"
    elif why.deadline_at is not None:
        spare_s = why.deadline_at - why.finish_at
        finish += f", {span(abs(spare_s))} {'before' if spare_s >= 0 else 'after'} its deadline"
    brings = _with_beside(why.brought, why.heard_s)
    return Words(
        f"{asked_words(why.asked)} fit now at {why.place}{lease}{_on_members(why)}: {_form(why)}{choice}{price}{brings}; {finish}"
    )


def _form(why: r.Fits) -> str:
    if why.form is None:
        return ""
    because = {
        "enough": ", because more of it would gain less than it costs",
        "no-more": ", because no more is free there",
    }
    return f"{form_words(why.form)}{because.get(why.why_form, '')}; "


def _on_members(why: r.Fits) -> str:
    if why.members:
        names = why.members
        return f" (on {' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))})"
    return f" (on {why.member_count} members)" if why.member_count else ""


@word(r.Rents)
def _rents(why: r.Rents, now: float) -> Words:
    where = f"{why.machines} × {why.place}" if why.machines > 1 else why.place
    form = f", {form_words(why.form)}," if why.form is not None else ""
    price = f"for about {money(why.cost_usd)} (at worst {money(why.committed_usd)})"
    brings = _with_beside(why.brought, 0.0)
    worth = f"; the deadline is worth {money(why.value_usd)}" if why.deadline_at is not None else ""
    rule = f"policy {why.policy} {'requires' if why.required else 'permits'} it ({why.mode})"
    warm = f"; of these, {why.warm} are warm" if why.warm else ""
    finish = moment(why.finish_at, now)
    text = f"{_at_home(why, now)}; on {where}{form} it finishes at {finish}{_likely(why)} {price}{brings}{worth}{_market(why, now)}"
    return Words(f"{text}; {rule}{warm}")


def _at_home(why: r.Rents, now: float) -> str:
    if why.home_finish_at is None:
        return "nothing at home can ever run it"
    home = f"at home it would finish at {moment(why.home_finish_at, now)}"
    if why.deadline_at is not None and why.home_finish_at > why.deadline_at:
        return f"{home}, {span(why.home_finish_at - why.deadline_at)} after its deadline"
    if why.home_risk:
        return f"{home}, in time, but with a chance of {format_chance(why.home_risk)} that it is too late"
    return home


def _likely(why: r.Rents) -> str:
    """What is rented for though it is planned too late: plans have a margin, or the chance is worth it."""
    if why.in_time is None:
        return ""
    if why.in_time < EVEN:
        return f", in time with a chance of {format_chance(why.in_time)},"
    return ", but probably sooner,"


def _market(why: r.Rents, now: float) -> str:
    """Why this market: spot because it is safe, or on-demand because no spot is; and what interruptions are expected to cost."""
    taken_back = ""
    if why.interruptions_h:
        often = f"such a machine is taken back {why.interruptions_h:g} times an hour"
        taken_back = f"; {often}, for which the run is planned {why.rework - 1.0:.0%} longer"
    if why.fallback_finish_at is not None:
        again = moment(why.fallback_finish_at, now)
        return f"; spot: taken back at the very end and done again, it finishes at {again}{taken_back}"
    return taken_back if why.not_why is None else f"; not {why.not_place}: {words(why.not_why, now).text}"


phrase(r.Running, "running at {site}: {why:words}")
phrase(r.MakesRoom, "makes room for {job}: {why:words}")


def _size(nodes: int, count: float) -> str:
    return gpus(count) if nodes == 1 else f"{nodes} nodes, {gpus(count)} in all"


@word(r.Narrows)
def _narrows(why: r.Narrows, _now: float) -> Words:
    gains = f"makes room for {why.job}, which gains more than it loses"
    return Words(f"{gains}: it goes on with {_size(why.nodes, why.gpus)}")


@word(r.Widens)
def _widens(why: r.Widens, _now: float) -> Words:
    with_more = f"goes on with {_size(why.nodes, why.gpus)}, which are idle"
    return Words(f"{with_more}, and ends about {span(why.saves_s)} sooner")


@word(r.Cheaper)
def _cheaper(why: r.Cheaper, now: float) -> Words:
    finish = "" if why.finish_at is None else f" by {moment(why.finish_at, now)}"
    gains = {
        "shortfall": ": guarantees are better kept",
        "policy": ": more of what policies require is rented",
        "deadline": f": it meets the deadline of {why.job}{finish}",
        "cost": f": {why.job} costs {money(why.gains_usd)} less",
    }
    return Words(f"{money(why.saves_usd)} lower than greedy{gains.get(why.gain, '')}")


@word(r.NoneCheaper)
def _none_cheaper(why: r.NoneCheaper, _now: float) -> Words:
    if not why.stages:
        return Words("the only stage that completed")
    return Words(f"{' and '.join(why.stages)} found nothing cheaper")


@word(r.GreedyAlone)
def _greedy_alone(why: r.GreedyAlone, _now: float) -> Words:
    known = {
        "fast-path": "fast path: it does not wait for the solver",
        "solver-failed": "the solver was late or failed; greedy's plan stands",
        "starts-only": "only what starts now was decided",
        "nothing-waits": "nothing waits",
    }
    return Words(known.get(why.situation, "the only stage that counts"))


@word(r.Proposed)
def _proposed(why: r.Proposed, now: float) -> Words:
    there = f"{why.place} for about {money(why.cost_usd)} (at worst {money(why.committed_usd)})"
    finish = f"it would finish there at {moment(why.finish_at, now)}"
    home = (
        "nothing at home can ever run it"
        if why.home_finish_at is None
        else f"at home at {moment(why.home_finish_at, now)}"
    )
    asks = "wants a person to approve" if why.approval else "only advises: it would have rented"
    return Words(f"policy {why.policy} {asks} {there}; {finish}, {home}")

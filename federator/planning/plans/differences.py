"""Two plans for one problem, compared: the same byte for byte, or where exactly they differ.

A replay is given the stages that completed when the decision was taken, so a stage that was given up is no difference. What is told begins with what
matters: what is done with which job; then what the plans come to, term by term; then the rest.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from federator.model.plans import REMOVED_STAGES, Action, Place, Plan, Preempt, Rent, Waiting
from federator.model.snapshot import Problem
from federator.planning.wording.told import told_waiting

K = TypeVar("K")
V = TypeVar("V")
MOST = 100
"""Lines told; more are counted."""
HEADS = ("decision", "taken_at", "seed", "winner", "winner_because", "winner_reason", "findings", "wake_at")


def completed(plan: Plan) -> Plan:
    """The plan with the stages that completed alone: what a replay of it has to come to."""
    return replace(plan, stages=tuple(stage for stage in plan.stages if stage.completed))


def written(plan: Plan) -> bytes:
    """The plan's bytes. Names of rows and terms come in the order of the alphabet: a file keeps no other."""
    return msgspec.json.encode(plan, order="deterministic")


def differences(problem: Problem, recorded: Plan, again: Plan) -> list[str]:
    """Where a recorded plan and the one that deciding again came to differ, a line each; empty: they are the same bytes."""
    recorded = completed(recorded)
    if written(recorded) == written(again):
        return []
    names = {job.id: f"{job.name} ({job.id})" for job in problem.snapshot.jobs}
    found = [
        *_actions(recorded, again, names),
        *_terms(recorded, again),
        *_stages(recorded, again),
        *_waiting(recorded, again, names),
        *(_changed(name, getattr(recorded, name), getattr(again, name)) for name in HEADS),
        *(_changed(f"price of {row}", *each) for row, *each in _pairs(recorded.prices, again.prices)),
    ]
    told = [line for line in found if line] or ["the same facts in another order"]
    more = len(told) - MOST
    return told if more <= 0 else [*told[:MOST], f"and {more} more"]


def _actions(recorded: Plan, again: Plan, names: Mapping[str, str]) -> Iterator[str]:
    before, after = _by_subject(recorded), _by_subject(again)
    for (job, _), old, new in _pairs(before, after):
        who = names.get(job, job)
        if old is None or new is None or type(old) is not type(new):
            yield f"{who}: recorded: {_does(old)}; now: {_does(new)}"
        else:
            yield from _fields(f"{who}: {_does(old)}", old, new)
    yield _order("actions", before, after)


def _pairs(before: Mapping[K, V], after: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    """By name what was there and what is; None where it is not."""
    return ((key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after)))


def _order(what: str, before: Mapping[Any, object], after: Mapping[Any, object]) -> str:
    """That nothing but the order is another; empty where it is not so."""
    same = before.keys() == after.keys() and list(before) != list(after)
    return f"{what}: the same in another order" if same else ""


def _by_subject(plan: Plan) -> dict[tuple[str, str], Action]:
    """A job is started once; each of its placements may be stopped."""
    return {(each.job, each.placement if isinstance(each, Preempt) else ""): each for each in plan.actions}


def _does(action: Action | None) -> str:
    match action:
        case Place():
            return f"starts at {action.site}/{action.pool}"
        case Rent():
            count = f"{action.machines} × " if action.machines > 1 else ""
            return f"rents {count}{action.provider}/{action.offer}"
        case Preempt():
            return f"stops {action.placement}"
        case _:
            return "nothing"


def _waiting(recorded: Plan, again: Plan, names: Mapping[str, str]) -> Iterator[str]:
    before = {each.job: each for each in recorded.waiting}
    after = {each.job: each for each in again.waiting}
    for job, old, new in _pairs(before, after):
        who = names.get(job, job)
        if old is not None and new is not None:
            yield from _fields(f"{who}: waits", old, new)
        else:
            yield f"{who}: recorded: {_waits(old, recorded)}; now: {_waits(new, again)}"
    yield _order("waiting", before, after)


def _waits(waiting: Waiting | None, plan: Plan) -> str:
    if waiting is None:
        return "does not wait"
    return f"waits: {told_waiting(waiting, plan.taken_at).because}"


def _terms(recorded: Plan, again: Plan) -> Iterator[str]:
    yield _changed("objective_usd", recorded.objective_usd, again.objective_usd)
    for term, old, new in _pairs(recorded.terms, again.terms):
        yield _changed(f"term {term}", old, new)


def _stages(recorded: Plan, again: Plan) -> Iterator[str]:
    before = {stage.stage: stage for stage in recorded.stages}
    after = {stage.stage: stage for stage in again.stages}
    for name, old, new in _pairs(before, after):
        if name in REMOVED_STAGES:
            yield f"stage {name}: this version has no such stage, so the decision may differ"
        elif old is None or new is None:
            yield f"stage {name}: completed only {'now' if old is None else 'in the record'}"
        else:
            yield from _fields(f"stage {name}", old, new)


def _fields(what: str, old: msgspec.Struct, new: msgspec.Struct) -> Iterator[str]:
    for name in old.__struct_fields__:
        yield _changed(f"{what}: {name}", getattr(old, name), getattr(new, name))


def _changed(what: str, old: Any, new: Any) -> str:
    """A line; empty where nothing has changed."""
    if old == new:
        return ""
    return f"{what}: recorded {_text(old)}, now {_text(new)}"


def _text(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()

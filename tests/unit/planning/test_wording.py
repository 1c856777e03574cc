"""Reasons: values of a closed list, each told in words when somebody looks, and never while a turn decides."""

from typing import Any, get_args

import msgspec
import msgspec.inspect as look
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model import reasons as r
from federator.model.capacity import Market
from federator.model.events import Event, LedgerEntry, LedgerKind
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.plans import Plan, Waiting
from federator.model.rejections import Denied
from federator.planning.plans.greedy import plan_greedily
from federator.planning.wording import words as table
from federator.planning.wording.told import (
    because_of,
    order_words,
    told_event,
    told_line,
    told_plan,
    told_waiting,
    winner_words,
    words,
)
from federator.planning.wording.words import MOST_LETTERS
from federator.solving.decide import decide
from tests.scenarios.reading import scenarios
from tests.support.dispatch import PLAN
from tests.support.worlds import NOW

KINDS = get_args(r.Reason)
SIMPLE: dict[type, st.SearchStrategy[Any]] = {
    look.StrType: st.text(max_size=30)
    | st.sampled_from(["gpus", "usd", "cpus", "a\x1b[31mred\x07", "x" * 9000]),
    look.IntType: st.integers(0, 10**7),
    look.FloatType: st.floats(0.0, 4e9),
    look.BoolType: st.booleans(),
    look.NoneType: st.none(),
}

PLACEMENT = Placement(
    id="pl-1", job="job-1", epoch=1, site="home", pool="gpu", members=("home",), market=Market.OWNED,
    status=PlacementStatus.ASSIGNED, order=Order.RUN, spec_hash="abc",
)  # fmt: skip


def _values(told: look.Type) -> st.SearchStrategy[Any]:
    """All values of a field; of nested reasons, some that hold no others."""
    match told:
        case look.VarTupleType():
            return st.lists(_values(told.item_type), max_size=3).map(tuple)
        case look.StructType():
            return _made(told.cls)
        case look.UnionType() if len(told.types) > 3:
            leaf = st.sampled_from([r.FitsNow(), r.Uncovered(), r.NotBefore(until_at=NOW + 60.0)])
            return st.none() | leaf if look.NoneType() in told.types else leaf
        case look.UnionType():
            return st.one_of([_values(each) for each in told.types])
    return SIMPLE[type(told)]


def _made(kind: type) -> st.SearchStrategy[Any]:
    info = look.type_info(kind)
    assert isinstance(info, look.StructType)
    fields = {field.name: _values(field.type) for field in info.fields}
    return st.builds(kind, **fields)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_each_kind_is_told_within_bounds_and_without_what_steers_a_terminal(kind: type) -> None:
    @settings(max_examples=8)
    @given(_made(kind), st.floats(0.0, 4e9))
    def told(reason: Any, now: float) -> None:
        found = words(reason, now)
        for text in found:
            assert len(text) <= 10 * MOST_LETTERS
            assert text.isprintable()
        assert found.text or getattr(reason, "elsewhere", False)

    told()


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_each_kind_is_stored_and_read_as_it_was(kind: type) -> None:
    @settings(max_examples=4)
    @given(_made(kind))
    def kept(reason: Any) -> None:
        assert msgspec.json.decode(msgspec.json.encode(reason), type=r.Reason) == reason

    kept()


def test_deciding_makes_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    stories = list(scenarios())[::5]
    assert stories
    expected = [told_plan(plan_greedily(story.problem)) for story in stories]

    def refuse(reason: object, _now: float) -> table.Words:
        raise AssertionError(f"told in a turn: {reason}")

    with monkeypatch.context() as turn:
        for kind in KINDS:
            turn.setitem(table.TELLERS, kind, refuse)
        plans = [plan_greedily(story.problem) for story in stories]
        solved = [decide(story.problem) for story in stories]
    for plan in (*plans, *solved):
        assert all(action.reason is not None and not action.because for action in plan.actions)
        assert all(waiting.why is not None and not waiting.because for waiting in plan.waiting)
    assert [told_plan(plan) for plan in plans] == expected
    for each in (each for plan in plans for each in (*plan.actions, *plan.waiting)):
        reason = each.why if isinstance(each, Waiting) else each.reason
        stored = msgspec.json.encode(reason)
        again = msgspec.json.encode(msgspec.json.decode(stored, type=r.Reason))
        assert again == stored, "a recorded decision replays byte for byte"
    said = [each.because for plan in expected for each in (*plan.actions, *plan.waiting)]
    assert said
    assert all(said)


def test_sentences_of_older_versions_stay_readable() -> None:
    event = msgspec.json.decode(
        b'{"id":"ev-1","job":"job-1","at":1.0,"kind":"place","status":"PLACED","text":"fit now at home"}',
        type=Event,
    )
    assert told_event(event).text == "fit now at home"
    waiting = msgspec.json.decode(
        b'{"job":"job-1","kind":"capacity","because":"no room","change":"wait","reason":"busy"}', type=Waiting
    )
    assert told_waiting(waiting, NOW) == waiting
    plan = msgspec.json.decode(
        b'{"decision":"dec-1","taken_at":1.0,"seed":0,"winner":"greedy","winner_because":"","objective_usd":0.0,'
        b'"actions":[{"type":"preempt","job":"job-1","revision":1,"placement":"pl-1","beneficiary":"job-2","because":"makes room"}]}',
        type=Plan,
    )
    assert told_plan(plan).actions[0].because == "makes room"


def test_an_event_tells_its_reason_as_of_its_own_moment() -> None:
    reason = r.Running(site="home", why=r.NotBefore(until_at=NOW + 5.0))
    event = Event(id="ev-1", job="job-1", at=NOW, kind="running", status="RUNNING", text="", reason=reason)
    assert told_event(event).text == f"running at home: {words(reason.why, NOW).text}"
    assert told_event(event).reason == reason


def test_a_sentence_is_made_again_from_a_placement_that_was_stored() -> None:
    reason = Denied(policy="Residency/eu", said="data stays")
    row = replace(PLACEMENT, reason=reason)
    stored = msgspec.json.decode(msgspec.json.encode(row), type=Placement)
    assert because_of(stored, NOW) == "policy Residency/eu forbids it: data stays"
    older = msgspec.json.encode(msgspec.structs.replace(row, because="as it was told", reason=None))
    assert because_of(msgspec.json.decode(older, type=Placement), NOW) == "as it was told"


def test_what_was_stored_in_words_wins_over_nothing() -> None:
    waiting = Waiting(job="job-1", kind="capacity", why=r.FitsNow())
    assert told_waiting(waiting, NOW).because == "it fits there now"
    assert told_waiting(replace(waiting, because="as it was"), NOW).because == "as it was"


def test_why_a_plan_won_an_order_and_a_line_of_the_ledger_are_told_when_somebody_looks() -> None:
    why = r.Cheaper(saves_usd=80.4, gain="deadline", job="train (job-1)", finish_at=NOW)
    plan = replace(PLAN, winner="lp", winner_reason=why)
    assert told_plan(plan).winner_because.startswith(
        "80.40 USD lower than greedy: it meets the deadline of train (job-1) by "
    )
    assert winner_words(replace(plan, winner_reason=None, winner_because="as it was"), NOW) == "as it was"
    stopped = replace(PLACEMENT, order=Order.STOP, order_why=r.MakesRoom(job="b (job-2)", why=r.FitsNow()))
    assert order_words(stopped) == "makes room for b (job-2): it fits there now"
    assert order_words(replace(stopped, order_reason="its rank failed")) == "its rank failed"
    entry = LedgerEntry(
        id="le-1", at=NOW, kind=LedgerKind.ACT, who="dispatcher", what="rent big", reason=r.FitsNow()
    )
    assert told_line(entry).what == "rent big: it fits there now"
    assert told_line(replace(entry, reason=None)).what == "rent big"

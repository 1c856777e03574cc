"""`Budget` documents: every field ends in a rule, and what makes no sense is refused where it stands."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.rules import CapRow, CapUnit, Each, Period, Rule, Scope
from federator_policies.budget import kind
from tests.unit.policies.schema_fields import field_paths

LEVELS = (0.5, 0.8, 1.0)


def cap(limit: float, period: Period = Period.MONTH, **fields: object) -> CapRow:
    plain: dict[str, object] = {"policy": "Budget/b", "unit": CapUnit.USD, "alerts": LEVELS}
    return CapRow(limit=limit, period=period, **{**plain, **fields})  # type: ignore[arg-type] # by name


def spec(**fields: object) -> dict[str, object]:
    return {"usd": {"per_month": 9}, **fields}


EFFECTS: dict[str, tuple[dict[str, object], tuple[Rule, ...]]] = {
    "usd.per_day": ({"usd": {"per_day": "5 USD"}}, (cap(5.0, Period.DAY),)),
    "usd.per_week": ({"usd": {"per_week": 6}}, (cap(6.0, Period.WEEK),)),
    "usd.per_month": ({"usd": {"per_month": 7}}, (cap(7.0),)),
    "usd.total": ({"usd": {"total": 8}}, (cap(8.0, Period.TOTAL),)),
    "who.queues": (spec(who={"queues": ["a", "b"]}), (cap(9.0, scope=Scope(queues=("a", "b"))),)),
    "who.owners": (spec(who={"owners": ["eve"]}), (cap(9.0, scope=Scope(owners=("eve",))),)),
    "who.labels": (spec(who={"labels": {"k": "v"}}), (cap(9.0, scope=Scope(labels={"k": "v"})),)),
    "each": (spec(each="owner"), (cap(9.0, each=Each.OWNER),)),
    "alerts": (spec(alerts=[90, "25%"]), (cap(9.0, alerts=(0.25, 0.9)),)),
    "hard_stop": (spec(hard_stop=False), (cap(9.0, hard=False),)),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_a_rule(field: str) -> None:
    given, rules = EFFECTS[field]
    assert kind.compile("b", given) == rules


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


def test_each_queue_has_it_to_itself() -> None:
    rules = kind.compile("b", spec(who={"queues": ["a", "b"]}, each="queue"))
    assert rules == tuple(cap(9.0, scope=Scope(queues=(path,)), share=path) for path in ("a", "b"))


def test_a_job_has_one_for_all_its_life() -> None:
    (rule,) = kind.compile("b", {"usd": {"total": 40}, "each": "job"})
    assert rule == cap(40.0, Period.TOTAL, each=Each.JOB)


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"usd": {}}, "$.spec.usd", "per_month"),
        ({}, "$.spec.usd", "is missing"),
        (spec(each="job"), "$.spec.usd.per_month", "write total"),
        ({"usd": {"total": 1}, "each": "job", "hard_stop": False}, "$.spec.hard_stop", "no effect"),
        (spec(each="queue"), "$.spec.who.queues", "name the queues"),
        (spec(alerts=["0%"]), "$.spec.alerts[0]", "80%"),
        (spec(alerts=["most"]), "$.spec.alerts[0]", "80%"),
        (spec(who={"queues": ["a//b"]}), "$.spec.who.queues[0]", "research/vision"),
        (spec(usd={"per_week": "much"}), "$.spec.usd.per_week", "40 USD"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(given: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind.compile("b", given)
    assert caught.value.field == field
    assert says in f"{caught.value.message} {caught.value.remedy}"

"""`Preemption` documents: every field ends in the rule, and one that names nobody is refused."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.rules import PreemptRule, Rule, Scope
from federator_policies.preemption import kind
from tests.unit.policies.schema_fields import field_paths

WHO = {"queues": ["urgent"]}


def rule(**fields: object) -> tuple[Rule, ...]:
    plain = {
        "policy": "Preemption/p",
        "who": Scope(queues=("urgent",)),
        "victims": Scope(),
        "minimum_run_s": 600.0,
        "cool_down_s": 1800.0,
        "patience_s": 60.0,
    }
    return (PreemptRule(**{**plain, **fields}),)  # type: ignore[arg-type] # by name


def spec(**fields: object) -> dict[str, object]:
    return {"who": WHO, "may_displace": {}, **fields}


EFFECTS: dict[str, tuple[dict[str, object], tuple[Rule, ...]]] = {
    "who.queues": (spec(), rule()),
    "who.owners": (spec(who={"owners": ["eve"]}), rule(who=Scope(owners=("eve",)))),
    "who.labels": (spec(who={"labels": {"k": "v"}}), rule(who=Scope(labels={"k": "v"}))),
    "may_displace.queues": (spec(may_displace={"queues": ["a"]}), rule(victims=Scope(queues=("a",)))),
    "may_displace.owners": (spec(may_displace={"owners": ["bob"]}), rule(victims=Scope(owners=("bob",)))),
    "may_displace.labels": (spec(may_displace={"labels": {"k": "v"}}), rule(victims=Scope(labels={"k": "v"}))),
    "priority_gap": (spec(priority_gap=20), rule(minimum_priority_gap=20)),
    "minimum_run": (spec(minimum_run="2h"), rule(minimum_run_s=7200.0)),
    "cool_down": (spec(cool_down="1h"), rule(cool_down_s=3600.0)),
    "after_wait": (spec(after_wait="5m"), rule(patience_s=300.0)),
}  # fmt: skip


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_the_rule(field: str) -> None:
    given, rules = EFFECTS[field]
    assert kind.compile("p", given) == rules


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        (spec(who={}), "$.spec.who", "is empty"),
        ({"who": WHO}, "$.spec.may_displace", "is missing"),
        (spec(priority_gap=0), "$.spec.priority_gap", "from 1 to"),
        (spec(minimum_run="soon"), "$.spec.minimum_run", "90s"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(given: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind.compile("p", given)
    assert caught.value.field == field
    assert says in f"{caught.value.message} {caught.value.remedy}"

"""`Allotment` documents: every field is in what agents are told, and what makes no sense is refused where it stands."""

from typing import Any

import pytest

from federator.kernel.errors import Invalid
from federator.model.allotments import Allotment, AllotmentRule
from federator_policies.allotment import kind
from federator_policies.consistency import check_rules
from tests.unit.policies.schema_fields import field_paths

LEAST: dict[str, Any] = {
    "sites": ["depot"],
    "queue": "retrain",
    "users": ["ada"],
    "gpu_hours": 40,
    "max_duration": "12h",
}
EFFECTS: dict[str, tuple[object, str, object]] = {
    "queue": ("other/below", "queue", "other/below"),
    "users": (["ada", "bot@ci"], "users", ("ada", "bot@ci")),
    "gpu_hours": (0.5, "gpu_h", 0.5),
    "max_duration": ("90s", "max_duration_s", 90.0),
    "jobs": (7, "jobs", 7),
    "max_priority": (10, "max_priority", 10),
    "after": ("5m", "after_s", 300.0),
    "longest": ("7d", "longest_s", 604_800.0),
}


def rule(**fields: object) -> AllotmentRule:
    (found,) = kind.compile("depot", LEAST | fields)
    assert isinstance(found, AllotmentRule)
    return found


def test_what_is_not_said_is_cautious() -> None:
    assert rule() == AllotmentRule(
        "Allotment/depot",
        ("depot",),
        Allotment(
            policy="Allotment/depot",
            queue="retrain",
            users=("ada",),
            gpu_h=40.0,
            jobs=50,
            max_duration_s=43_200.0,
            max_priority=50,
            after_s=60.0,
            longest_s=259_200.0,
        ),
    )


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_the_rule(field: str) -> None:
    written, name, value = EFFECTS[field]
    assert getattr(rule(**{field: written}).allotment, name) == value


def test_sites_are_named_once() -> None:
    assert rule(sites=["depot", "shop", "depot"]).sites == ("depot", "shop")


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == {*EFFECTS, "sites"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sites": []}, "$.spec.sites"),
        ({"users": []}, "$.spec.users"),
        ({"users": ["*"]}, "$.spec.users[0]"),
        ({"gpu_hours": 0}, "$.spec.gpu_hours"),
        ({"jobs": 201}, "$.spec.jobs"),
        ({"after": "1h", "longest": "1h"}, "$.spec.longest"),
        ({"usd": 3}, "$.spec.usd"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(fields: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        kind.compile("depot", LEAST | fields)
    assert refused.value.field == field


def test_a_queue_that_there_is_none_of_is_refused() -> None:
    (fault,) = check_rules([rule()])
    assert (fault.policy, fault.error.field) == ("Allotment/depot", "$.spec.queue")

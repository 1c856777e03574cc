"""`Team` documents: who is named is in the rule, and a queue names only teams that there are."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.rights import TeamRule
from federator_policies.documents import compile_set, load
from federator_policies.team import kind
from tests.unit.policies.schema_fields import field_paths

P = "Team/vision"
EFFECTS: dict[str, tuple[dict[str, object], TeamRule]] = {
    "members": ({"members": ["ada", "bot@ci"]}, TeamRule(policy=P, team="vision", members=("ada", "bot@ci"))),
    "groups": ({"groups": ["ML research"]}, TeamRule(policy=P, team="vision", groups=("ML research",))),
    "admins": ({"admins": ["ada", "ada"]}, TeamRule(policy=P, team="vision", admins=("ada",))),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_the_rule(field: str) -> None:
    spec, rule = EFFECTS[field]
    assert kind.compile("vision", spec) == (rule,)


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({}, "$.spec.members", "is empty"),
        ({"members": ["*"]}, "$.spec.members[0]", "is not a name of a user"),
        ({"groups": [""]}, "$.spec.groups[0]", "is empty"),
        ({"member": ["ada"]}, "$.spec.member", "did you mean members?"),
        ({"members": [f"u{number}" for number in range(10_001)]}, "$.spec.members", "at most 10000"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(spec: object, field: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        kind.compile("vision", spec)
    assert refused.value.field == field


SET = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: research}
spec: {allow: [{teams: [vision]}], admins: {users: [lea]}}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: below}
spec: {path: research/below, admins: {users: [ben]}}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: shut}
spec: {path: research/shut, allow: []}
"""


@pytest.mark.parametrize(
    ("written", "field"),
    [("allow: [{teams: [vison]}]", "$.spec.allow[0].teams[0]"), ("admins: {teams: [vison]}", "$.spec.admins.teams[0]")],
)  # fmt: skip
def test_a_team_that_there_is_none_of_is_refused_with_the_field(written: str, field: str) -> None:
    text = SET.replace("allow: [{teams: [vision]}], admins: {users: [lea]}", written)
    with pytest.raises(Invalid, match="there is no team 'vison'") as refused:
        compile_set(load(text))
    assert refused.value.field == field
    assert "vision" in (refused.value.remedy or "")

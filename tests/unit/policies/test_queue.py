"""`Queue` documents: every field that is accepted ends in a rule, and what makes no sense is refused where it stands."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.rights import AccessRule, Grant, Members
from federator.model.rules import (
    CapRow,
    CapUnit,
    Each,
    GuaranteeRow,
    PolicyRule,
    PoolSelector,
    PriceKind,
    PriceTerm,
    QueueTerms,
    Scope,
)
from federator_policies.queue import kind
from tests.unit.policies.schema_fields import field_paths

P = "Queue/q"
TERMS = QueueTerms(policy=P, queue="q")
Q = Scope(queues=("q",))

# field: (spec, rules). Each differs from what an empty spec gives only by that field's effect.
EFFECTS: dict[str, tuple[dict[str, object], tuple[PolicyRule, ...]]] = {
    "path": ({"path": "a/b"}, (QueueTerms(policy=P, queue="a/b"),)),
    "guaranteed.gpus": ({"guaranteed": {"gpus": 8}}, (TERMS, GuaranteeRow(policy=P, queue="q", gpus=8))),
    "guaranteed.models": (
        {"guaranteed": {"models": {"h100": 4}}, "borrowing": 2},
        (
            TERMS,
            GuaranteeRow(policy=P, queue="q", gpus=0, borrowing_limit=6),
            GuaranteeRow(policy=P, queue="q", gpus=4, model="H100"),
        ),
    ),
    "guaranteed.cpus": (
        {"guaranteed": {"cpus": 64.5}, "reclaim_within": "10m"},
        (TERMS, GuaranteeRow(policy=P, queue="q", gpus=0, cpus_milli=64_500, reclaim_s=600.0)),
    ),
    "guaranteed.memory": (
        {"guaranteed": {"gpus": 2, "models": {"H100": 1}, "memory": "1TiB"}},
        (
            TERMS,
            GuaranteeRow(policy=P, queue="q", gpus=2, memory_mib=1_048_576),
            GuaranteeRow(policy=P, queue="q", gpus=1, model="H100"),
        ),
    ),
    "limit.models": (
        {"limit": {"models": {"h100": 4}}},
        (TERMS, CapRow(policy=P, unit=CapUnit.GPUS, limit=4.0, scope=Q, pools=PoolSelector(models=("H100",)))),
    ),
    "per_user.gpus": (
        {"per_user": {"gpus": 3}},
        (TERMS, CapRow(policy=P, unit=CapUnit.GPUS, limit=3.0, scope=Q, each=Each.OWNER)),
    ),
    "per_user.jobs": (
        {"per_user": {"jobs": 2}},
        (TERMS, CapRow(policy=P, unit=CapUnit.JOBS, limit=2.0, scope=Q, each=Each.OWNER)),
    ),
    "lending": (
        {"guaranteed": {"gpus": 8}, "lending": 3},
        (TERMS, GuaranteeRow(policy=P, queue="q", gpus=8, lending_limit=3)),
    ),
    "usage_half_life": ({"usage_half_life": "7d"}, (QueueTerms(policy=P, queue="q", usage_half_life_s=604800.0),)),
    "usage_weights": (
        {"usage_half_life": "7d", "usage_weights": {"t4": 0.2, "h100": 2}},
        (QueueTerms(policy=P, queue="q", usage_half_life_s=604800.0, usage_weights={"H100": 2.0, "T4": 0.2}),),
    ),
    "limit.gpus": ({"limit": {"gpus": 9}}, (TERMS, CapRow(policy=P, unit=CapUnit.GPUS, limit=9.0, scope=Q))),
    "limit.jobs": ({"limit": {"jobs": 7}}, (TERMS, CapRow(policy=P, unit=CapUnit.JOBS, limit=7.0, scope=Q))),
    "weight": ({"weight": 2.5}, (TERMS, GuaranteeRow(policy=P, queue="q", gpus=0, weight=2.5))),
    "borrowing": ({"borrowing": 4}, (TERMS, GuaranteeRow(policy=P, queue="q", gpus=0, borrowing_limit=4))),
    "reclaim_within": (
        {"guaranteed": {"gpus": 8}, "reclaim_within": "10m"},
        (TERMS, GuaranteeRow(policy=P, queue="q", gpus=8, reclaim_s=600.0)),
    ),
    "max_priority": ({"max_priority": 60}, (QueueTerms(policy=P, queue="q", max_priority=60),)),
    "max_value": ({"max_value": "200 USD"}, (QueueTerms(policy=P, queue="q", max_value_usd=200.0),)),
    "interactive": ({"interactive": True}, (QueueTerms(policy=P, queue="q", interactive=True),)),
    "deadline_budget": ({"deadline_budget": "1d"}, (QueueTerms(policy=P, queue="q", deadline_budget_s=86400.0),)),
    "max_duration": ({"max_duration": "4h"}, (QueueTerms(policy=P, queue="q", max_duration_s=14400.0),)),
    "max_idle.after": (
        {"max_idle": {"after": "2h"}},
        (QueueTerms(policy=P, queue="q", max_idle_s=7200.0, idle_verb="cancel"),),
    ),
    "max_idle.then": (
        {"max_idle": {"after": "2h", "then": "hold"}},
        (QueueTerms(policy=P, queue="q", max_idle_s=7200.0, idle_verb="hold"),),
    ),
    "max_wait": ({"max_wait": "10m"}, (QueueTerms(policy=P, queue="q", max_wait_s=600.0),)),
    "patience": ({"patience": "30m"}, (QueueTerms(policy=P, queue="q", patience_s=1800.0),)),
    "met_deadline_usd_per_gpu_hour": (
        {"met_deadline_usd_per_gpu_hour": 5},
        (TERMS, PriceTerm(policy=P, kind=PriceKind.MISS, usd=5.0, scope=Q)),
    ),
    "waiting_usd_per_gpu_hour": (
        {"waiting_usd_per_gpu_hour": 0.5},
        (TERMS, PriceTerm(policy=P, kind=PriceKind.WAIT, usd=0.5, scope=Q)),
    ),
    "waiting_usd_per_hour": (
        {"waiting_usd_per_hour": 2},
        (TERMS, PriceTerm(policy=P, kind=PriceKind.WAIT_JOB, usd=2.0, scope=Q)),
    ),
    "allow_must": ({"allow_must": True}, (QueueTerms(policy=P, queue="q", allow_must=True),)),
    "allow": (
        {"allow": [{"teams": ["vision"], "max_priority": 60, "max_value": "200 USD"}, {"users": ["*"], "groups": ["phd"], "must": False, "rent": False}]},
        (
            TERMS,
            AccessRule(
                policy=P,
                queue="q",
                allow=(
                    Grant(Members(teams=("vision",)), max_priority=60, max_value_usd=200.0),
                    Grant(Members(users=("*",), groups=("phd",)), must=False, rent=False),
                ),
            ),
        ),
    ),
    "admins.teams": ({"admins": {"teams": ["leads"]}}, (TERMS, AccessRule(policy=P, queue="q", admins=Members(teams=("leads",))))),
    "admins.users": ({"admins": {"users": ["ada"]}}, (TERMS, AccessRule(policy=P, queue="q", admins=Members(users=("ada",))))),
    "admins.groups": ({"admins": {"groups": ["it"]}}, (TERMS, AccessRule(policy=P, queue="q", admins=Members(groups=("it",))))),
}  # fmt: skip


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_a_rule(field: str) -> None:
    spec, rules = EFFECTS[field]
    assert kind.compile("q", spec) == rules


def test_a_duration_alone_cancels_what_idles() -> None:
    assert kind.compile("q", {"max_idle": "2h"}) == kind.compile("q", {"max_idle": {"after": "2h"}})


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


def test_an_empty_spec_makes_a_queue_and_nothing_else() -> None:
    assert kind.compile("q", {}) == (TERMS,)


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ([], "$.spec", "write a mapping"),
        ({"guarantee": {"gpus": 1}}, "$.spec.guarantee", "did you mean guaranteed?"),
        ({"limit": {"gpu": 1}}, "$.spec.limit.gpu", "did you mean gpus?"),
        ({"limit": {"gpus": "many"}}, "$.spec.limit.gpus", "write a whole number"),
        ({"limit": {"gpus": -1}}, "$.spec.limit.gpus", "from 0 to"),
        ({"allow": [{}]}, "$.spec.allow[0]", "is empty"),
        ({"allow": [{"users": ["a b"]}]}, "$.spec.allow[0].users[0]", "is not a name of a user"),
        ({"allow": [{"team": ["x"]}]}, "$.spec.allow[0].team", "did you mean teams?"),
        ({"allow": [{"users": ["ada"], "max_value": "much"}]}, "$.spec.allow[0].max_value", "much"),
        ({"admins": {"users": ["*"]}}, "$.spec.admins.users[0]", "is not a name of a user"),
        ({"guaranteed": {}}, "$.spec.guaranteed.gpus", "is missing"),
        ({"guaranteed": {"gpus": 8}, "limit": {"gpus": 4}}, "$.spec.limit.gpus", "at least 8"),
        ({"reclaim_within": "5m"}, "$.spec.reclaim_within", "guaranteed"),
        ({"guaranteed": {"gpus": 0}, "reclaim_within": "5m"}, "$.spec.reclaim_within", "guaranteed"),
        ({"guaranteed": {"gpus": 1}, "reclaim_within": "soon"}, "$.spec.reclaim_within", "90s"),
        ({"guaranteed": {"memory": "lots"}}, "$.spec.guaranteed.memory", "GiB"),
        ({"guaranteed": {"cpus": -1}}, "$.spec.guaranteed.cpus", "from 0 to"),
        ({"usage_weights": {"H100": -1}}, "$.spec.usage_weights.H100", "from 0 to"),
        ({"path": "a//b"}, "$.spec.path", "research/vision"),
        ({"weight": 0}, "$.spec.weight", "above 0"),
        ({"max_priority": 101}, "$.spec.max_priority", "to 100"),
        ({"max_value": "a lot"}, "$.spec.max_value", "40 USD"),
        ({"max_duration": "4"}, "$.spec.max_duration", "90s"),
        ({"deadline_budget": 3600}, "$.spec.deadline_budget", "no unit"),
        ({"max_wait": "0s"}, "$.spec.max_wait", ""),
        ({"max_wait": "10"}, "$.spec.max_wait", "90s"),
        ({"patience": "8d"}, "$.spec.patience", "at most 7d"),
        ({"waiting_usd_per_gpu_hour": -1}, "$.spec.waiting_usd_per_gpu_hour", "from 0 to"),
        ({"lending_limit": 4}, "$.spec.lending_limit", "did you mean lending?"),
        ({"guaranteed": {"gpus": 2}, "lending": 3}, "$.spec.lending", "at most 2"),
        ({"interactive": "yes"}, "$.spec.interactive", "true or false"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(spec: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind.compile("q", spec)
    assert caught.value.field == field
    assert says in caught.value.describe()

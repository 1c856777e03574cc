"""The examples that a platform team starts from are accepted, and do what their comments say."""

from pathlib import Path

import pytest

from federator.model.datasets import concerns_data
from federator.model.jobs import Input
from federator.model.rules import (
    CapRow,
    CapUnit,
    Effect,
    Filter,
    GuaranteeRow,
    PolicyRule,
    QueueTerms,
    planned,
)
from federator.planning.places.data import DataBook
from federator_policies.documents import compile_set, load

EXAMPLES = Path(__file__).parents[3] / "policies" / "examples"


def rules_of(path: Path) -> tuple[PolicyRule, ...]:
    return compile_set(load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*")), ids=lambda path: path.name)
def test_every_example_compiles(path: Path) -> None:
    assert path.suffix == ".yaml"
    assert any(isinstance(rule, Filter) for rule in rules_of(path))


def test_the_lab_rents_for_papers_only_within_its_caps() -> None:
    rules = rules_of(EXAMPLES / "lab.yaml")
    (burst,) = [rule for rule in rules if isinstance(rule, Filter)]
    assert burst.scope.queues == ("paper",)
    caps = {
        (cap.unit, cap.period): cap.limit
        for cap in rules
        if isinstance(cap, CapRow) and cap.policy == burst.policy
    }
    assert sorted(caps.values()) == [4.0, 10.0, 50.0, 500.0]
    (fast,) = [rule.queue for rule in rules if isinstance(rule, QueueTerms) and rule.interactive]
    assert fast == "try"


def test_the_enterprise_passes_budgets_down_and_closes_the_cloud_for_customers_data() -> None:
    rules = rules_of(EXAMPLES / "enterprise.yaml")
    terms = {rule.queue: rule for rule in rules if isinstance(rule, QueueTerms)}
    assert terms["research/vision"].max_duration_s == 7 * 86400.0
    assert terms["research/vision"].max_priority == 70
    (closed,) = [rule for rule in rules if isinstance(rule, Filter) and rule.effect == Effect.DENY]
    assert closed.scope.labels == {"data": "customer"}
    owed = sum(
        rule.gpus for rule in rules if isinstance(rule, GuaranteeRow) and rule.queue.startswith("research/")
    )
    (limit,) = [
        r.limit
        for r in rules
        if isinstance(r, CapRow) and r.unit == CapUnit.GPUS and r.scope.queues == ("research",)
    ]
    assert owed <= limit


def test_the_guides_example_compiles() -> None:
    guide = (EXAMPLES.parents[1] / "docs" / "howto" / "write-a-policy.md").read_text(encoding="utf-8")
    rules = compile_set(load(guide.split("```yaml\n")[1].split("```")[0]))
    assert {rule.policy for rule in rules} == {"Queue/paper", "BurstPolicy/paper-deadlines", "Queue/default"}


def test_the_data_example_knows_its_data_and_keeps_the_medical_part_in_its_halls() -> None:
    rules = rules_of(EXAMPLES / "data.yaml")
    book = DataBook(planned(rules), {"basel": "eu-west", "zug": "eu-west"})
    imagenet = (Input("s3://datasets/imagenet/train"),)
    assert book.to_site(imagenet, "basel").moved_bytes == 0
    assert book.to_site(imagenet, "zug").seconds == pytest.approx(30.0)
    assert book.to_site(imagenet, "zug").usd == 0.0
    assert book.to_site(imagenet, "far").usd == pytest.approx(12.0)
    (stays,) = [rule for rule in rules if isinstance(rule, Filter) and rule.effect == Effect.DENY]
    assert (stays.pools.sites, stays.beyond) == (("basel", "zug"), True)
    medical, public = (Input("s3://patients/7"),), imagenet
    assert concerns_data(stays.data, book.datasets, medical, every=False)
    assert not concerns_data(stays.data, book.datasets, public, every=False)
    (rents,) = [rule for rule in rules if isinstance(rule, Filter) and rule.effect == Effect.ALLOW]
    assert concerns_data(rents.data, book.datasets, public, every=True)
    assert not concerns_data(rents.data, book.datasets, (*public, *medical), every=True)

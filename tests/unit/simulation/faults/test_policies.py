"""The policies that worlds change between: the product takes each set, and what its judge reads of it is what it says."""

from federator.model.rules import CapRow, CapUnit, GuaranteeRow, Opening
from federator.planning.rules.openings import takes_work
from federator.simulation.virtual_time import ORIGIN_AT
from federator_policies.documents import compile_set, load
from tests.lab.faults.drawing import draw

SETS = [policies for seed in range(200) for policies in draw(seed).policy_sets]


def test_every_set_means_to_the_product_what_it_means_to_the_judge() -> None:
    for policies in SETS:
        rules = compile_set(load(policies.text()))
        caps = [rule for rule in rules if isinstance(rule, CapRow)]
        gpus = {rule.scope.queues[0]: rule.limit for rule in caps if rule.unit is CapUnit.GPUS}
        usd = [rule.limit for rule in caps if rule.unit is CapUnit.USD]
        owed = {rule.queue: rule.gpus for rule in rules if isinstance(rule, GuaranteeRow) and rule.gpus}
        assert gpus == policies.limits
        assert usd == ([] if policies.budget_usd is None else [policies.budget_usd])
        assert owed == policies.guaranteed


def test_sites_are_closed_when_the_judge_says() -> None:
    closings = 0
    for policies in SETS:
        openings = [rule for rule in compile_set(load(policies.text())) if isinstance(rule, Opening)]
        for closing, opening in zip(policies.closings, openings, strict=True):
            closings += 1
            for at_s in (closing.from_s - 1, closing.from_s, closing.until_s - 1, closing.until_s):
                assert takes_work(opening, ORIGIN_AT + at_s) is not closing.holds(at_s)
    assert closings > 20

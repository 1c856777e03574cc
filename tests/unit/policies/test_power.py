"""`Power` documents: how many GPUs may work by what they draw."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.rules import CapRow, CapUnit, PoolSelector
from federator_policies.power import kind
from tests.unit.policies.schema_fields import field_paths

SPEC: dict[str, object] = {"sites": ["hall"], "kilowatts": 20, "gpu_watts": 700}


def cap(limit: float = 28.0, sites: tuple[str, ...] = ("hall",), models: tuple[str, ...] = ()) -> CapRow:
    pools = PoolSelector(sites=sites, markets=(Market.OWNED,), models=models)
    return CapRow("Power/hall", CapUnit.GPUS, limit, pools=pools)


EFFECTS: dict[str, tuple[dict[str, object], CapRow]] = {
    "sites": ({**SPEC, "sites": ["hall", "annex"]}, cap(sites=("hall", "annex"))),
    "kilowatts": ({**SPEC, "kilowatts": 7}, cap(10.0)),
    "gpu_watts": ({**SPEC, "gpu_watts": 1000}, cap(20.0)),
    "models": ({**SPEC, "models": ["h100"]}, cap(models=("H100",))),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_the_rule(field: str) -> None:
    spec, rule = EFFECTS[field]
    assert kind.compile("hall", spec) == (rule,)


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({**SPEC, "sites": []}, "$.spec.sites", ""),
        ({"sites": ["hall"], "kilowatts": 1}, "$.spec.gpu_watts", "missing"),
        ({**SPEC, "kilowatts": 0.5}, "$.spec.kilowatts", "write at least 0.7"),
        ({**SPEC, "kilowatt": 1}, "$.spec.kilowatt", "did you mean kilowatts?"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(spec: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        kind.compile("hall", spec)
    assert refused.value.field == field
    assert says in refused.value.describe()

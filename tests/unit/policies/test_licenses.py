"""`License` documents: how many there are of what, and where."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.rules import CapRow, CapUnit, PoolSelector
from federator_policies.licenses import kind
from tests.unit.policies.schema_fields import field_paths


def cap(limit: float = 20.0, license: str = "matlab", **pools: tuple[str, ...]) -> CapRow:  # noqa: A002 - its name
    selector = PoolSelector(**pools)  # type: ignore[arg-type] # by name
    return CapRow("License/matlab", CapUnit.LICENSES, limit, pools=selector, license=license)


EFFECTS: dict[str, tuple[dict[str, object], CapRow]] = {
    "count": ({"count": 5}, cap(5.0)),
    "license": ({"count": 20, "license": "matlab-simulink"}, cap(license="matlab-simulink")),
    "where.sites": ({"count": 20, "where": {"sites": ["lab"]}}, cap(sites=("lab",))),
    "where.kinds": ({"count": 20, "where": {"kinds": ["edge"]}}, cap(kinds=("edge",))),
    "where.regions": ({"count": 20, "where": {"regions": ["eu"]}}, cap(regions=("eu",))),
    "where.markets": ({"count": 20, "where": {"markets": ["owned"]}}, cap(markets=(Market.OWNED,))),
    "where.models": ({"count": 20, "where": {"models": ["h100"]}}, cap(models=("H100",))),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_the_rule(field: str) -> None:
    spec, rule = EFFECTS[field]
    assert kind.compile("matlab", spec) == (rule,)


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({}, "$.spec.count", "missing"),
        ({"count": -1}, "$.spec.count", "-1"),
        ({"count": 1, "where": {}}, "$.spec.where", "is empty"),
        ({"count": 1, "licence": "x"}, "$.spec.licence", "did you mean license?"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(spec: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        kind.compile("matlab", spec)
    assert refused.value.field == field
    assert says in refused.value.describe()

"""`Reservation` documents: two moments become a closing that is not about those for whom it is kept."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.rules import Opening, PoolSelector, Rule, Scope, Window
from federator_policies.reservation import kind
from tests.unit.policies.schema_fields import field_paths

TIMES = {"from": "1970-01-02T00:00:00Z", "until": "1970-01-03T00:00:00Z"}
DAY = 86400.0


def spec(**fields: object) -> dict[str, object]:
    return {"where": {"sites": ["lab"]}, **TIMES, **fields}


def closing(pools: PoolSelector = PoolSelector(sites=("lab",)), **fields: object) -> tuple[Rule, ...]:  # noqa: B008 - frozen
    window = Window(first_at=DAY, until_at=2 * DAY)
    plain: dict[str, object] = {"closed": (window,), "stops": True}
    return (Opening(policy="Reservation/r", pools=pools, **{**plain, **fields}),)  # type: ignore[arg-type] # by name


EFFECTS: dict[str, tuple[dict[str, object], tuple[Rule, ...]]] = {
    "where.sites": (spec(), closing()),
    "where.kinds": (spec(where={"kinds": ["edge"]}), closing(PoolSelector(kinds=("edge",)))),
    "where.regions": (spec(where={"regions": ["eu"]}), closing(PoolSelector(regions=("eu",)))),
    "where.markets": (spec(where={"markets": ["owned"]}), closing(PoolSelector(markets=(Market.OWNED,)))),
    "where.models": (spec(where={"models": ["h100"]}), closing(PoolSelector(models=("H100",)))),
    "from": (
        spec(**{"from": "1970-01-02T02:00+01:00"}),
        closing(closed=(Window(first_at=DAY + 3600.0, until_at=2 * DAY),)),
    ),
    "until": (
        spec(until="1970-01-02T00:30:00.5Z"),
        closing(closed=(Window(first_at=DAY, until_at=DAY + 1800.5),)),
    ),
    "who.queues": (spec(who={"queues": ["demo"]}), closing(but_for=Scope(queues=("demo",)))),
    "who.owners": (spec(who={"owners": ["ada"]}), closing(but_for=Scope(owners=("ada",)))),
    "who.labels": (spec(who={"labels": {"a": "b"}}), closing(but_for=Scope(labels={"a": "b"}))),
    "at_start": (spec(at_start="finish"), closing(stops=False)),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_a_rule(field: str) -> None:
    given, rules = EFFECTS[field]
    assert kind.compile("r", given) == rules


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        (spec(where={}), "$.spec.where", "name sites"),
        ({"where": {"sites": ["lab"]}, "until": TIMES["until"]}, "$.spec.from", "missing"),
        (spec(**{"from": "tomorrow"}), "$.spec.from", "2026-12-01T08:00:00Z"),
        (spec(until="1970-01-03T00:00"), "$.spec.until", "the offset as in +01:00"),
        (spec(until="1970-01-02T00:00Z"), "$.spec.until", "write a later moment"),
        (spec(who={"owners": ["ada", "b c"]}), "$.spec.who.owners[1]", "letters, digits"),
        (spec(who={}), "$.spec.who", "leave it out to reserve for nobody"),
        (spec(at_start="kill"), "$.spec.at_start", "stop"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(given: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind.compile("r", given)
    assert caught.value.field == field
    assert says in f"{caught.value.message} {caught.value.remedy}"

"""`Calendar` documents: hours and days become windows, and every field ends in a rule."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.rules import Opening, PoolSelector, PriceKind, PriceTerm, Rule, Scope, Window
from federator_policies.calendar import kind
from tests.unit.policies.schema_fields import field_paths

P = "Calendar/c"
ALL_DAYS = (0, 1, 2, 3, 4, 5, 6)
LAB = PoolSelector(sites=("lab",))
NIGHT = {"from": "22:00", "to": "24:00"}
NIGHT_WINDOW = Window(ALL_DAYS, 1320, 1440)


def spec(**fields: object) -> dict[str, object]:
    return {"where": {"sites": ["lab"]}, "open": [NIGHT], **fields}


def opening(pools: PoolSelector = LAB, **fields: object) -> tuple[Rule, ...]:
    plain: dict[str, object] = {"windows": (NIGHT_WINDOW,)}
    return (Opening(policy=P, pools=pools, **{**plain, **fields}),)  # type: ignore[arg-type] # by name


def price(usd: float = 2.0, window: Window = NIGHT_WINDOW, scope: Scope | None = None) -> PriceTerm:
    return PriceTerm(policy=P, kind=PriceKind.POOL, usd=usd, scope=scope or Scope(), pools=LAB, window=window)


def prices(**fields: object) -> dict[str, object]:
    return {"where": {"sites": ["lab"]}, "prices": [{"add_usd_per_gpu_hour": 2, "hours": NIGHT, **fields}]}


EFFECTS: dict[str, tuple[dict[str, object], tuple[Rule, ...]]] = {
    "where.sites": (spec(), opening()),
    "where.kinds": (spec(where={"kinds": ["edge"]}), opening(PoolSelector(kinds=("edge",)))),
    "where.regions": (spec(where={"regions": ["eu"]}), opening(PoolSelector(regions=("eu",)))),
    "where.markets": (spec(where={"markets": ["owned"]}), opening(PoolSelector(markets=(Market.OWNED,)))),
    "where.models": (spec(where={"models": ["h100"]}), opening(PoolSelector(models=("H100",)))),
    "open": (spec(open=[{"days": ["sun"]}]), opening(windows=(Window((6,), 0, 1440),))),
    "closed": (
        spec(open=[], closed=[{"first_day": "1970-01-03", "last_day": "1970-01-04"}]),
        opening(windows=(), closed=(Window(ALL_DAYS, 0, 1440, 2 * 86400.0, 4 * 86400.0),)),
    ),
    "at_close": (spec(at_close="stop"), opening(stops=True)),
    "prices": (prices(), (price(),)),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_a_rule(field: str) -> None:
    given, rules = EFFECTS[field]
    assert kind.compile("c", given) == rules


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


def test_a_price_is_of_certain_hours_and_for_certain_jobs() -> None:
    given = prices(who={"queues": ["q"]}, hours={"from": "20:00", "to": "06:00", "days": ["mon"]})
    scope = Scope(queues=("q",))
    assert kind.compile("c", given) == (
        price(window=Window((0,), 1200, 1440), scope=scope),
        price(window=Window((1,), 0, 360), scope=scope),
    )


def test_a_night_belongs_to_the_day_on_which_it_begins() -> None:
    given = spec(open=[{"from": "22:00", "to": "06:00", "first_day": "1970-01-02", "last_day": "1970-01-02"}])
    day = 86400.0
    late, early = Window(ALL_DAYS, 1320, 1440, day, 2 * day), Window(ALL_DAYS, 0, 360, 2 * day, 3 * day)
    assert kind.compile("c", given) == opening(windows=(late, early))


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        (spec(where={}), "$.spec.where", "name sites"),
        ({"where": {"sites": ["lab"]}}, "$.spec", "has no effect"),
        ({**prices(), "at_close": "stop"}, "$.spec.at_close", "no effect without open or closed"),
        (spec(open=[{"from": "25:00"}]), "$.spec.open[0].from", "18:30"),
        (spec(open=[{"first_day": "soon"}]), "$.spec.open[0].first_day", "2026-12-24"),
        (
            spec(closed=[{"first_day": "2026-12-24", "last_day": "2026-12-01"}]),
            "$.spec.closed[0].last_day",
            "later day",
        ),
        (prices(add_usd_per_gpu_hour=-1), "$.spec.prices[0].add_usd_per_gpu_hour", "from 0 to"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_remedy(given: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind.compile("c", given)
    assert caught.value.field == field
    assert says in f"{caught.value.message} {caught.value.remedy}"

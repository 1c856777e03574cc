"""`BurstPolicy` documents: every field that is accepted ends in a rule, and a field without effect is refused."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.datasets import DataSelector
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Effect,
    Filter,
    Period,
    PoolSelector,
    Rule,
    Scope,
    Window,
)
from federator_policies.burst import kind
from tests.unit.policies.schema_fields import field_paths

P = "BurstPolicy/b"
RENTED = (Market.ON_DEMAND, Market.SPOT)
EVERYBODY = Scope()


def allow(
    scope: Scope = EVERYBODY,
    window: Window | None = None,
    *,
    mode: BurstMode = BurstMode.ECONOMIC,
    for_waiting: bool = False,
    after_wait_s: float | None = None,
    max_price_usd_h: float | None = None,
    advisory: bool = False,
    approval_above_usd: float | None = None,
    data: DataSelector | None = None,
    **pools: tuple[str, ...],
) -> Filter:
    return Filter(
        policy=P,
        effect=Effect.ALLOW,
        scope=scope,
        pools=PoolSelector(**{"markets": RENTED, **pools}),  # type: ignore[arg-type] # words and markets
        window=window,
        mode=mode,
        for_waiting=for_waiting,
        after_wait_s=after_wait_s,
        max_price_usd_h=max_price_usd_h,
        advisory=advisory,
        approval_above_usd=approval_above_usd,
        data=data,
    )


def cap(unit: CapUnit, limit: float, period: Period = Period.NOW) -> CapRow:
    return CapRow(policy=P, unit=unit, limit=limit, period=period, pools=PoolSelector(markets=RENTED))


ALL_DAYS = (0, 1, 2, 3, 4, 5, 6)
EFFECTS: dict[str, tuple[dict[str, object], tuple[Rule, ...]]] = {
    "data_may_leave.uris": (
        {"data_may_leave": {"uris": ["s3://public"]}},
        (allow(data=DataSelector(uris=("s3://public",))),),
    ),
    "data_may_leave.labels": (
        {"data_may_leave": {"labels": {"class": "public"}}},
        (allow(data=DataSelector(labels={"class": "public"})),),
    ),
    "who.queues": ({"who": {"queues": ["a", "b/c"]}}, (allow(Scope(queues=("a", "b/c"))),)),
    "who.owners": ({"who": {"owners": ["eve"]}}, (allow(Scope(owners=("eve",))),)),
    "who.labels": ({"who": {"labels": {"k": "v"}}}, (allow(Scope(labels={"k": "v"})),)),
    "when.mode": ({"when": {"mode": "always"}}, (allow(mode=BurstMode.ALWAYS),)),
    "when.for": ({"when": {"for": ["deadline", "waiting"]}}, (allow(for_waiting=True),)),
    "when.after_wait": (
        {"when": {"mode": "threshold", "after_wait": "30m"}},
        (allow(mode=BurstMode.THRESHOLD, after_wait_s=1800.0),),
    ),
    "when.window.days": ({"when": {"window": {"days": ["sun", "mon"]}}}, (allow(window=Window((0, 6), 0, 1440)),)),
    "when.window.from": ({"when": {"window": {"from": "18:30"}}}, (allow(window=Window(ALL_DAYS, 1110, 1440)),)),
    "when.window.to": ({"when": {"window": {"to": "06:00"}}}, (allow(window=Window(ALL_DAYS, 0, 360)),)),
    "when.window.first_day": (
        {"when": {"window": {"first_day": "1970-01-02"}}},
        (allow(window=Window(ALL_DAYS, 0, 1440, first_at=86400.0)),),
    ),
    "when.window.last_day": (
        {"when": {"window": {"last_day": "1970-01-02"}}},
        (allow(window=Window(ALL_DAYS, 0, 1440, until_at=2 * 86400.0)),),
    ),
    "when.advisory": ({"when": {"advisory": True}}, (allow(advisory=True),)),
    "when.approval_above": ({"when": {"approval_above": "50 USD"}}, (allow(approval_above_usd=50.0),)),
    "where.providers": ({"where": {"providers": ["aws"]}}, (allow(providers=("aws",)),)),
    "where.regions": ({"where": {"regions": ["eu"]}}, (allow(regions=("eu",)),)),
    "where.markets": ({"where": {"markets": ["spot"]}}, (allow(markets=(Market.SPOT,)),)),
    "where.models": ({"where": {"models": ["A100"]}}, (allow(models=("A100",)),)),
    "where.max_price_per_hour": ({"where": {"max_price_per_hour": "8 USD"}}, (allow(max_price_usd_h=8.0),)),
    "limits.usd_per_hour": ({"limits": {"usd_per_hour": 10}}, (allow(), cap(CapUnit.USD_PER_H, 10.0))),
    "limits.usd.per_day": ({"limits": {"usd": {"per_day": 5}}}, (allow(), cap(CapUnit.USD, 5.0, Period.DAY))),
    "limits.usd.per_week": ({"limits": {"usd": {"per_week": 6}}}, (allow(), cap(CapUnit.USD, 6.0, Period.WEEK))),
    "limits.usd.per_month": ({"limits": {"usd": {"per_month": 7}}}, (allow(), cap(CapUnit.USD, 7.0, Period.MONTH))),
    "limits.usd.total": ({"limits": {"usd": {"total": "$8"}}}, (allow(), cap(CapUnit.USD, 8.0, Period.TOTAL))),
    "limits.instances": ({"limits": {"instances": 0}}, (allow(), cap(CapUnit.INSTANCES, 0.0))),
}  # fmt: skip


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_ends_in_a_rule(field: str) -> None:
    spec, rules = EFFECTS[field]
    assert kind.compile("b", spec) == rules


def test_no_field_is_accepted_that_has_no_effect() -> None:
    assert field_paths(kind) == set(EFFECTS)


def test_an_empty_spec_permits_everybody_to_rent_for_deadlines() -> None:
    assert kind.compile("b", {}) == (allow(),)


def test_no_data_may_leave_where_that_is_said() -> None:
    assert kind.compile("b", {"data_may_leave": False}) == (allow(data=DataSelector(none=True)),)
    assert kind.compile("b", {"data_may_leave": True}) == (allow(),)


def test_mode_off_forbids_renting_whatever_else_is_permitted() -> None:
    (rule,) = kind.compile("b", {"who": {"owners": ["eve"]}, "when": {"mode": "off"}})
    assert isinstance(rule, Filter)
    assert (rule.effect, rule.scope, rule.pools) == (
        Effect.DENY,
        Scope(owners=("eve",)),
        PoolSelector(markets=RENTED),
    )
    assert "switched off" in rule.reason


def test_caps_count_what_the_policy_is_about_and_nothing_else() -> None:
    _, row = kind.compile(
        "b",
        {
            "who": {"queues": ["q"]},
            "where": {"providers": ["aws"], "markets": ["spot"]},
            "limits": {"instances": 2},
        },
    )
    assert isinstance(row, CapRow)
    assert row.scope == Scope(queues=("q",))
    assert row.pools == PoolSelector(providers=("aws",), markets=(Market.SPOT,))


def test_a_window_over_midnight_is_two_and_the_second_is_the_next_day() -> None:
    rules = kind.compile("b", {"when": {"window": {"days": ["fri", "sun"], "from": "22:00", "to": "06:00"}}})
    assert [rule.window for rule in rules if isinstance(rule, Filter)] == [
        Window((4, 6), 1320, 1440),
        Window((0, 5), 0, 360),
    ]
    (until_midnight,) = kind.compile("b", {"when": {"window": {"from": "22:00", "to": "00:00"}}})
    assert isinstance(until_midnight, Filter)
    assert until_midnight.window == Window(ALL_DAYS, 1320, 1440)


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"who": {"queue": ["a"]}}, "$.spec.who.queue", "did you mean queues?"),
        ({"who": {"queues": "a"}}, "$.spec.who.queues", "write a list"),
        ({"who": {"queues": ["a", "/b"]}}, "$.spec.who.queues[1]", "research/vision"),
        ({"when": {"mode": "cheap"}}, "$.spec.when.mode", "cheap"),
        ({"when": {"mode": "threshold"}}, "$.spec.when.after_wait", "30m"),
        ({"when": {"after_wait": "30m"}}, "$.spec.when.after_wait", "mode: threshold"),
        ({"when": {"for": ["waiting"]}}, "$.spec.when.for", "[deadline, waiting]"),
        ({"when": {"mode": "always", "for": ["deadline", "waiting"]}}, "$.spec.when.for", "mode: economic"),
        ({"when": {"mode": "off"}, "limits": {"instances": 1}}, "$.spec.limits", "leave it out"),
        ({"when": {"mode": "off"}, "where": {"max_price_per_hour": 1}}, "$.spec.where.max_price_per_hour", "leave"),
        ({"when": {"window": {"from": "25:00"}}}, "$.spec.when.window.from", "18:30"),
        ({"when": {"window": {"to": "24:01"}}}, "$.spec.when.window.to", "18:30"),
        ({"when": {"window": {"from": "24:00"}}}, "$.spec.when.window.from", "00:00"),
        ({"when": {"window": {"days": []}}}, "$.spec.when.window.days", "mon"),
        ({"when": {"window": {"days": ["monday"]}}}, "$.spec.when.window.days[0]", "monday"),
        ({"where": {"markets": ["owned"]}}, "$.spec.where.markets[0]", "owned"),
        ({"limits": {"usd": {"per_year": 1}}}, "$.spec.limits.usd.per_year", "per_"),
        ({"limits": {"usd_per_hour": -1}}, "$.spec.limits.usd_per_hour", "from 0"),
        ({"limits": {"usd_per_hour": "10 EUR"}}, "$.spec.limits.usd_per_hour", "40 USD"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(spec: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind.compile("b", spec)
    assert caught.value.field == field
    assert says in caught.value.describe()

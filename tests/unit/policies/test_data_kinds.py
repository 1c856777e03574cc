"""`Dataset`, `Links` and `Residency` documents: every field ends in a rule, and a mistake is named with its place and remedy."""

import pytest

from federator.kernel.errors import Invalid
from federator.model.datasets import DataSelector, DatasetRule, Link, LinkRow, LinkRule, Spot
from federator.model.rules import Effect, Filter, PoolSelector, Rule, Scope
from federator.ports import PolicyKind
from federator_policies import dataset, links, residency
from federator_policies.documents import compile_set, load
from tests.unit.policies.schema_fields import field_paths

DATA: dict[str, object] = {"uri": "s3://ddd", "replicas": [{"site": "hall"}]}
HALL = (Spot("hall"),)
CLOSED: dict[str, object] = {"data": {"uris": ["s3://ddd"]}, "never": {"kinds": ["cloud"]}}


def denies(pools: PoolSelector, *, beyond: bool = False, **fields: object) -> Filter:
    given = {"data": DataSelector(uris=("s3://ddd",)), **fields}
    return Filter("Residency/n", Effect.DENY, pools=pools, beyond=beyond, **given)  # type: ignore[arg-type]


CLOUD = PoolSelector(kinds=("cloud",))
ROW = {"from": "a", "to": "b"}
EFFECTS: dict[str, dict[str, tuple[dict[str, object], tuple[Rule, ...]]]] = {
    "Dataset": {
        "uri": (DATA, (DatasetRule("Dataset/n", "s3://ddd", None, HALL),)),
        "size": (DATA | {"size": "2GB"}, (DatasetRule("Dataset/n", "s3://ddd", 2 * 10**9, HALL),)),
        "replicas": (
            DATA | {"replicas": [{"site": "hall", "region": "eu"}, {"region": "us"}]},
            (DatasetRule("Dataset/n", "s3://ddd", None, (Spot("hall", "eu"), Spot(region="us"))),),
        ),
        "labels": (DATA | {"labels": {"a": "b"}}, (DatasetRule("Dataset/n", "s3://ddd", None, HALL, {"a": "b"}),)),
    },
    "Links": {
        "within_region.gbit_per_s": (
            {"within_region": {"gbit_per_s": 5}},
            (LinkRule("Links/n", within_region=Link(5.0)),),
        ),
        "within_region.usd_per_gb": (
            {"within_region": {"usd_per_gb": "0.02 USD"}},
            (LinkRule("Links/n", within_region=Link(None, 0.02)),),
        ),
        "between_regions.gbit_per_s": (
            {"between_regions": {"gbit_per_s": 1}},
            (LinkRule("Links/n", between_regions=Link(1.0)),),
        ),
        "between_regions.usd_per_gb": (
            {"between_regions": {"usd_per_gb": 0.08}},
            (LinkRule("Links/n", between_regions=Link(None, 0.08)),),
        ),
        "rows": (
            {"rows": [ROW | {"gbit_per_s": 2, "usd_per_gb": 0.1}]},
            (LinkRule("Links/n", rows=(LinkRow("a", "b", Link(2.0, 0.1)),)),),
        ),
        "symmetric": (
            {"symmetric": True, "rows": [ROW | {"usd_per_gb": 1}, {"from": "c", "to": "b"}, {"from": "b", "to": "c"}]},
            (
                LinkRule(
                    "Links/n",
                    rows=(
                        LinkRow("a", "b", Link(None, 1.0)),
                        LinkRow("c", "b", Link()),
                        LinkRow("b", "c", Link()),
                        LinkRow("b", "a", Link(None, 1.0)),
                    ),
                ),
            ),
        ),
    },
    "Residency": {
        "data.uris": (CLOSED, (denies(CLOUD),)),
        "data.labels": (
            CLOSED | {"data": {"labels": {"a": "b"}}},
            (denies(CLOUD, data=DataSelector(labels={"a": "b"})),),
        ),
        "who.queues": (
            {"who": {"queues": ["q"]}, "never": {"kinds": ["cloud"]}},
            (denies(CLOUD, data=None, scope=Scope(queues=("q",))),),
        ),
        "who.owners": (CLOSED | {"who": {"owners": ["eve"]}}, (denies(CLOUD, scope=Scope(owners=("eve",))),)),
        "who.labels": (
            CLOSED | {"who": {"labels": {"a": "b"}}},
            (denies(CLOUD, scope=Scope(labels={"a": "b"})),),
        ),
        "only.sites": (
            {"data": {"uris": ["s3://ddd"]}, "only": {"sites": ["hall"]}},
            (denies(PoolSelector(sites=("hall",)), beyond=True),),
        ),
        "only.regions": (
            CLOSED | {"only": {"regions": ["eu"]}},
            (denies(PoolSelector(regions=("eu",)), beyond=True), denies(CLOUD)),
        ),
        "only.kinds": (
            {"data": {"uris": ["s3://ddd"]}, "only": {"kinds": ["onprem"]}},
            (denies(PoolSelector(kinds=("onprem",)), beyond=True),),
        ),
        "never.sites": (CLOSED | {"never": {"sites": ["hall"]}}, (denies(PoolSelector(sites=("hall",))),)),
        "never.regions": (CLOSED | {"never": {"regions": ["eu"]}}, (denies(PoolSelector(regions=("eu",))),)),
        "never.kinds": (CLOSED, (denies(CLOUD),)),
        "reason": (CLOSED | {"reason": "the law"}, (denies(CLOUD, reason="the law"),)),
    },
}  # fmt: skip
KINDS: dict[str, PolicyKind] = {"Dataset": dataset.kind, "Links": links.kind, "Residency": residency.kind}


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in EFFECTS for field in EFFECTS[kind]])
def test_every_field_ends_in_a_rule(kind: str, field: str) -> None:
    spec, rules = EFFECTS[kind][field]
    assert KINDS[kind].compile("n", spec) == rules


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_accepted_that_has_no_effect(kind: str) -> None:
    assert field_paths(KINDS[kind]) == set(EFFECTS[kind])


@pytest.mark.parametrize(
    ("kind", "spec", "field", "says"),
    [
        ("Dataset", {}, "$.spec.uri", "is missing"),
        ("Dataset", {"uri": "gs://b", "replicas": [{"site": "x"}]}, "$.spec.uri", "use file, http, https, s3"),
        ("Dataset", {"uri": "s3://data"}, "$.spec.replicas", "region: eu-west"),
        ("Dataset", DATA | {"replicas": [{}]}, "$.spec.replicas[0]", "site or region"),
        ("Dataset", DATA | {"replicas": [{"site": "a b"}]}, "$.spec.replicas[0].site", "not a name"),
        ("Dataset", DATA | {"size": "5"}, "$.spec.size", "a number and a unit"),
        ("Links", {}, "$.spec", "usd_per_gb"),
        ("Links", {"within_region": {"gbit_per_s": 0}}, "$.spec.within_region.gbit_per_s", "above 0"),
        ("Links", {"rows": [ROW | {"usd_per_gb": "1 EUR"}]}, "$.spec.rows[0].usd_per_gb", "40 USD"),
        ("Links", {"rows": [ROW, ROW]}, "$.spec.rows[1]", "write it once"),
        ("Links", {"rows": [{"from": "", "to": "b"}]}, "$.spec.rows[0].from", "is empty"),
        ("Residency", {"never": {"kinds": ["cloud"]}}, "$.spec", "needs who or data"),
        ("Residency", {"data": {}}, "$.spec", "only: {regions"),
        ("Residency", CLOSED | {"never": {}}, "$.spec.never", "sites, regions or kinds"),
        ("Residency", CLOSED | {"never": {"kinds": ["moon"]}}, "$.spec.never.kinds[0]", "onprem"),
        ("Residency", CLOSED | {"data": {"uris": ["d"]}}, "$.spec.data.uris[0]", "use file, http, https, s3"),
        ("Residency", CLOSED | {"who": {"queues": ["/q"]}}, "$.spec.who.queues[0]", "research/vision"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(kind: str, spec: object, field: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        KINDS[kind].compile("n", spec)
    assert caught.value.field == field
    assert says in caught.value.describe()


def test_a_needed_field_with_a_wrong_value_is_one_fault_of_its_document() -> None:
    text = "apiVersion: federator/v1\nkind: Dataset\nmetadata: {name: d}\nspec: {uri: 'gs://b', replicas: [{site: a}]}\n"
    with pytest.raises(Invalid, match="not an address that can be fetched") as caught:
        compile_set(load(text))
    assert caught.value.field == "$.spec.uri"

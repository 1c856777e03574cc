"""What bringing data to a place takes: the cheapest replica, over the link that is known best, and nothing for what nobody knows."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.datasets import (
    DataSelector,
    DatasetRule,
    Link,
    LinkRow,
    LinkRule,
    Spot,
    concerns_data,
    dataset_of,
    is_below,
    link_between,
    seconds,
    usd,
)
from federator.model.jobs import Input
from federator.planning.checks.data_moves import Moving
from federator.planning.places.data import NOTHING, DataBook, data_book
from federator.planning.wording.rejections import data_words
from tests.support.data_worlds import DATASETS, INPUTS, LINK_RULES
from tests.support.examples import examples
from tests.support.worlds import a_job, a_pool, a_world

GB = 10**9
IMAGENET = Input("s3://datasets/imagenet", 150 * GB)
USUAL = LinkRule("Links/usual", within_region=Link(5.0, 0.02), between_regions=Link(1.0, 0.08))
REGIONS = {"home": "eu", "edge": "eu", "far": "us"}


def book(*rules: Any) -> DataBook:
    return DataBook(rules, REGIONS)


def registered(
    *replicas: Spot, uri: str = IMAGENET.uri, size: int | None = None, **fields: Any
) -> DatasetRule:
    return DatasetRule("Dataset/d", uri, size, replicas, **fields)


JOB = a_job(inputs=(IMAGENET,))


@pytest.mark.parametrize(
    ("site", "region", "takes_s", "costs_usd"),
    [("home", "eu", 0.0, 0.0), ("edge", "eu", 240.0, 3.0), ("far", "us", 1200.0, 12.0)],
)
def test_data_takes_its_link(site: str, region: str, takes_s: float, costs_usd: float) -> None:
    found = book(registered(Spot("home")), USUAL).transfer(JOB, site, region)
    assert (found.seconds, found.usd) == pytest.approx((takes_s, costs_usd))
    assert found.moved_bytes == (0 if site == "home" else 150 * GB)
    assert not found.unknown


def test_an_object_store_is_near_all_of_its_region_but_at_no_site() -> None:
    found = book(registered(Spot(region="eu")), USUAL).transfer(JOB, "home", "eu")
    assert (found.usd, found.seconds) == pytest.approx((3.0, 240.0))


def test_the_cheapest_replica_is_taken_and_of_equals_the_fastest() -> None:
    rows = (
        LinkRow("a", "home", Link(10.0, 0.05)),
        LinkRow("b", "home", Link(1.0, 0.01)),
        LinkRow("c", "home", Link(2.0, 0.01)),
    )
    found = book(registered(Spot("a"), Spot("b"), Spot("c")), LinkRule("l", rows=rows)).transfer(
        JOB, "home", "eu"
    )
    assert found.sources == "c"
    assert (found.usd, found.seconds) == pytest.approx((1.5, 600.0))


def test_several_inputs_come_one_after_another() -> None:
    other = Input("s3://other", 50 * GB)
    rules = (registered(Spot("home")), registered(Spot("edge"), uri=other.uri), USUAL)
    found = book(*rules).transfer(a_job(inputs=(IMAGENET, other)), "far", "us")
    assert (found.seconds, found.usd, found.moved_bytes) == pytest.approx((1600.0, 16.0, 200 * GB))
    assert data_words(found.brought) == "200 GB from home, edge: 26m40s and 16.00 USD"


@pytest.mark.parametrize(
    "rules",
    [
        (),
        (USUAL,),
        (registered(Spot("home"), uri="s3://datasets/image"), USUAL),
        (registered(Spot("home")),),
        (registered(Spot("home")), LinkRule("l", within_region=Link(1.0, 1.0))),
    ],
)
def test_what_nobody_knows_costs_nothing_and_is_named(rules: tuple[Any, ...]) -> None:
    found = book(*rules).transfer(JOB, "far", "us")
    assert (found.seconds, found.usd, found.moved_bytes, found.moves) == (0.0, 0.0, 0, None)
    assert found.unknown == (IMAGENET.uri,)
    assert "not known" in data_words(found.brought)


def test_a_size_is_the_jobs_own_or_the_registers() -> None:
    rules = (registered(Spot("home"), size=10 * GB), USUAL)
    assert book(*rules).transfer(JOB, "far", "us").moved_bytes == 150 * GB
    unsaid = a_job(inputs=(Input(IMAGENET.uri),))
    assert book(*rules).transfer(unsaid, "far", "us").moved_bytes == 10 * GB
    assert book(registered(Spot("home")), USUAL).transfer(unsaid, "far", "us").unknown == (IMAGENET.uri,)


def test_a_job_that_reads_nothing_moves_nothing() -> None:
    assert book(registered(Spot("home")), USUAL).transfer(a_job(), "far", "us") is NOTHING


def test_an_address_belongs_to_the_longest_that_is_registered() -> None:
    whole, part = registered(uri="s3://d"), registered(uri="s3://d/a")
    assert dataset_of([whole, part], "s3://d/a/1") is part
    assert dataset_of([whole, part], "s3://d/ab") is whole
    assert dataset_of([whole, part], "s3://e") is None
    assert is_below("file:///x", "file:///")
    assert not is_below("s3://d", "s3://d/a")


def test_a_row_for_a_site_goes_before_one_for_its_region_and_that_before_what_is_usual() -> None:
    site, region = LinkRow("home", "us", Link(3.0)), LinkRow("eu", "us", Link(2.0))
    tables = [LinkRule("l", rows=(region, site)), USUAL]
    assert link_between(tables, Spot("home", "eu"), Spot("far", "us")) == Link(3.0)
    assert link_between(tables, Spot("edge", "eu"), Spot("far", "us")) == Link(2.0)
    assert link_between(tables, Spot("far", "us"), Spot("edge", "eu")) == Link(1.0, 0.08)
    assert link_between([], Spot("far", "us"), Spot("edge", "eu")) is None


def test_a_link_of_unknown_speed_costs_no_time() -> None:
    assert seconds(Link(None, 0.1), GB) == 0.0
    assert usd(Link(None, 0.1), 10 * GB) == pytest.approx(1.0)


def test_rules_about_data_look_at_any_input_or_at_all_of_them() -> None:
    secret = registered(uri="s3://secret", labels={"class": "secret"})
    both = (Input("s3://secret/1"), Input("s3://public"))
    which = DataSelector(labels={"class": "secret"})
    assert concerns_data(which, [secret], both, every=False)
    assert not concerns_data(which, [secret], both, every=True)
    assert not concerns_data(DataSelector(none=True), [], both, every=True)
    assert concerns_data(DataSelector(none=True), [], (), every=True)
    assert not concerns_data(DataSelector(), [], (), every=False)
    assert concerns_data(None, [], (), every=False)


@settings(max_examples=examples(100), deadline=None)
@given(
    datasets=st.lists(DATASETS, max_size=3),
    table=LINK_RULES,
    inputs=st.lists(st.sampled_from(INPUTS), max_size=4, unique=True),
    place=st.sampled_from([("home", "eu"), ("edge", "far"), ("acme-eu", "eu"), ("new", "")]),
)
def test_no_way_is_cheaper_and_the_checker_comes_to_the_same(
    datasets: list[DatasetRule], table: LinkRule, inputs: list[Input], place: tuple[str, str]
) -> None:
    job = a_job(inputs=tuple(inputs))
    snapshot = a_world(
        [job], [a_pool("home"), a_pool("edge", region="far")], rules=[*datasets, table]
    ).snapshot
    found = data_book(snapshot).transfer(job, *place)
    again = Moving(snapshot).moved(job, *place)
    assert (again.moved_bytes, again.seconds, again.usd) == pytest.approx(
        (found.moved_bytes, found.seconds, found.usd)
    )
    assert found.moved_bytes == sum(each.moved_bytes for each in found.carried)
    for each in found.carried:
        dataset = dataset_of(datasets, each.uri)
        assert dataset is not None
        for spot in dataset.replicas:
            placed = Spot(spot.site, spot.region or {"home": "eu", "edge": "far"}.get(spot.site, ""))
            link = link_between([table], placed, Spot(*place))
            assert link is None or each.usd <= usd(link, each.moved_bytes) + 1e-9

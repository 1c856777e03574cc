"""Data for worlds at random: few datasets, links and inputs, so that they meet. Sites are those of `tests.support.worlds`."""

from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from federator.model.datasets import DataSelector, DatasetRule, Link, LinkRow, LinkRule, Spot
from federator.model.jobs import Input


def rarely(values: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    """One of the values, once in five times."""
    return st.integers(0, 4).flatmap(lambda roll: values if roll == 4 else st.just(otherwise))


INPUTS = (
    Input("s3://data/a", 100 * 10**9),
    Input("s3://data/b"),
    Input("s3://data/a/part", 10**9),
    Input("s3://unknown", 5 * 10**9),
)
SPOTS = st.sampled_from(
    [Spot("home"), Spot("edge", "far"), Spot(region="eu"), Spot(region="far"), Spot("gone")]
)
LINKS = st.builds(Link, st.sampled_from([None, 0.5, 10.0]), st.sampled_from([0.0, 0.01, 0.1]))
DATA = st.builds(
    DataSelector,
    uris=st.sampled_from([(), ("s3://data",), ("s3://data/a",)]),
    labels=st.sampled_from([{}, {}, {"secret": "yes"}]),
    none=rarely(st.just(True), False),
)
DATASETS = st.builds(
    DatasetRule,
    st.just("data"),
    st.sampled_from(["s3://data", "s3://data/a", "s3://data/b"]),
    st.sampled_from([None, 50 * 10**9]),
    st.lists(SPOTS, min_size=1, max_size=3).map(tuple),
    st.sampled_from([{}, {"secret": "yes"}]),
    st.sampled_from([UNSET, UNSET, ("home",), ("acme-eu", "gone")]),
)
LINK_RULES = st.builds(
    LinkRule,
    st.just("links"),
    st.one_of(st.none(), LINKS),
    st.one_of(st.none(), LINKS),
    st.lists(
        st.builds(
            LinkRow,
            st.sampled_from(["home", "edge", "acme-eu", "far"]),
            st.sampled_from(["home", "edge", "acme-eu", "eu"]),
            LINKS,
        ),
        max_size=3,
    ).map(tuple),
)

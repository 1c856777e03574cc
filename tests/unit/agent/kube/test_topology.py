"""Racks, zones and NVLink domains, as nodes are labelled with them: a pool for each, so a gang of one pool is in one domain."""

from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.kube.objects import Node
from federator.wire.decoding import decode
from federator_agent.core.lent_capacity import MOST_POOLS
from federator_agent.kube.capacity import NodesAndPods
from federator_agent.kube.settings import PRODUCT_LABEL, KubePool, KubeSettings, check

RACK = "topology.kubernetes.io/rack"
GPU = {"nvidia.com/gpu": "4"}


def node(name: str, rack: str = "", **labels: str) -> Node:
    status = {
        "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "100", **(GPU if labels else {})},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    marks = ({PRODUCT_LABEL: labels["product"]} if labels else {}) | ({RACK: rack} if rack else {})
    return msgspec.convert({"metadata": {"name": name, "labels": marks}, "status": status}, Node)


def settings(**kube: object) -> KubeSettings:
    return decode({"image": "i", "topology": {"rack": RACK}, **kube}, KubeSettings, "$.kube")


def seen(cluster: NodesAndPods, *nodes: Node) -> Any:
    machines = {each.metadata.name: machine for each in nodes if (machine := cluster.machine(each))}
    return cluster.seen(machines, ())


def test_each_domain_is_a_pool_with_its_label() -> None:
    cluster = NodesAndPods(settings(), "here")
    found = seen(cluster, node("n1", "r1", product="A100"), node("n2", "r1", product="A100"), node("n3", "r2", product="A100"), node("n4", product="A100"))  # fmt: skip
    assert [(pool.name, pool.nodes, dict(pool.labels)) for pool in found.pools] == [
        ("a100", 1, {}),
        ("a100-r1", 2, {"rack": "r1"}),
        ("a100-r2", 1, {"rack": "r2"}),
    ]


def test_pods_go_to_nodes_of_the_domain() -> None:
    cluster = NodesAndPods(settings(), "here")
    nodes = [
        node("n1", "r1", product="A100"),
        node("n2", "r2", product="A100"),
        node("n3", "r1"),
        node("n4", "r2"),
    ]
    sets = [each for of in nodes for each in cluster.device_sets(of)]
    place = cluster.place("a100-r2", sets)
    assert place is not None
    assert (place.selector, place.without) == ({PRODUCT_LABEL: "A100", RACK: "r2"}, ())
    plain = cluster.place("cpu-r1", sets)
    assert plain is not None
    assert (plain.selector, plain.without) == ({RACK: "r1"}, (PRODUCT_LABEL,))
    assert cluster.place("a100-r9", sets) is None


def test_pools_of_the_site_file_are_cut_too() -> None:
    pool = {"name": "fast", "selector": {PRODUCT_LABEL: "A100"}}
    cluster = NodesAndPods(settings(pools=[pool]), "here")
    sets = cluster.device_sets(node("n1", "rack_7.b", product="A100"))
    assert [each.pool for each in sets] == ["fast-rack_7.b"]
    place = cluster.place("fast-rack_7.b", sets)
    assert place is not None
    assert (place.selector, place.without) == ({PRODUCT_LABEL: "A100", RACK: "rack_7.b"}, ())
    assert (
        NodesAndPods(KubeSettings(image="i", pools=(KubePool(name="a", selector={}),)), "here").place("a", [])
        is not None
    )


def test_more_pools_than_a_report_takes_are_said() -> None:
    cluster = NodesAndPods(settings(), "here")
    found = seen(
        cluster, *(node(f"n{number}", f"r{number}", product="A100") for number in range(MOST_POOLS + 5))
    )
    assert len(found.pools) == MOST_POOLS
    assert f"{MOST_POOLS} of {MOST_POOLS + 5} pools" in found.health
    assert set(found.hosts) <= {pool.name for pool in found.pools}


def test_long_names_of_domains_make_names_of_pools_that_differ() -> None:
    cluster = NodesAndPods(settings(), "here")
    names = [cluster.device_sets(node("n", "x" * 60 + end, product="A" * 60))[0].pool for end in ("1", "2")]
    assert max(map(len, names)) <= 63
    assert names[0] != names[1]


def test_there_are_few_names_for_domains() -> None:
    with pytest.raises(Invalid, match=r"\$\.kube\.topology"):
        check(settings(topology={f"t{number}": f"label-{number}" for number in range(5)}))

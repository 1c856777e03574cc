"""World files: what people write, read with the names of faults; and tables of pools."""

from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import Market, Stock
from federator.simulation.saving import world_yaml
from federator.simulation.world import WorldSpec, scaled
from federator.simulation.world_files import from_table, from_yaml, load_world

TEXT = """
name: two sites and a cloud
speeds: {A100: 1, H100: 1.9}
sites:
  - name: lab
    price: 0.40 USD
    labels: {team: vision}
    link: {latency: 50ms, staging: 2m}
    pools:
      - {model: A100, nodes: 4, gpus_per_node: 8, cpus_per_node: 64, memory_per_node: 1TiB}
      - {name: old, model: V100, nodes: 2, gpus_per_node: 4, gpu_memory: 16GiB}
  - name: edge
    kind: edge
    pools: [{model: L4, nodes: 3, gpus_per_node: 1}]
burst:
  - {model: A100, gpus: 8, price: 22 USD, delay: 9m, available: 16, market: spot, interruptions_per_hour: 0.05, sold_out: 0.1}
policies: rules
"""
RULES = "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: default}\nspec: {}\n"


def folder_with(tmp_path: Path, text: str = TEXT) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.yaml").write_text(RULES)
    (tmp_path / "world.yaml").write_text(text)
    return tmp_path / "world.yaml"


def test_a_whole_file(tmp_path: Path) -> None:
    world = load_world(folder_with(tmp_path))
    lab, edge = world.sites
    assert (world.name, world.gpus, world.speeds["H100"]) == ("two sites and a cloud", 43, 1.9)
    assert (lab.price_usd_gpu_h, lab.labels, lab.conditions.latency_s) == (0.4, {"team": "vision"}, 0.05)
    assert (lab.conditions.staging_s, edge.kind) == (120.0, "edge")
    main, old = lab.pools
    assert (main.name, main.cpus_milli_per_node, main.memory_mib_per_node) == ("main", 64_000, 2**20)
    assert (old.name, old.gpu_memory_mib, edge.pools[0].gpu_memory_mib) == ("old", 16384, 24576)
    (offer,) = world.offers
    assert (offer.market, offer.price_usd_h, offer.delay_s, offer.available) == (Market.SPOT, 22.0, 540.0, 16)
    assert world.risks[offer.name].interruptions_h == 0.05
    assert world.risks[offer.name].sold_out == 0.1
    assert world.cloud_sites == {"cloud": "cloud"}
    assert "kind: Queue" in world.policies


def test_other_policies_than_the_worlds(tmp_path: Path) -> None:
    path = folder_with(tmp_path)
    other = tmp_path / "other.yaml"
    other.write_text("# nothing else\n" + RULES)
    assert load_world(path, other).policies.startswith("# nothing else")
    with pytest.raises(Invalid, match="there is no"):
        load_world(path, _empty(tmp_path))


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sites: []", "$.sites"),
        ("sites: [{name: a, pools: []}]", "$.sites[0].pools"),
        ("sites: [{name: a, pools: [{gpus: 8}]}]", "$.sites[0].pools[0].gpus"),
        ("sites: [{name: a, kind: moon, pools: [{gpus_per_node: 8}]}]", "$.sites[0].kind"),
        ("sites: [{name: a, pools: [{nodes: 1}]}, {name: a, pools: [{nodes: 1}]}]", "one name"),
        ("sites: [{name: a, pools: [{nodes: 1}]}]\nburst: [{market: free}]", "$.burst[0].market"),
        ("sites: [{name: a, pools: [{nodes: 1}]}]\nburst: [{delay: 540}]", "no unit"),
        ("sites: [{name: a, pools: [{nodes: 1}]}]\npolicy: x", "did you mean policies"),
        ("sites: 3", "write a list"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Invalid) as raised:
        from_yaml(text, tmp_path)
    assert words in raised.value.describe()


def test_a_fault_of_a_file_is_told_with_its_name_and_line(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: lab\nsites:\n  - name: a\n    pools: [{gpus: 8}]\n")
    with pytest.raises(Invalid, match=f"{file}, line 4: there is no field 'gpus'"):
        load_world(file)
    with pytest.raises(Invalid, match="there is no 'gpus_per_node'"):
        from_table("site,nodes\na,1\n", "bad.csv")
    with pytest.raises(Invalid, match=r"cannot be read: No such file or directory$"):
        load_world(tmp_path / "none.yaml")


def test_a_table_of_clusters() -> None:
    world = from_table("cluster,sim_gpus,gpus_per_node\nitp01,104,8\nitp10,64,8\n", "x0.2.csv")
    assert [(site.name, site.pools[0].nodes) for site in world.sites] == [("itp01", 13), ("itp10", 8)]
    assert world.gpus == 168


def test_a_table_of_pools_with_prices_and_burst(tmp_path: Path) -> None:
    table = (
        "site,site_kind,region,gpu_model,nodes,gpus_per_node,usd_per_gpu_h,burst,provisioning_h\n"
        "0,onprem,0,H100,8,8,0.6,0,0\n0,onprem,0,A100,8,8,0.36,0,0\n4,cloud,0,L40S,12,8,1.9,1,0.15\n"
    )
    (tmp_path / "pools.csv").write_text(table)
    world = from_yaml("sites_table: pools.csv\nspeeds: {H100: 1, A100: 0.65}", tmp_path)
    assert [(site.name, site.price_usd_gpu_h) for site in world.sites] == [
        ("site-0-h100", 0.6),
        ("site-0-a100", 0.36),
    ]
    assert [(offer.name, offer.price_usd_h, offer.available) for offer in world.offers] == [
        ("site-4/L40Sx1", 1.9, 96),
        ("site-4/L40Sx2", 3.8, 48),
        ("site-4/L40Sx4", 7.6, 24),
        ("site-4/L40Sx8", 15.2, 12),
    ]
    assert {offer.delay_s for offer in world.offers} == {540.0}
    assert [(offer.stock.limit, offer.stock.each) for offer in world.offers if offer.stock] == [
        (96, 1),
        (96, 2),
        (96, 4),
        (96, 8),
    ]
    assert {offer.stock.name for offer in world.offers if offer.stock} == {"site-4/L40S"}
    assert world.cloud_sites == {"site-4-burst": "site-4-burst"}
    with pytest.raises(Invalid, match="line 2"):
        from_table("site,nodes,gpus_per_node\na,none,8\n", "bad.csv")


def test_nodes_of_another_size_are_rented_whole_too() -> None:
    table = "site,gpu_model,nodes,gpus_per_node,usd_per_gpu_h,burst\n0,L4,1,8,0.1,0\n1,L4,3,6,1,1\n"
    world = from_table(table, "t.csv")
    assert [(offer.gpus, offer.available) for offer in world.offers] == [(1, 18), (2, 9), (4, 3), (6, 3)]


def test_pools_of_one_price_stay_one_site() -> None:
    (site,) = from_table("site,gpu_model,nodes,gpus_per_node\n0,H100,1,8\n0,A100,1,8\n", "t.csv").sites
    assert [(pool.name, pool.model) for pool in site.pools] == [("main", "H100"), ("a100-1", "A100")]


def test_capacity_is_scaled_by_whole_nodes(tmp_path: Path) -> None:
    world: WorldSpec = load_world(folder_with(tmp_path))
    assert [pool.nodes for site in scaled(world, 0.5).sites for pool in site.pools] == [2, 1, 2]
    assert [pool.nodes for site in scaled(world, 0.1).sites for pool in site.pools] == [1, 1, 1]
    assert scaled(world, 1.0) is world


def test_offers_of_a_world_draw_on_a_stock_and_it_is_saved() -> None:
    burst = """
burst:
  - {name: small, model: A100, gpus: 1, price: 3 USD, stock: {name: A100, limit: 16}}
  - {name: large, model: A100, gpus: 8, price: 22 USD, stock: {name: A100, limit: 16, each: 9, unit: units}}
"""
    text = "sites: [{name: s, pools: [{name: main, model: A100, nodes: 1, gpus_per_node: 1}]}]" + burst
    world = from_yaml(text, Path())
    small, large = world.offers
    assert small.stock == Stock("A100", 16, each=1, unit="GPUs")
    assert large.stock == Stock("A100", 16, each=9, unit="units")
    assert from_yaml(world_yaml(world), Path()).offers == world.offers
    with pytest.raises(Invalid, match="different limits"):
        from_yaml(text.replace("16}", "17}"), Path())
    with pytest.raises(Invalid) as told:
        from_yaml(text.replace("limit: 16}", "limit: -1}"), Path())
    assert told.value.field == "$.burst[0].stock.limit"

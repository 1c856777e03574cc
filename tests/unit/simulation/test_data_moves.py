"""Data that moves in a simulated world: by hand, to the second and the cent, and booked as it was moved."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Input
from federator.simulation.accounting import figures, violations
from federator.simulation.data_moves import book_of
from federator.simulation.running import Outcome, simulate
from federator.simulation.traces import read_trace
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from federator.simulation.world_files import from_table, from_yaml
from tests.lab.schedulers import SCHEDULERS

HERE = Path(__file__).parent
WORLD = """
name: two regions
sites:
  - {name: hall, region: eu, price: 0.5 USD, pools: [{model: A100, nodes: 1, gpus_per_node: 8}]}
  - {name: shed, region: us, price: 0.1 USD, pools: [{model: A100, nodes: 1, gpus_per_node: 8}]}
links:
  within_region: {gbit_per_s: 5, usd_per_gb: 0.02}
  between_regions: {gbit_per_s: 1, usd_per_gb: 0.08}
datasets:
  - {uri: s3://datasets/imagenet, size: 150GB, replicas: [{site: hall}]}
"""
IMAGENET = Input("s3://datasets/imagenet")


def job(name: str, **fields: Any) -> TraceJob:
    given: dict[str, Any] = {"submit_s": 0.0, "run_s": 3600.0, "gpus": 8, "estimate_s": 3600.0}
    return TraceJob(name=name, **(given | fields))


def played(jobs: list[TraceJob], world: WorldSpec, scheduler: str = "greedy") -> Outcome:
    return simulate(world, jobs, SCHEDULERS[scheduler], seed=1)


@pytest.fixture
def world() -> WorldSpec:
    return from_yaml(WORLD, HERE)


def test_a_job_runs_where_its_data_is_and_the_next_one_has_it_brought(world: WorldSpec) -> None:
    jobs = [job(name, inputs=(IMAGENET,), deadline_s=6600.0, value_usd=100.0) for name in ("first", "second")]
    outcome = played(jobs, world)
    first, second = sorted(outcome.schedule.attempts, key=lambda row: row.job)
    assert {first.site, second.site} == {"hall", "shed"}
    home, away = sorted((first, second), key=lambda row: row.site)
    assert home.start_s == pytest.approx(0.0, abs=70.0)
    assert (home.egress_usd, home.moved_gb) == (0.0, 0.0)
    assert away.start_s == pytest.approx((home.start_s or 0.0) + 1200.0, abs=1.0)
    assert away.egress_usd == pytest.approx(12.0)
    assert away.moved_gb == pytest.approx(150.0)
    found = figures(outcome, world, jobs)
    assert found.violations == ()
    assert found.egress_usd == pytest.approx(12.0)
    assert found.loss_usd == pytest.approx(12.0 + 8 * 0.5 + 8 * 0.1, abs=0.01)
    assert outcome.schedule.ledger_moved_usd == pytest.approx(12.0)


def test_without_links_in_the_world_data_moves_for_nothing(world: WorldSpec) -> None:
    plain = msgspec.structs.replace(world, data=())
    outcome = played([job("one", inputs=(IMAGENET,))], plain)
    (row,) = outcome.schedule.attempts
    assert (row.site, row.moved_gb, row.egress_usd) == ("shed", 0.0, 0.0)


def test_a_schedule_that_moves_other_bytes_than_it_prices_cannot_be_true(world: WorldSpec) -> None:
    jobs = [job("one", inputs=(IMAGENET,), models=("A100",))]
    outcome = played(jobs, msgspec.structs.replace(world, sites=world.sites[1:]))
    (row,) = outcome.schedule.attempts
    assert row.moved_gb == pytest.approx(150.0)
    for change in ({"moved_gb": 149.0}, {"egress_usd": 11.0}, {"moved_gb": 0.0, "egress_usd": 0.0}):
        wrong = msgspec.structs.replace(outcome.schedule, attempts=(msgspec.structs.replace(row, **change),))
        told = list(violations(msgspec.structs.replace(outcome, schedule=wrong), world, jobs))
        assert any("GB" in text or "USD" in text for text in told)
    unheard = msgspec.structs.replace(outcome.schedule, ledger_moved_usd=0.0)
    told = list(violations(msgspec.structs.replace(outcome, schedule=unheard), world, jobs))
    assert told == ["attempts have moved data for 12.00 USD, and the ledger has 0.00"]


POOLS = """site,site_kind,region,gpu_model,nodes,gpus_per_node,usd_per_gpu_h,burst,provisioning_h
0,onprem,0,H100,1,8,0.6,0,0
0,onprem,0,A100,1,8,0.36,0,0
1,cloud,0,A100,1,8,1.0,0,0
1,cloud,0,A100,4,8,3.0,1,0.15
2,edge,1,A100,1,4,0.1,0,0
"""


def test_a_table_of_pools_has_links_and_the_data_of_each_of_its_sites() -> None:
    book = book_of(from_table(POOLS, "pools.csv"))
    data = (Input("s3://site-0", 100 * 10**9),)
    told = {
        site: (round(found.seconds), round(found.usd, 2))
        for site in ("site-0-h100", "site-0-a100", "site-1", "site-1-burst", "site-2")
        for found in (book.to_site(data, site),)
    }
    assert told == {
        "site-0-h100": (0, 0.0),
        "site-0-a100": (0, 0.0),
        "site-1": (160, 2.0),
        "site-1-burst": (160, 2.0),
        "site-2": (800, 8.0),
    }
    assert book.to_site((Input("s3://site-1", 10**9),), "site-1-burst").moved_bytes == 0


def test_the_online_traces_data_is_an_input_of_its_job(tmp_path: Path) -> None:
    trace = tmp_path / "online.csv"
    trace.write_text(
        "job,array,submit_h,nodes,gpus_per_node,gpu_models,runtime_h,estimate_h,priority_band,deadline_h,value_usd,"
        "wait_usd_per_h,tenant,data_site,data_gb\n"
        "a,1,0.1,1,8,A100,1,1,1,,0,0.4,0,1,491.5\nb,1,0.1,1,8,A100,1,1,1,,0,0.4,0,1,0.0\nc,1,0.1,1,8,A100,1,1,1,,0,0.4,0,,\n"
    )
    a, b, c = read_trace(trace)
    assert a.inputs == (Input("s3://site-1", 491_500_000_000),)
    assert b.inputs == c.inputs == ()


def test_a_plain_trace_names_inputs_with_or_without_their_size(tmp_path: Path) -> None:
    trace = tmp_path / "plain.csv"
    trace.write_text("name,submit_s,run_s,inputs\na,0,1,s3://one=2GB|s3://two\nb,0,1,\n")
    a, b = read_trace(trace)
    assert a.inputs == (Input("s3://one", 2 * 10**9), Input("s3://two"))
    assert b.inputs == ()


def test_a_table_of_links_is_read_as_far_as_it_is_about_the_world(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text(
        "src,dst,usd_per_gb_2023,usd_per_gb_2022,gbps_2022_11\neu,us,,0.09,2.0\nus,eu,0.05,0.09,\nmoon,eu,9,9,1\n"
    )
    text = WORLD[: WORLD.index("links:")] + (
        "links: {table: links.csv}\ndatasets: [{uri: s3://data, size: 1GB, replicas: [{site: hall}, {site: shed}]}]\n"
    )
    book = book_of(from_yaml(text, tmp_path))
    (table,) = book.links
    assert [(row.src, row.dst, row.link.gbit_s, row.link.usd_per_gb) for row in table.rows] == [
        ("eu", "us", 2.0, 0.09),
        ("us", "eu", None, 0.05),
    ]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("gbit_per_s: 5", "gbit_per_s: 0", "$.links.within_region.gbit_per_s"),
        ("s3://datasets", "gs://datasets", "$.datasets.uri"),
        ("size: 150GB", "size: 150", "$.datasets.size"),
        ("links:", "links:\n  table: none.csv", "$.links.table"),
    ],
)
def test_a_mistake_in_a_world_is_named(old: str, new: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        from_yaml(WORLD.replace(old, new), HERE)
    assert caught.value.field == field

"""What a dispatcher tells of its load and world, made into a trace and a world, and kept as files that say the same."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.jobs import Input
from federator.model.sites import SiteKind
from federator.simulation.clouds import OfferRisk
from federator.simulation.data_moves import all_policies, document
from federator.simulation.live import taken
from federator.simulation.saving import trace_csv, world_yaml
from federator.simulation.sites import Conditions
from federator.simulation.traces import read_trace
from federator.simulation.work import TraceForm, request_of
from federator.simulation.world_files import load_world
from federator.wire.recorded import RecordedJob, RecordedOffer, RecordedPool, RecordedSite, RecordedWorld
from federator_policies.documents import compile_set, load
from tests.unit.simulation.tiny import ECONOMIC, OFFER, job, renting_world, site

AT = 1_760_000_000.0
POOL = RecordedPool(name="main", model="A100", gpu_memory_mib=81920, nodes=2, gpus_per_node=4, cpus_milli_per_node=64_000, memory_mib_per_node=500_000)  # fmt: skip
LAB = RecordedSite(name="lab", kind=SiteKind.ONPREM, price_usd_gpu_h=0.4, pools=(POOL,))
WORLD = RecordedWorld(taken_at=AT, sites=(LAB,), offers=(RecordedOffer(OFFER, "rented"),))


def recorded(name: str = "job-a", **fields: Any) -> RecordedJob:
    given: dict[str, Any] = {"id": f"job-{name}", "queue": "q", "owner": "ada", "ready_at": AT + 60.0, "run_s": 600.0, "ended": True, "gpus": 1, "cpus_milli": 1500}  # fmt: skip
    return RecordedJob(name=name, **(given | fields))


def test_a_world_and_a_trace_are_taken() -> None:
    live = taken(
        "live",
        WORLD,
        [recorded(deadline_at=AT + 3600.0, must=True, speed={"A100": 2.0})],
        AT,
        policies=ECONOMIC,
    )
    assert [pool.nodes for pool in live.world.sites[0].pools] == [2]
    assert live.world.cloud_sites == {"cloud": "rented"}
    assert live.world.offers == (OFFER,)
    (only,) = live.jobs
    assert (only.submit_s, only.run_s, only.deadline_s, only.cpus_milli) == (60.0, 600.0, 3600.0, 1500)
    assert only.must
    assert live.remarks == ()


def test_what_was_there_before_begins_at_once_with_what_is_left_of_it() -> None:
    late = recorded(
        "b", ready_at=AT - 500.0, run_s=1000.0, ran_before_s=400.0, estimate_s=900.0, deadline_at=AT - 10.0
    )
    done = recorded("c", ready_at=AT - 900.0, run_s=100.0, ran_before_s=100.0)
    (only,) = taken("live", WORLD, [late, done], AT).jobs
    assert (only.name, only.submit_s, only.run_s, only.estimate_s) == ("b", 0.0, 600.0, 500.0)
    assert only.deadline_s == 1.0, "it is missed, but can be submitted"


def test_names_that_several_jobs_have_are_told_apart() -> None:
    jobs = [recorded("a", id="job-000001"), recorded("a", id="job-000002"), recorded("b", id="job-000003")]
    told = [(each.name, each.family) for each in taken("live", WORLD, jobs, AT).jobs]
    assert told == [("a-000001", "a"), ("a-000002", "a"), ("b", "")]


def test_what_is_not_known_or_left_out_is_remarked() -> None:
    away = RecordedSite(name="away", kind=SiteKind.EDGE)
    drained = msgspec.structs.replace(LAB, name="old", draining=True)
    told = msgspec.structs.replace(WORLD, sites=(LAB, away, drained))
    live = taken("live", told, [recorded(ended=False)], AT, left_out=3)
    assert [each.name for each in live.world.sites] == ["lab"]
    assert live.remarks == (
        "without sites that are draining: old",
        "without sites that have not reported: away",
        "without 3 jobs that never ran or asked for part of a GPU, which simulations do not know",
        "1 jobs are not over: their run times are as expected",
    )
    with pytest.raises(Invalid, match="no job of that time"):
        taken("live", WORLD, [], AT)
    with pytest.raises(Invalid, match="no site"):
        taken("live", msgspec.structs.replace(WORLD, sites=(away,)), [recorded()], AT)


def test_a_world_that_is_kept_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    made = renting_world(
        risk=OfferRisk(interruptions_h=0.5, sold_out=0.25), speeds={"A100": 1.0, "H100": 2.5}
    )
    lab = site("lab", nodes=3, region="eu", labels={"team": "vision"}, price_usd_gpu_h=0.35)
    lab = msgspec.structs.replace(lab, conditions=Conditions(latency_s=0.05, staging_s=90.0))
    made = msgspec.structs.replace(made, sites=(lab, site("far", gpus=2, model="L4")))
    links = {"within_region": {"gbit_per_s": 10}, "between_regions": {"gbit_per_s": 1, "usd_per_gb": 0.08}}
    lab_data = {"uri": "s3://data/a", "size": "150GB", "replicas": [{"site": "lab"}]}
    made = msgspec.structs.replace(
        made, data=(document("Links", "world", links), document("Dataset", "world-0", lab_data))
    )
    (tmp_path / "w.policies.yaml").write_text(ECONOMIC)
    (tmp_path / "w.yaml").write_text(world_yaml(made, "w.policies.yaml"))
    read = load_world(tmp_path / "w.yaml")
    assert read.sites == made.sites
    assert read.policies == made.policies
    assert compile_set(load(all_policies(read))) == compile_set(load(all_policies(made)))
    assert (read.name, read.speeds, read.risks, read.cloud_sites) == (made.name, made.speeds, made.risks, made.cloud_sites)  # fmt: skip
    known = {"cpus_milli", "memory_mib", "gpu_memory_mib"}  # an offer in a file has what is usual
    for name in OFFER.__struct_fields__:
        assert name in known or getattr(read.offers[0], name) == getattr(OFFER, name), name


def test_a_trace_that_is_kept_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    whole = job(
        "a", 1.25, 60.5, nodes=2, gpus=4, deadline_s=500.0, value_usd=9.5, priority=70, queue="q/r", owner="ada", home="lab",
        models=("A100", "H100"), gpu_memory_mib=40_000, speed={"A100": 1.0, "H100": 1.9}, cpus_milli=1500, memory_mib=2000,
        kinds=("onprem",), sites=("lab", "far"), not_sites=("old",), site_labels={"region": "eu"}, labels={"team": "vision"},
        spot_policy="spot", max_cost_usd=12.5, family="f", wait_usd_h=0.25,
        inputs=(Input("s3://data/a", 10**9), Input("s3://data/b")), forms=(TraceForm(4, 4, 1.9), TraceForm(1, 4, 0.5)), elastic=True,
        saves_s=600.0, must=True, licenses={"matlab": 2},
    )  # fmt: skip
    missing = [
        name
        for name in whole.__struct_fields__
        if getattr(whole, name) == getattr(job("a"), name) and name != "name"
    ]
    assert not missing, "give each field another value than usual"
    (tmp_path / "t.csv").write_text(trace_csv([whole, job("b", 2.0)]))
    assert read_trace(tmp_path / "t.csv") == [whole, job("b", 2.0)]


def test_what_a_job_says_of_itself_reaches_its_submission() -> None:
    one = job(
        "a", speed={"A100": 2.0}, kinds=("edge",), sites=("lab",), not_sites=("old",), site_labels={"r": "eu"}, labels={"t": "v"},
        spot_policy="spot", max_cost_usd=3.0, gpu_memory_mib=40_000, licenses={"matlab": 2},
    )  # fmt: skip
    request = request_of(one, AT, {"A100": 1.5})
    spec = request.spec
    assert spec.licenses == {"matlab": 2}
    assert (spec.speed, spec.labels, spec.spot_policy, request.max_cost_usd) == (
        {"A100": 2.0},
        {"t": "v"},
        "spot",
        3.0,
    )
    where = spec.placement
    assert (where.kinds, where.sites, where.not_sites, where.labels) == (
        ("edge",),
        ("lab",),
        ("old",),
        {"r": "eu"},
    )
    assert spec.resources.gpus.memory_mib == 40_000
    assert request_of(job("b"), AT, {"A100": 1.5}).spec.speed == {"A100": 1.5}

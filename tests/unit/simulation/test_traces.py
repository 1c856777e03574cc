"""Each format of traces is read as its authors mean it, and what is wrong is named by file, line and column."""

import gzip
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator.simulation.loads import LoadOptions, prepared
from federator.simulation.traces import read_trace
from federator.simulation.work import TraceJob
from tests.unit.simulation.tiny import job, row, run, site, world

PLAIN = """name,submit_s,run_s,nodes,gpus,estimate_s,deadline_s,queue,home,models,max_duration_s
late,100,50,2,4,60,900,research/vision,lab,A100|H100,300
early,10,5,,,,,,,,
"""
ELASTICFLOW = """cluster,job,submit_s,duration_s,num_gpu,deadline_s,model,batch_size,num_iteration
itp01,01-7,1932025,2429,64,1933904,resnet50,256,45775
itp02,02-1,2000581,1532,4,2002204,gpt2,128,11197
"""
CHRONUS = """job,vc,num_gpu,submit_min,duration_min,job_type,deadline_rel_min,soft_deadlines_rel_min,soft_values,model,iterations,interval
5620,6c71a0,1,1,196,strict,359,359,10,resnet101,3488,7
6209,7f04ca,0,2,10,best,,,,x,1,1
"""
ALIBABA = """pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,gpu_spec33,qos,phase,create_s,scheduled_s,delete_s,run_s
0001,6000,12288,1,460,V100M16|V100M32,,LS,Running,427061,427061,427161,100
0002,6000,12288,1,460,,,LS,Pending,427061,,,
"""
ONLINE = """job,array,submit_h,nodes,gpus_per_node,gpu_models,runtime_h,estimate_h,priority_band,deadline_h,value_usd,wait_usd_per_h,tenant,data_site,data_gb
j0,847,0.5,1,4,L4|A100,0.1,0.05,2,2.5,12.5,0.8,3,1,0.0
j1,848,1.0,2,8,A100,1,1,0,,0.00,0.8,0,1,0.0
"""


def read(folder: Path, text: str, name: str = "trace.csv", **options: int) -> list[TraceJob]:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_trace(path, **options)


def test_the_plain_table(tmp_path: Path) -> None:
    early, late = read(tmp_path, PLAIN, "trace.csv.gz")
    assert (early.name, early.submit_s, early.run_s, early.nodes, early.gpus) == ("early", 10.0, 5.0, 1, 1)
    assert (early.deadline_s, early.estimate_s, early.queue) == (None, None, "default")
    assert (late.nodes, late.gpus, late.gpus_total, late.models) == (2, 4, 8, ("A100", "H100"))
    assert (late.deadline_s, late.queue, late.home) == (900.0, "research/vision", "lab")
    assert late.max_duration_s == 300.0


def test_the_ten_clusters_ask_for_whole_nodes(tmp_path: Path) -> None:
    gang, small = read(tmp_path, ELASTICFLOW)
    assert (gang.nodes, gang.gpus, gang.home, gang.deadline_s) == (8, 8, "itp01", 1933904.0)
    assert (small.nodes, small.gpus, small.run_s) == (1, 4, 1532.0)
    assert read(tmp_path, ELASTICFLOW, gpus_per_node=4)[0].nodes == 16


def test_chronus_counts_in_minutes_and_best_effort_has_no_deadline(tmp_path: Path) -> None:
    strict, best = read(tmp_path, CHRONUS)
    assert (strict.submit_s, strict.run_s, strict.deadline_s) == (60.0, 196 * 60.0, 60.0 + 359 * 60.0)
    assert (best.gpus, best.deadline_s) == (0, None)


def test_pods_that_never_ran_are_left_out(tmp_path: Path) -> None:
    (pod,) = read(tmp_path, ALIBABA)
    assert (pod.gpus, pod.cpus_milli, pod.memory_mib, pod.run_s) == (1, 6000, 12288, 100.0)
    assert pod.models == ("V100M16", "V100M32")


def test_the_synthetic_family_has_its_own_estimates_values_and_homes(tmp_path: Path) -> None:
    first, second = read(tmp_path, ONLINE)
    assert (first.submit_s, first.run_s, first.estimate_s) == (1800.0, 360.0, 180.0)
    assert (first.deadline_s, first.value_usd, first.priority) == (9000.0, 12.5, 70)
    assert (first.home, first.owner, first.wait_usd_h) == ("site-1", "tenant-3", 0.8)
    assert (second.deadline_s, second.value_usd, second.priority) == (None, None, 30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,submit_s,run_s\nx,1,zwei\n", "line 2 is not a job: run_s must be a number, not zwei"),
        ("name,submit_s,run_s\nx,1\n", "line 2 is not a job: run_s must be a number, not nothing"),
        ("name,submit_s,run_s,nodes\nx,1,2,1.5\n", "nodes must be a whole number, not 1.5"),
        ("name,submit_s,run_s,nodes\nx,1,2,inf\n", "nodes is inf, and not between 0 and"),
        ("name,submit_s,run_s\nx,1,2\nx,1,2\n", "line 3 repeats"),
        ("name,submit_s,run_s\nx,-1,2\n", "line 2"),
        ("name,submit_s,run_s,gpu\nx,1,2,4\n", "no column 'gpu'"),
        ("when,what\n1,2\n", "not a known trace"),
        ("name,submit_s,run_s\n", "has no jobs"),
        ("", "not a known trace"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Invalid) as raised:
        read(tmp_path, text)
    assert words in raised.value.describe()


def test_a_file_that_is_not_there_or_not_gzip_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "broken.csv.gz").write_bytes(b"name,submit_s\n")
    with pytest.raises(Invalid, match="cannot be read"):
        read_trace(tmp_path / "broken.csv.gz")


# --- what is done to a trace ---------------------------------------------------------------------------------------------

JOBS = [job(f"j{n}", submit_s=1000.0 + 100.0 * n, run_s=50.0, max_duration_s=None) for n in range(100)]


def test_a_window_begins_at_zero_and_moves_deadlines_along() -> None:
    due = [job("due", submit_s=1500.0, deadline_s=1700.0, run_s=50.0)]
    cut = prepared([*JOBS, *due], LoadOptions(start_s=500.0, length_s=250.0), seed=0)
    assert [each.name for each in cut] == ["due", "j5", "j6", "j7"]
    assert [each.submit_s for each in cut] == [0.0, 0.0, 100.0, 200.0]
    assert cut[0].deadline_s == 200.0
    with pytest.raises(Invalid, match="no job"):
        prepared(JOBS, LoadOptions(start_s=1e6), seed=0)


def test_deadlines_are_so_many_run_times_after_the_submission() -> None:
    (first, *_) = prepared(JOBS, LoadOptions(deadline_k=3.0), seed=0)
    assert first.deadline_s == first.submit_s + 150.0


def test_load_repeats_jobs_whole_and_by_chance() -> None:
    assert len(prepared(JOBS, LoadOptions(load=2.0), seed=0)) == 200
    half = len(prepared(JOBS, LoadOptions(load=0.5), seed=0))
    assert 30 < half < 70
    names = [each.name for each in prepared(JOBS, LoadOptions(load=2.5), seed=0)]
    assert len(set(names)) == len(names)


def test_estimates_err_by_the_seed_and_nothing_else_changes_them() -> None:
    def estimates(seed: int, **options: float) -> list[float | None]:
        return [each.estimate_s for each in prepared(JOBS, LoadOptions(sigma=0.4, **options), seed=seed)]

    first = estimates(1)
    assert estimates(1) == first
    assert estimates(1, deadline_k=2.0) == first
    assert estimates(2) != first
    ratios = sorted((each or 0.0) / 50.0 for each in first)
    assert ratios[0] < 0.8
    assert ratios[-1] > 1.25
    assert 0.8 < ratios[50] < 1.25


def test_limits_end_nobody_and_values_go_by_gpu_hours() -> None:
    options = LoadOptions(sigma=1.0, deadline_k=2.0, value_usd_gpu_h=3.0)
    for each in prepared(JOBS, options, seed=0):
        assert (each.max_duration_s or 0.0) >= 4 * max(each.run_s, each.estimate_s or 0.0)
        assert each.value_usd == pytest.approx(3.0 * 50.0 / 3600.0)


def test_a_limit_has_room_for_the_slowest_model_that_the_job_may_use() -> None:
    """A T4 takes eight times as long: a limit by the reference's run time ended jobs there."""
    where = world(site("old", model="T4"), site("new", model="A100"), speeds={"T4": 0.125, "A100": 1.0})
    anywhere, there = prepared(
        [
            job("anywhere", run_s=600.0, max_duration_s=None),
            job("there", run_s=600.0, models=("A100",), max_duration_s=None),
        ],
        LoadOptions(),
        seed=0,
        world=where,
    )
    assert (anywhere.max_duration_s, there.max_duration_s) == (8 * 4 * 600.0, 4 * 600.0)
    assert row(run(world(where.sites[0], speeds=where.speeds), anywhere), "anywhere").outcome == "succeeded"

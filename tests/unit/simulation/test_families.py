"""Jobs of one array of the synthetic family are submitted under one name, as an owner would: so the dispatcher may learn from one about the rest."""

from pathlib import Path

from federator.simulation.traces import read_trace
from federator.simulation.work import TraceJob, request_of

ROWS = """job,array,submit_h,nodes,gpus_per_node,gpu_models,runtime_h,estimate_h,priority_band,deadline_h,value_usd,wait_usd_per_h,tenant,data_site,data_gb
j0,847,0.0,1,4,L4|A100,0.10,0.06,1,,0.00,0.8,0,1,0.0
j1,847,0.0,1,4,L4|A100,0.11,0.06,1,,0.00,0.8,0,1,0.0
j2,26,0.1,2,8,A100,3.0,2.7,0,,0.00,0.8,2,1,491.0
"""


def test_an_array_has_one_name_and_each_of_its_jobs_its_own_row(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(ROWS, encoding="utf-8")
    jobs = read_trace(path)
    assert [job.name for job in jobs] == ["j0", "j1", "j2"]
    names = [request_of(job, 0.0, {}).spec.name for job in jobs]
    assert names == ["array-847", "array-847", "array-26"]


def test_a_job_of_no_family_goes_by_its_own_name() -> None:
    assert request_of(TraceJob(name="alone", submit_s=0.0, run_s=60.0), 0.0, {}).spec.name == "alone"

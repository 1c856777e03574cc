"""Jobs of several forms in a simulation: what the trace says of them, what users submit, and how far each has come."""

import csv
import gzip
from pathlib import Path

import pytest

from federator.kernel.errors import Invalid
from federator.simulation.traces import read_trace
from federator.simulation.work import RESUMING_S, TraceForm, WorkDone, request_of
from tests.lab.comparison import elasticflow
from tests.lab.comparison.cases import Case, all_cases, jobs_of, runs_of, world_of
from tests.unit.simulation.tiny import job

FORMS = (TraceForm(1, 2, 1.8), TraceForm(2, 8, 6.0))


def test_the_plain_table_has_forms(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        "name,submit_s,run_s,gpus,forms,elastic\na,0,60,1,1x2=1.8|2x8=6,yes\nb,0,60,1,,\n", encoding="utf-8"
    )
    one, other = read_trace(file)
    assert (one.forms, one.elastic) == (FORMS, True)
    assert (other.forms, other.elastic) == ((), False)
    file.write_text("name,submit_s,run_s,forms\na,0,60,1x2=0\n", encoding="utf-8")
    with pytest.raises(Invalid, match="line 2 is not a job"):
        read_trace(file)


def test_users_submit_forms_and_a_checkpoint_where_they_may_change() -> None:
    spec = request_of(job("one", forms=FORMS, elastic=True), 0.0, {}).spec
    assert [(form.nodes, form.resources.gpus.count, form.throughput) for form in spec.forms or ()] == [
        (1, 2, 1.8),
        (2, 8, 6.0),
    ]
    assert spec.elastic
    assert spec.checkpoint is not None
    rigid = request_of(job("one"), 0.0, {}).spec
    assert not rigid.forms
    assert not rigid.elastic
    assert rigid.checkpoint is None


def test_work_is_counted_in_what_was_asked_for_whatever_form_has_done_it() -> None:
    progress = WorkDone({"H100": 2.0})
    progress.know("j1", job("one", run_s=1200.0, forms=FORMS))
    assert progress.left_s("j1", "A100", "lab", resume=False) == 1200.0
    assert progress.left_s("j1", "A100", "lab", resume=False, form=2) == 200.0
    assert progress.left_s("j1", "H100", "lab", resume=False, form=2) == 100.0
    progress.save("j1", "A100", "lab", 100.0, form=2)  # 600 s of it
    assert progress.left_s("j1", "A100", "lab", resume=True) == RESUMING_S + 600.0
    assert progress.left_s("j1", "A100", "lab", resume=False) == 1200.0
    progress.save("j1", "A100", "lab", RESUMING_S + 100.0, resume=True, form=1)  # 180 s more
    assert progress.left_s("j1", "A100", "lab", resume=True, form=2) == RESUMING_S + 70.0
    progress.save("j1", "A100", "lab", 10.0)  # it began anew
    assert progress.left_s("j1", "A100", "lab", resume=True) == RESUMING_S + 1190.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        [
            "cluster",
            "job",
            "submit_s",
            "duration_s",
            "num_gpu",
            "deadline_s",
            "model",
            "batch_size",
            "num_iteration",
        ]
    ]
    rows += [
        ["itp05", "05-1", "0", "1000", "8", "900", "bert", "64", "1"],
        ["itp02", "02-1", "9", "50", "1", "99", "bert", "64", "1"],
    ]
    with gzip.open(tmp_path / elasticflow.TRACE, "wt", newline="") as trace:
        csv.writer(trace).writerows(rows)
    curve = {1: 5.0, 4: 8.0, 8: 10.0, 16: 12.0, 32: 11.0, 64: 12.5}
    text = "".join(f"bert,A100,64,{gpus},{speed}\nbert,T4,64,{gpus},1\n" for gpus, speed in curve.items())
    (tmp_path / elasticflow.CURVES).write_text(
        f"model,gpu_type,global_batch,num_gpu,iterations_per_s\n{text}"
    )
    (tmp_path / elasticflow.CLUSTERS).write_text("cluster,sim_nodes,gpus_per_node\nitp02,64,8\nitp05,2,8\n")
    return tmp_path


def case(name: str) -> Case:
    return next(each for each in all_cases() if each.name == name)


def test_elasticflows_jobs_have_the_forms_that_make_them_faster(data: Path) -> None:
    given = case("elasticflow/itp05/elastic")
    where = world_of(given, data)
    assert where.gpus == 16
    (one,) = jobs_of(given, data, where)
    assert (one.name, one.nodes, one.gpus, one.deadline_s, one.estimate_s) == ("05-1", 1, 8, 900.0, 1000.0)
    assert one.forms == (
        TraceForm(1, 1, 0.5),
        TraceForm(1, 4, 0.8),
        TraceForm(2, 8, 1.2),
        TraceForm(8, 8, 1.25),
    ), "32 GPUs are slower than 16: nobody would take them"
    (rigid,) = jobs_of(case("elasticflow/itp05/rigid"), data, where)
    assert (rigid.forms, rigid.elastic) == ((), False)
    both = case("elasticflow/federated/elastic")
    assert [each.name for each in jobs_of(both, data, world_of(both, data))] == ["05-1", "02-1"]


def test_baselines_run_rigid_jobs_only() -> None:
    cases = [case("elasticflow/itp05/rigid"), case("elasticflow/itp05/elastic")]
    assert [(run.scheduler, run.case.elastic) for run in runs_of(cases, ("ours", "fifo"))] == [
        ("ours", False),
        ("fifo", False),
        ("ours", True),
    ]

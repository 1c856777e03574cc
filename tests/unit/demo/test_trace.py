"""A trace is read as its columns say, the earliest first, and a bad file is named with what is wrong in it."""

import gzip
from pathlib import Path

import pytest

from federator.cli.demo.trace import as_job_file, read_plan
from federator.kernel.errors import Invalid
from federator.wire.jobfile import read_job

SITES = "cluster,sim_gpus,gpus_per_node\na,16,8\nb,8,8\n"
HEAD = "cluster,job,submit_s,duration_s,num_gpu,model\n"
ROWS = "a,a-2,500,100,1,x\nb,b-1,100,60,16,x\na,a-1,100,7200,8,x\n"


def write(folder: Path, text: str = HEAD + ROWS, sites: str = SITES) -> Path:
    (folder / "itp10_sites_x0.2.csv").write_text(sites)
    with gzip.open(folder / "t.csv.gz", "wt") as file:
        file.write(text)
    return folder / "t.csv.gz"


def test_the_earliest_by_submit_time_come_first(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path), None, 2, 100.0)
    assert [job.name for job in plan.jobs] == ["a-1", "b-1"]
    assert [(each.name, each.pools[0].nodes, each.pools[0].gpus_per_node) for each in plan.sites] == [
        ("a", 2, 8),
        ("b", 1, 8),
    ]
    assert plan.least_s == 72.0


def test_a_row_becomes_a_gang_that_is_due_after_three_times_its_duration(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path), None, 3, 100.0)
    began_at = 1_800_000_000.0
    job = read_job(as_job_file(plan.jobs[1], plan, began_at), now=began_at)
    assert (job.spec.nodes, job.spec.resources.gpus.count, job.spec.estimate_s) == (2, 8, 60.0)
    assert job.spec.run == "exec sleep 0.600"
    assert job.deadline_at == began_at + 180
    late = read_job(as_job_file(plan.jobs[2], plan, began_at), now=began_at)
    assert late.deadline_at == began_at + 400 + 300, "the deadline counts from its own submit time"


@pytest.mark.parametrize(
    ("text", "sites", "says"),
    [
        (
            "cluster,job,submit_s,num_gpu\n",
            SITES,
            "is not a known trace format: its columns are cluster, job,",
        ),
        (HEAD + "a,j,soon,1,1,x\n", SITES, "line 2 is not a job: submit_s must be a number, not soon"),
        (HEAD + "a,j,1,-5,1,x\n", SITES, "line 2 is not a job: duration_s is -5, and not between 0"),
        (HEAD + "a,j,1\n", SITES, "line 2 is not a job: num_gpu must be a number, not nothing"),
        (HEAD, SITES, "has no jobs"),
        (HEAD + ROWS, "cluster,gpus\na,8\n", "line 2 is not a pool: there is no 'gpus_per_node'"),
        (HEAD + ROWS, "cluster,sim_gpus,gpus_per_node\na,4,8\n", "line 2 is not a pool: nodes are 1 to"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, sites: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_plan(write(tmp_path, text, sites), None, 5, 100.0)
    assert says in refused.value.describe()


def test_a_file_that_is_not_there_or_not_gzip_is_said(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(Invalid, match=r"none\.csv\.gz cannot be read"):
        read_plan(tmp_path / "none.csv.gz", None, 5, 100.0)
    with pytest.raises(Invalid, match=r"^--sites: .*cannot be read"):
        read_plan(tmp_path / "t.csv.gz", tmp_path / "none.csv", 5, 100.0)
    (tmp_path / "t.csv.gz").write_text("not gzip")
    with pytest.raises(Invalid, match="Not a gzipped file"):
        read_plan(tmp_path / "t.csv.gz", None, 5, 100.0)


def test_a_file_that_was_cut_off_is_said(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(Invalid, match="cannot be read: Compressed file ended"):
        read_plan(path, None, 5, 100.0)


@pytest.mark.parametrize(("jobs", "speedup", "field"), [(0, 1.0, "--jobs"), (1, 0.0, "--speedup")])
def test_numbers_that_make_no_sense_are_refused(
    tmp_path: Path, jobs: int, speedup: float, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_plan(write(tmp_path), None, jobs, speedup)
    assert refused.value.field == field

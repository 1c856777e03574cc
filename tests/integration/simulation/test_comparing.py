"""The comparison in processes of its own: what is done is kept, what fails is named, and nothing is done twice."""

from pathlib import Path

import msgspec
import pytest

from tests.lab.comparison.cases import Run, all_cases, chosen, runs_of
from tests.lab.comparison.judging import key_of
from tests.lab.comparison.running import Orders, make
from tests.support import ten_clusters


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of the data."""
    return ten_clusters.write(tmp_path / "data")


def runs(*schedulers: str) -> list[Run]:
    return runs_of(chosen(all_cases(), ("ten-clusters/x0.2/k3",)), schedulers)


def test_what_is_there_is_used_again_until_something_changes(data: Path, tmp_path: Path) -> None:
    orders = Orders(data=data, folder=tmp_path / "out", workers=2)
    wanted, said = runs("fifo", "isolated"), list[str]()
    made = make(wanted, orders, said.append)
    assert (len(made.results), made.missing, made.failed) == (3, [], [])  # fifo with and without clouds
    files = {path: path.stat().st_mtime_ns for path in (orders.folder / "runs").glob("*.json")}
    assert len(files) == 3
    again = make(wanted, orders, said.append)
    assert again.results == made.results
    assert said[-1] == "3 of 3 simulations are there already"
    assert {path: path.stat().st_mtime_ns for path in files} == files
    ten_clusters.write(data, (*ten_clusters.JOBS, "itp02,02-1,90,60,1,1,m,1,1"))
    assert key_of(wanted[0], data, None) != made.results[0].key
    changed = make(wanted, orders, said.append)
    assert {row.jobs for result in changed.results for row in result.rows} == {4}


def test_what_fails_or_is_too_late_is_named_and_the_rest_is_there(data: Path, tmp_path: Path) -> None:
    """Jobs whose home is no site cannot be isolated."""
    ten_clusters.write(data, [line.replace("itp01", "itp09") for line in ten_clusters.JOBS])
    (alone,), others = runs("isolated"), runs("fifo")
    orders = Orders(data=data, folder=tmp_path / "out")
    made = make([alone, *others], orders, lambda _: None)
    assert made.failed == [alone.name]
    assert {result.name for result in made.results} == {run.name for run in others}
    late = msgspec.structs.replace(orders, folder=tmp_path / "late", within_s=0.0)
    assert make(others, late, lambda _: None).missing == [run.name for run in others]

"""Runs of the demonstration, each one shared by the tests that look at it."""

from collections.abc import Iterator

import pytest

from tests.support.demo_runs import Run, federator, run_demo


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_demo(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def undue(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_demo(tmp_path_factory.mktemp("undue"), "--no-deadlines")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """With one deadline tightened, and left up: decisions can be asked for."""
    run = run_demo(tmp_path_factory.mktemp("kept"), "--tighten", "nightly-embed=45m", "--keep")
    yield run
    if run.folder.exists():
        federator("demo", "--stop", str(run.folder))

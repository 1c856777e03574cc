"""Runs of the demonstration, each one shared by the tests that look at it."""

from collections.abc import Iterator

import pytest

from tests.support.demo_runs import Run, federator, run_demo


def _well(run: Run) -> Run:
    """Fails here, and not in the tests, what did not go well: a fixture that has failed is made anew at a second try."""
    assert run.code == 0, run.output
    return run


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _well(run_demo(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def undue(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _well(run_demo(tmp_path_factory.mktemp("undue"), "--no-deadlines"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """With one deadline tightened, and left up: decisions can be asked for."""
    run = run_demo(tmp_path_factory.mktemp("kept"), "--tighten", "nightly-embed=45m", "--keep")
    try:
        yield _well(run)
    finally:
        if run.folder.exists():
            federator("demo", "--stop", str(run.folder))

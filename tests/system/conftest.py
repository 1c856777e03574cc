"""What several tests look at: runs of the demonstration, and the container images.

A run takes the better part of a minute, and a sixth of a core: those that are wanted are played at the same time.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.demo_runs import Run, federator, run_demo
from tests.testbeds import images
from tests.testbeds.podman import Podman, missing
from tests.testbeds.required import need

PLAYS = {
    "plain": (),
    "undue": ("--no-deadlines",),
    "kept": ("--tighten", "nightly-embed=30m", "--keep"),
}
"""What each is told. The last has one deadline tightened, and is left up: decisions can be asked for."""


class Stage:
    """Where they are played."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._threads = ThreadPoolExecutor(len(PLAYS))
        self._begun: dict[str, Future[Run]] = {}

    def begin(self, name: str) -> None:
        """Have it played, beside others."""
        folder = self._folders.mktemp(name)
        self._begun[name] = self._threads.submit(run_demo, folder, *PLAYS[name])

    def play(self, name: str) -> Run:
        """The run, once it is over: the one that was begun, or a new one at a second try. What did not go well fails here, and not in the tests."""
        if name not in self._begun:
            self.begin(name)
        run = self._begun.pop(name).result()
        if run.code:
            _stop(run)
        assert run.code == 0, run.output
        return run

    def close(self) -> None:
        """Wait for what nobody has asked for, and leave nothing up."""
        for future in self._begun.values():
            _stop(future.result())
        self._threads.shutdown()


def _stop(run: Run) -> None:
    if run.folder.exists():
        federator("demo", "--stop", str(run.folder))


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory)
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    for name in PLAYS.keys() & wanted:
        made.begin(name)
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(stage: Stage) -> Run:
    return stage.play("plain")


@pytest.fixture(scope="module")
def undue(stage: Stage) -> Run:
    return stage.play("undue")


@pytest.fixture(scope="module")
def kept(stage: Stage) -> Iterator[Run]:
    run = stage.play("kept")
    yield run
    _stop(run)


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    need(missing() or images.missing())
    made = Podman(Path(tempfile.mkdtemp(prefix="images-")))
    made("import", "--quiet", str(images.place() / "base.tar"), images.BASE)
    yield made
    made.end()


@pytest.fixture(scope="session")
def built(podman: Podman) -> dict[str, str]:
    """Name with version, and id."""
    return {name.partition(":")[0]: ident for name, ident in images.build(podman).items()}

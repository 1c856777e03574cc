"""The command against a dispatcher that says what the test tells it to."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from federator.cli import run, session
from federator.cli.app import run_command
from federator.client import jobs as client_jobs
from tests.support.fake_dispatcher import FakeDispatcher, fake_dispatcher


class Ran(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDispatcher]:
    """A running dispatcher, which the environment names; nothing of this machine's own settings is seen."""
    with fake_dispatcher() as dispatcher:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("FEDERATOR_SERVER", dispatcher.url)
        monkeypatch.setenv("FEDERATOR_TOKEN", "secret")
        for name in ("XDG_CONFIG_HOME", "FEDERATOR_STATE_DIR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(session, "PATIENCE_S", 0.0)
        yield dispatcher


@pytest.fixture
def federator(capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Run the command with these words."""

    def run(*words: str) -> Ran:
        code = run_command(words)
        captured = capsysbinary.readouterr()
        return Ran(code, captured.out.decode(), captured.err.decode())

    return run


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often: no test waits for real time."""
    monkeypatch.setattr(client_jobs, "POLL_S", 0.01)
    monkeypatch.setattr(run, "LAST_OUTPUT_S", 1.0)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of whoever reads is that of Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()

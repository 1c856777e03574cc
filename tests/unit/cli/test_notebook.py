"""A notebook's job ends with the command, whatever ends that: else it holds a GPU, and nobody knows."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import pytest

from federator.cli import notebook
from federator.cli.session import HERE
from federator.wire.tunnel import Forward


class Fake:
    """A client of whom only the waiting for the job is asked."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile
        self.cancelled: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def submit(self, *_: Any, **__: Any) -> Any:
        """One job."""
        return SimpleNamespace(name="notebook", jobs=["job-1"])

    async def cancel(self, job: str) -> None:
        """Noted."""
        self.cancelled.append(job)

    async def events(self, _: str) -> AsyncIterator[Any]:
        """None, but this happens."""
        self._meanwhile()
        await asyncio.Event().wait()
        yield None


def broken() -> NoReturn:
    raise BrokenPipeError


@pytest.mark.parametrize(
    ("meanwhile", "ends"),
    [
        (broken, BrokenPipeError),
        (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), asyncio.CancelledError),
        (lambda: os.kill(os.getpid(), signal.SIGHUP), asyncio.CancelledError),
    ],
    ids=["pipe", "ctrl-c", "term", "hup"],
)
def test_the_job_is_cancelled_however_the_command_ends(
    meanwhile: Callable[[], object], ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Fake(meanwhile)
    monkeypatch.setattr(notebook, "open_client", lambda *_, **__: client)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests were started under
    try:
        with pytest.raises(ends):
            asyncio.run(notebook.run_notebook(HERE, {}, None, Forward(1), 0))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert client.cancelled == ["job-1"]


def test_in_the_background_of_a_script_it_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells have such commands ignore Ctrl-C."""
    client = Fake(lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(notebook, "open_client", lambda *_, **__: client)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert notebook.notebook() == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert client.cancelled == ["job-1"]


def test_with_nohup_a_closed_terminal_does_not_end_it() -> None:
    async def installed() -> bool:
        notebook.end_as_ctrl_c_does(signal.SIGHUP)
        return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not asyncio.run(installed())
    finally:
        signal.signal(signal.SIGHUP, before)

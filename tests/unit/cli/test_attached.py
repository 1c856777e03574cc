"""`run --pty`: what becomes of the job when its connection is lost, before and after the terminal is there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from federator.cli import terminal
from federator.cli.attached import run_attached
from federator.client.tunnels import Frame
from federator.kernel.errors import Unavailable
from federator.model.jobs import JobStatus
from federator.wire import tunnel

if TYPE_CHECKING:
    from federator.client import AsyncClient

FROM_THE_JOB = Frame(tunnel.STDOUT, b"\r")
NOT_ENTERED = Frame(tunnel.END, tunnel.end_frame(tunnel.End(error="the site is away", lost=True))[1:])


class Lost:
    """A client whose tunnel breaks after these frames; None: before it stands."""

    def __init__(self, frames: Sequence[Frame] | None) -> None:
        self._frames = frames
        self.cancelled: list[str] = []

    async def events(self, job: str) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(text="", status=JobStatus.RUNNING)

    async def job(self, job: str) -> SimpleNamespace:
        return SimpleNamespace(job=SimpleNamespace(status=JobStatus.RUNNING))

    async def cancel(self, job: str) -> None:
        self.cancelled.append(job)

    @asynccontextmanager
    async def tunnel(self, job: str, request: tunnel.Request, *, rank: int) -> AsyncIterator["Lost"]:
        if self._frames is None:
            raise Unavailable("nobody answers")
        yield self

    async def frames(self) -> AsyncIterator[Frame]:
        for frame in self._frames or ():
            yield frame
        raise Unavailable("the connection to the job was lost")


class Silent:
    """A keyboard at which nobody sits."""

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""


@pytest.mark.parametrize(
    ("frames", "kept"), [(None, False), ((), False), ((NOT_ENTERED,), False), ((FROM_THE_JOB,), True)]
)
async def test_a_job_is_kept_only_once_its_terminal_is_there(
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    frames: Sequence[Frame] | None,
    kept: bool,
) -> None:
    monkeypatch.setattr(terminal, "raw", lambda _resized: nullcontext())
    monkeypatch.setattr(terminal, "Input", Silent)
    client, said = Lost(frames), list[str]()
    with pytest.raises(Unavailable):
        await run_attached(cast("AsyncClient", client), "job-1", ("sh",), tty=True, say=said.append)
    assert client.cancelled == ([] if kept else ["job-1"])
    attach = "federator attach job-1 comes back to it, federator cancel job-1 ends it"
    assert said == [attach if kept else "job-1 is being cancelled"]

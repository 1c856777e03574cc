"""Where ports of jobs are opened on this machine: under another name than the console, and on every address of that name."""

import asyncio
import errno
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, cast

import pytest

from federator.cli.tunnels import Forwarded, local_host
from federator.wire import tunnel

if TYPE_CHECKING:
    from federator.client import AsyncClient


@pytest.mark.parametrize(
    ("dispatcher", "printed"),
    [
        ("http://127.0.0.1:7070", "localhost"),
        ("http://localhost:7070", "127.0.0.1"),
        ("https://federator.example.org", "127.0.0.1"),
    ],
)
def test_a_job_is_opened_under_another_name_than_the_console(dispatcher: str, printed: str) -> None:
    assert local_host(dispatcher) == printed


class Listener:
    """A server on some address of a machine, at the port that was asked for, or at 4000."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.closed = False
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return "", self._port or 4000

    def close(self) -> None:
        self.closed = True


class Machine:
    """Whose second loopback address answers with this error; 0: none."""

    def __init__(self, error: int) -> None:
        self._error = error
        self.listeners: dict[tuple[str, int], Listener] = {}

    async def start_server(self, _serve: object, host: str, port: int) -> Listener:
        if host == "::1" and self._error:
            raise OSError(self._error, "no")
        return self.listeners.setdefault((host, port), Listener(port))


async def _listen(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> int:
    monkeypatch.setattr(asyncio, "start_server", machine.start_server)
    forwarded = Forwarded(cast("AsyncClient", None), "job-1", tunnel.Forward(8888), 0)
    async with AsyncExitStack() as stack:
        return await forwarded.listen(stack, 0)


async def test_it_listens_on_both_addresses_of_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0)
    assert await _listen(monkeypatch, machine) == 4000
    assert list(machine.listeners) == [("127.0.0.1", 0), ("::1", 4000)]
    assert all(each.closed for each in machine.listeners.values())
    assert await _listen(monkeypatch, Machine(errno.EADDRNOTAVAIL)) == 4000


async def test_a_port_of_which_somebody_else_has_an_address_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has it would be sent the notebook's token."""
    machine = Machine(errno.EADDRINUSE)
    with pytest.raises(OSError, match="no"):
        await _listen(monkeypatch, machine)
    assert all(each.closed for each in machine.listeners.values())

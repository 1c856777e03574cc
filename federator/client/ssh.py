"""SSH as the far side of a running job, spoken with an ssh of this machine: each channel becomes a tunnel.

So ssh, rsync, sftp and editors reach a job whose image has no sshd, no account and no key: what they run is run as `federator exec` does it,
with the same rights and the same lines in the ledger. An sshd started in the job would need a password entry for its user, would lose the
job's environment, and is missing from most images. The ssh that is answered here has started this process, so neither has to prove who it is.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import asyncssh
from asyncssh.constants import EXTENDED_DATA_STDERR
from asyncssh.stream import SSHServerStreamSession

from federator.client.tunnels import Tunnel
from federator.kernel.errors import FederatorError
from federator.kernel.tasks import cancel_and_wait
from federator.wire import tunnel

if TYPE_CHECKING:
    from federator.client import AsyncClient

FAILED = 255
"""The exit code that ssh itself ends with when it could not do what it should."""
_RUN = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
_SFTP = """for p in /usr/lib/openssh /usr/libexec/openssh /usr/libexec /usr/lib/ssh /usr/lib; do
[ ! -x "$p/sftp-server" ] || exec "$p/sftp-server"; done
echo 'there is no sftp-server here: add openssh-sftp-server to the image, or use federator copy or scp -O' >&2; exit 127"""
_TERM = re.compile("[A-Za-z0-9._+-]{1,50}")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_Reader = asyncssh.SSHReader[bytes]
_Writer = asyncssh.SSHWriter[bytes]
_Couple = Callable[[tunnel.Request, _Reader, _Writer, _Writer], Awaitable[int]]


async def serve(
    client: "AsyncClient",
    job: str,
    rank: int,
    connection: socket.socket,
    tell: Callable[[FederatorError], None],
) -> None:
    """Answer an ssh until it closes the connection. `tell` hears what goes wrong with a connection to a port, which ssh has no words for."""
    server = await asyncssh.run_server(
        connection,
        server_factory=lambda: _Server(client, job, rank, tell),
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        agent_forwarding=False,
        x11_forwarding=False,
        line_editor=False,
    )
    await server.wait_closed()


class _Server(asyncssh.SSHServer):
    """One connection of an ssh."""

    def __init__(
        self, client: "AsyncClient", job: str, rank: int, tell: Callable[[FederatorError], None]
    ) -> None:
        self._tell = tell
        self._client = client
        self._job = job
        self._rank = rank
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Keep it, to make channels of bytes."""
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        """Nobody has to prove anything here: whoever speaks has started this process, and the tunnels ask for the token."""
        del username
        return False

    def session_requested(self) -> "tuple[asyncssh.SSHServerChannel[bytes], _Session]":
        """A command, a shell or a subsystem."""
        assert self._connection is not None
        channel: asyncssh.SSHServerChannel[bytes] = self._connection.create_server_channel(encoding=None)
        return channel, _Session(self._couple)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Callable[[_Reader, _Writer], Awaitable[None]]:
        """A connection to a port of the job."""
        del orig_host, orig_port
        if dest_host not in _LOOPBACK or not 1 <= dest_port <= 65_535:
            said = "only ports of the job itself are reached: name 127.0.0.1 or localhost"
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, said)

        async def connect(reader: _Reader, writer: _Writer) -> None:
            with contextlib.closing(writer):
                try:
                    await self._couple(tunnel.Forward(dest_port), reader, writer, writer)
                except FederatorError as error:
                    self._tell(error)

        return connect

    async def _couple(
        self,
        request: tunnel.Request,
        reader: _Reader,
        out: _Writer,
        err: _Writer,
    ) -> int:
        """Pass bytes both ways until the job's side ends; its exit code, 0 of what has none. Raises what keeps it from being entered."""
        async with self._client.tunnel(self._job, request, rank=self._rank) as inside:
            leaving = asyncio.ensure_future(_send(inside, reader))
            showing = asyncio.ensure_future(_show(inside, out, err))
            try:
                await asyncio.wait({leaving, showing}, return_when=asyncio.FIRST_COMPLETED)
                return showing.result() if showing.done() else FAILED
            finally:
                await cancel_and_wait(leaving, showing)


async def _send(inside: Tunnel, reader: _Reader) -> None:
    """Pass on what ssh sends, until it has gone or sends a signal: the tunnel knows none, so the command is hung up on."""
    while True:
        try:
            data = await reader.read(tunnel.DATA_BYTES)
        except asyncssh.TerminalSizeChanged as change:
            await inside.send_frame(tunnel.resize_frame(_size(change.width, change.height)))
            continue
        except asyncssh.BreakReceived:
            continue
        except (asyncssh.SignalReceived, OSError):
            return
        if not data:
            break
        await inside.send(tunnel.STDIN, data)
    await inside.close_input()
    await reader.channel.wait_closed()


async def _show(inside: Tunnel, out: _Writer, err: _Writer) -> int:
    """Pass on what the job's side says; how it ended."""
    outputs = {tunnel.STDOUT: out, tunnel.STDERR: err}
    async for channel, data in inside.frames():
        if channel in outputs:
            outputs[channel].write(data)
            try:
                await outputs[channel].drain()
            except OSError:
                return FAILED  # ssh has gone
        elif channel == tunnel.END:
            end = tunnel.read_end(bytes((channel,)) + data)
            if end.error:
                raise end.fault()
            return end.exit_code or 0
    return FAILED


def _size(width: int, height: int) -> tunnel.Size:
    return tunnel.Size(min(max(width, 1), 10_000), min(max(height, 1), 10_000))


class _Session(SSHServerStreamSession[bytes]):
    """One channel that runs something. `sftp` too: the library's own would serve the files of this machine."""

    def __init__(self, couple: _Couple) -> None:
        super().__init__(None)
        self._couple = couple

    def shell_requested(self) -> bool:
        """There always is one."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Whatever a program can be given."""
        return "\0" not in command

    def subsystem_requested(self, subsystem: str) -> bool:
        """Files, and nothing else."""
        return subsystem == "sftp"

    def session_started(self) -> None:
        """Run it beside the connection."""
        assert isinstance(self._chan, asyncssh.SSHServerChannel)
        assert self._conn is not None
        self._conn.create_task(self._run_in_job(self._chan))

    async def _run_in_job(self, channel: "asyncssh.SSHServerChannel[bytes]") -> None:
        out, err = asyncssh.SSHWriter(self, channel), asyncssh.SSHWriter(self, channel, EXTENDED_DATA_STDERR)
        code = FAILED
        try:
            code = await self._couple(_request(channel), asyncssh.SSHReader(self, channel), out, err)
        except FederatorError as error:
            with contextlib.suppress(OSError):
                err.write(f"federator: {error.describe()}\r\n".encode())
        with contextlib.suppress(OSError):
            channel.exit(code)


def _request(channel: "asyncssh.SSHServerChannel[bytes]") -> tunnel.Exec:
    """What the channel is to run. Raises `Invalid`."""
    said, term = channel.get_command(), channel.get_terminal_type()
    if channel.get_subsystem() is not None:
        command: tuple[str, ...] = ("/bin/sh", "-c", _SFTP)
    else:
        command = tunnel.SHELL if said is None else ("/bin/sh", "-c", _RUN, "sh", said)
    width, height, _, _ = channel.get_terminal_size()
    known = term if term and _TERM.fullmatch(term) else ""
    return tunnel.Exec(command=command, tty=term is not None, term=known, size=_size(width, height))

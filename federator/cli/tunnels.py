"""`exec` and `port-forward`: into a job that runs."""

import asyncio
import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

from cyclopts import Parameter

from federator.cli.exit_codes import OK
from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, JobName, open_client
from federator.kernel.errors import FederatorError, Invalid, Unavailable
from federator.kernel.tasks import cancel_and_wait
from federator.wire import tunnel

if TYPE_CHECKING:
    from federator.client import AsyncClient
    from federator.client.tunnels import Tunnel

LOOPBACK, LOOPBACK_6, LOCALHOST = "127.0.0.1", "::1", "localhost"
Rank = Annotated[int, Parameter(name=("--rank", "--node"))]


def exec_command(
    job: JobName,
    *command: str,
    rank: Rank = 0,
    tty: Annotated[bool | None, Parameter(name=("-t", "--tty"), negative="--no-tty")] = None,
    stdin: Annotated[bool, Parameter(negative=("-n", "--no-stdin"))] = True,
    connection: Connection = HERE,
) -> int:
    """Run a command inside a running job: as its user, in its folder, with its environment and GPUs.

    Standard input goes there, output and exit code come back. At a terminal the command gets one too, with every key, Ctrl-C among
    them; `Enter ~ .` leaves one that hangs. Whoever leaves hangs up: the command ends, and what it started with nohup goes on until the
    job ends. Only the job's owner may, and the job's timeline says that it was done.

    Parameters
    ----------
    command:
        What to run, after `--`; else a shell.
    rank:
        Which rank of a gang.
    tty:
        Give the command a terminal, or not; else where both input and output are one.
    stdin:
        Whether standard input goes there.
    """
    from federator.cli import terminal

    wants = terminal.is_terminal() if tty is None else tty
    if wants and not sys.stdin.isatty():
        raise Invalid("standard input is not a terminal", field="--tty", remedy="leave it out")
    request = tunnel.Exec(
        command=command or tunnel.SHELL,
        tty=wants,
        term=os.environ.get("TERM", "") if wants else "",
        size=terminal.size() if wants else tunnel.Size(),
    )
    return asyncio.run(_exec(connection, job, request, rank=rank, stdin=stdin))


async def _exec(connection: Connection, job: str, request: tunnel.Exec, *, rank: int, stdin: bool) -> int:
    async with open_client(connection) as client:
        return await run_inside(client, job, request, rank=rank, stdin=stdin)


async def run_inside(
    client: "AsyncClient",
    job: str,
    request: tunnel.Exec | tunnel.Attach,
    *,
    rank: int = 0,
    stdin: bool = True,
    begun: asyncio.Event | None = None,
) -> int:
    """Run a command in a job with this process's input and output; its exit code. `begun` is set when it first writes something. Raises the error that kept it from running."""
    from federator.cli import terminal

    async with client.tunnel(job, request, rank=rank) as inside, contextlib.AsyncExitStack() as stack:
        left = asyncio.Event()
        kept = isinstance(request, tunnel.Attach) or request.keep
        tty = isinstance(request, tunnel.Attach) or request.tty
        if tty:

            def resized() -> None:
                sizes.append(asyncio.ensure_future(inside.send_frame(tunnel.resize_frame(terminal.size()))))

            sizes: list[asyncio.Future[None]] = []
            stack.enter_context(terminal.raw(resized))
        typing = asyncio.ensure_future(_type(inside, left, tty=tty) if stdin else inside.close_input())
        showing = asyncio.ensure_future(_show(inside, begun or asyncio.Event()))
        leaving = asyncio.ensure_future(left.wait())
        try:
            await asyncio.wait((showing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not showing.done():
                raise Unavailable("left; the command goes on" if kept else "left; the command is hung up on")
            return showing.result()
        finally:
            await cancel_and_wait(typing, showing, leaving)


async def _type(inside: "Tunnel", left: asyncio.Event, *, tty: bool) -> None:
    """Pass standard input on."""
    from federator.cli import terminal

    given, escape = terminal.Input(), terminal.Escape()
    while data := await given.read():
        if tty and escape.left(data):
            left.set()
            return
        await inside.send(tunnel.STDIN, data)
    await inside.close_input()


async def _show(inside: "Tunnel", begun: asyncio.Event) -> int:
    """Pass output on; the exit code."""
    from federator.client.tunnels import LOST

    outputs = {tunnel.STDOUT: sys.stdout.buffer, tunnel.STDERR: sys.stderr.buffer}
    async for channel, data in inside.frames():
        if channel in outputs:
            begun.set()
            outputs[channel].write(data)
            outputs[channel].flush()
        elif channel == tunnel.END:
            end = tunnel.read_end(bytes((channel,)) + data)
            if end.exit_code is not None:
                return end.exit_code
            raise end.fault()
    raise Unavailable(LOST)


class Pair(NamedTuple):
    """A port here and one in the job."""

    local: int
    remote: int


def port_forward(
    job: JobName,
    *ports: str,
    rank: Rank = 0,
    stdio: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = HERE,
) -> int:
    """Reach a port inside a running job as one of this machine, on its loopback address, until Ctrl-C or the job's end.

    Nothing has to be open at the site: the connection goes through the one that its agent holds. Each connection goes to where the job
    runs then, so that one that was moved is found again. Only the job's owner may.

    Parameters
    ----------
    ports:
        REMOTE, or LOCAL:REMOTE, such as 8888 or 9000:8888; `:8888` takes any local port that is free.
    rank:
        Which rank of a gang.
    stdio:
        Connect standard input and output to the one port, as a ProxyCommand of ssh does.
    """
    pairs = [_pair(each) for each in ports]
    if not pairs or (stdio and len(pairs) > 1):
        said = "name one port" if stdio else "no port is named"
        raise Invalid(said, field="PORTS", remedy="write for example federator port-forward train 8888")
    if stdio:
        return asyncio.run(_pipe(connection, job, tunnel.Forward(pairs[0].remote), rank))
    return asyncio.run(_forward(connection, job, pairs, rank))


def _pair(text: str) -> Pair:
    local, colon, remote = text.rpartition(":")
    try:
        pair = Pair(int(local or "0") if colon else int(remote), int(remote))
    except ValueError:
        pair = Pair(-1, -1)
    if not (0 <= pair.local <= 65_535 and 1 <= pair.remote <= 65_535):
        remedy = "write REMOTE or LOCAL:REMOTE, each from 1 to 65535"
        raise Invalid(f"{text!r} is not a port", field="PORTS", remedy=remedy)
    return pair


async def _forward(connection: Connection, job: str, pairs: list[Pair], rank: int) -> int:
    async with open_client(connection, long_patience=True) as client, contextlib.AsyncExitStack() as stack:
        record = (await client.job(job)).job
        for pair in pairs:
            forwarded = Forwarded(client, record.id, tunnel.Forward(pair.remote), rank)
            try:
                local = await forwarded.listen(stack, pair.local)
            except OSError as error:
                raise Invalid(
                    f"port {pair.local} of this machine cannot be had: {error.strerror}",
                    field="PORTS",
                    remedy=f"write :{pair.remote} to have a free one chosen",
                ) from None
            there = f"port {pair.remote} of {plain(record.label)}"
            print(f"{local_host(client.transport.server)}:{local} is {there}; Ctrl-C ends it", flush=True)
        ended = (await client.wait(record.id)).job
        print(f"{plain(ended.label)} has ended: {ended.status}", file=sys.stderr)
    return OK


class Forwarded:
    """Connections to one port of a job. `serve` takes each."""

    def __init__(self, client: "AsyncClient", job: str, request: tunnel.Forward, rank: int) -> None:
        self._client = client
        self._job = job
        self._request = request
        self._rank = rank

    async def listen(self, stack: contextlib.AsyncExitStack, port: int) -> int:
        """Take connections until the stack ends, on both loopback addresses: browsers take either for localhost, and nobody else may have one of them. The port. Raises `OSError`."""
        server = await asyncio.start_server(self.serve, LOOPBACK, port)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        try:
            other = await asyncio.start_server(self.serve, LOOPBACK_6, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                server.close()
                raise
            return port  # this machine has no such address
        stack.callback(other.close)
        return port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Couple a connection with one in the job; what goes wrong is told, and the next is taken."""
        try:
            async with self._client.tunnel(self._job, self._request, rank=self._rank) as inside:
                await couple(inside, reader, writer)
        except FederatorError as error:
            print(f"federator: {plain(error.describe())}", file=sys.stderr, flush=True)
        finally:
            writer.close()


def local_host(server: str) -> str:
    """The name of this machine under which what a job serves is opened: not the dispatcher's own, since browsers send the console's cookie to every port of that."""
    return LOCALHOST if urlsplit(server).hostname == LOOPBACK else LOOPBACK


async def couple(inside: "Tunnel", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the job's side has closed."""
    sending = asyncio.ensure_future(_send(inside, reader))
    try:
        async for channel, data in inside.frames():
            if channel == tunnel.STDOUT:
                writer.write(data)
                await writer.drain()
            elif channel == tunnel.END:
                end = tunnel.read_end(bytes((channel,)) + data)
                if end.error:
                    raise end.fault()
    except ConnectionError:
        return  # whoever has asked here has left
    finally:
        await cancel_and_wait(sending)


async def _send(inside: "Tunnel", reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(tunnel.DATA_BYTES):
            await inside.send(tunnel.STDIN, data)
    await inside.close_input()


async def _pipe(connection: Connection, job: str, request: tunnel.Forward, rank: int) -> int:
    """Standard input and output, as one connection."""
    async with open_client(connection) as client, client.tunnel(job, request, rank=rank) as inside:
        typing = asyncio.ensure_future(_type(inside, asyncio.Event(), tty=False))
        try:
            async for channel, data in inside.frames():
                if channel == tunnel.STDOUT:
                    sys.stdout.buffer.write(data)
                    sys.stdout.buffer.flush()
                elif channel == tunnel.END:
                    end = tunnel.read_end(bytes((channel,)) + data)
                    if end.error:
                        raise end.fault()
        finally:
            await cancel_and_wait(typing)
    return OK

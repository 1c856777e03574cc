"""Ways into a pod that runs: a command in its main container, and a connection to one of its ports, each a WebSocket of the API server's.

The frames are those of a tunnel, with two things missing. Nothing says that no more input comes (the protocol's fifth version does, clusters up to 1.29 do not
have it), so without a terminal the input is sent in pieces with their length, which a shell in the container puts together. And a command goes on when its
connection is cut, so it says its number first, and is hung up on by another command.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import WSMsgType

from federator.kernel.errors import FederatorError, Forbidden, NotFound, Unavailable
from federator.kube.api import Api
from federator.wire import tunnel
from federator.wire.tunnel import END, RESIZE, STDERR, STDIN, STDIN_ENDS, STDOUT, End, Exec, Forward
from federator_agent.channels import nobody_listens
from federator_agent.kube import commands
from federator_agent.kube.manifests import MAIN
from federator_agent.runtime import Tasks

BEGIN_S = 20.0
"""Real seconds for which the number of a command is waited for."""
KILL_S = 5.0
"""A command that goes on after it was hung up on is killed then."""
LONGEST_NUMBER = 20
_WHERE = """echo $$
if [ -e /federator/gate/resumes ] && [ "$FEDERATOR_RESUME" = 0 ]; then export FEDERATOR_RESUME=1; fi
. /federator/gate/go
cd /federator/work || exit 126
"""
IN_TERMINAL = _WHERE + 'export TERM="$1"; shift; exec "$@"'
WITH_PIPES = (
    _WHERE
    + """shift
in=/federator/job/in.$$
mkfifo $in || exit 126
exec 3<&0
while read -r n && [ "$n" -gt 0 ]; do dd bs="$n" count=1 iflag=fullblock 2>/dev/null || break; done <&3 >$in 2>/dev/null &
exec <$in 3<&-
rm -f $in
exec "$@"
"""
)
"""Input comes as a line with a number of bytes, then these; 0 is its end."""


async def enter(
    api: Api, pod_path: str, request: Exec, hang_up: Callable[[int], Awaitable[None]], tasks: Tasks
) -> "CommandChannel":
    """Run a command beside the pod's own. `hang_up`: ends the process group of that number. Raises `FederatorError`."""
    words = ["sh", "-c", IN_TERMINAL if request.tty else WITH_PIPES, "enter", request.term or "dumb"]
    query = [("command", word) for word in (*words, *request.command)]
    query += [("container", MAIN), ("stdin", "true"), ("stdout", "true")]
    query.append(("tty", "true") if request.tty else ("stderr", "true"))
    stack = AsyncExitStack()
    try:
        socket = await stack.enter_async_context(api.command(f"{pod_path}/exec", query))
        if request.tty:
            await socket.send_bytes(tunnel.resize_frame(request.size))
        async with asyncio.timeout(BEGIN_S):
            number, first = await _begun(socket)
    except TimeoutError:
        await stack.aclose()
        raise Unavailable("the command did not begin in its pod") from None
    except BaseException:
        await stack.aclose()
        raise
    return CommandChannel(socket, stack, tasks, first, tty=request.tty, hang_up=lambda: hang_up(number))


async def _begun(socket: aiohttp.ClientWebSocketResponse) -> tuple[int, list[bytes]]:
    """The command's number, and the frames that came with it. Raises `FederatorError`."""
    line, said = b"", b""
    while (message := await socket.receive()).type is WSMsgType.BINARY:
        channel, data = message.data[:1], message.data[1:]
        if channel == bytes((STDOUT,)):
            line += data
        elif channel == bytes((STDERR,)):
            said += data
        elif channel == bytes((END,)):
            raise Unavailable(
                f"the job cannot be entered: {_end(data).error or said.decode(errors='replace')}"
            )
        number, newline, rest = line.partition(b"\n")
        if newline and number.strip().isdigit() and len(number) <= LONGEST_NUMBER:
            return int(number), [bytes((STDOUT,)) + rest] if rest else []
        if newline or len(line) > LONGEST_NUMBER:
            break
    raise Unavailable("the job cannot be entered: its container has no shell of ours")


class CommandChannel:
    """A command beside the job's."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        stack: AsyncExitStack,
        tasks: Tasks,
        first: list[bytes],
        *,
        tty: bool,
        hang_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._socket, self._stack, self._tasks = socket, stack, tasks
        self._waiting = first
        self._tty = tty
        self._hang_up = hang_up
        self._over = False
        self._closed = False

    async def receive(self) -> bytes | None:
        """Its output, and at last its exit code."""
        if self._waiting:
            return self._waiting.pop(0)
        if self._over:
            return None
        while (message := await self._socket.receive()).type is WSMsgType.BINARY:
            frame: bytes = message.data
            if frame[:1] in (bytes((STDOUT,)), bytes((STDERR,))) and len(frame) > 1:
                first, *self._waiting = _cut(frame)
                return first
            if frame[:1] == bytes((END,)):
                self._over = True
                return tunnel.end_frame(_end(frame[1:]))
        self._over = True
        return tunnel.end_frame(End(error="the connection to the pod was cut", lost=True))

    async def send(self, frame: bytes) -> None:
        """Its input, or the size of its terminal."""
        with contextlib.suppress(ConnectionError):
            if frame[0] == STDIN and (self._tty or len(frame) == 1):
                await self._socket.send_bytes(frame)
            elif frame[0] == STDIN:
                await self._socket.send_bytes(b"%c%d\n%b" % (STDIN, len(frame) - 1, frame[1:]))
            elif frame == STDIN_ENDS and not self._tty:
                await self._socket.send_bytes(b"%c0\n" % STDIN)
            elif frame[0] == RESIZE and self._tty and (size := tunnel.read_resize(frame)) is not None:
                await self._socket.send_bytes(tunnel.resize_frame(size))

    def close(self) -> None:
        """Hang up."""
        if not self._closed:
            self._closed = True
            self._tasks.spawn(self._end())

    async def _end(self) -> None:
        try:
            if not self._over:
                await self._hang_up()
        finally:
            await self._stack.aclose()


async def connect(api: Api, pod_path: str, request: Forward, tasks: Tasks) -> "PodPortChannel":
    """A connection to a port of a pod. Raises `FederatorError`."""
    stack = AsyncExitStack()
    query = [("ports", str(request.port))]
    try:
        socket = await stack.enter_async_context(api.command(f"{pod_path}/portforward", query))
    except Forbidden as error:
        raise Forbidden(
            "the agent may not forward ports",
            remedy="have its role allowed pods/portforward, as in federator-agent.yaml of this version",
        ) from error
    return PodPortChannel(socket, stack, tasks, request.port)


class PodPortChannel:
    """A connection to a port of a pod. Each channel begins with the port's number; the second tells of errors."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, stack: AsyncExitStack, tasks: Tasks, port: int
    ) -> None:
        self._socket, self._stack, self._tasks, self._port = socket, stack, tasks, port
        self._waiting: list[bytes] = []
        self._numbered: set[int] = set()
        self._over = False

    async def receive(self) -> bytes | None:
        """What it says, and at last that it has closed, or that nobody is there."""
        if self._waiting:
            return self._waiting.pop(0)
        if self._over:
            return None
        while (message := await self._socket.receive()).type is WSMsgType.BINARY and message.data:
            channel, data = message.data[0], message.data[1:]
            if channel not in self._numbered:
                self._numbered.add(channel)
                data = data[2:]
            if channel == STDIN and data:
                first, *self._waiting = _cut(bytes((STDOUT,)) + data)
                return first
            if channel == STDOUT and data:
                self._over = True
                return tunnel.end_frame(End(error=_port_error(data.decode(errors="replace"), self._port)))
        self._over = True
        return tunnel.end_frame(End())

    async def send(self, frame: bytes) -> None:
        """What it is told. The protocol has no word for the end of one direction."""
        if frame[0] == STDIN and len(frame) > 1:
            with contextlib.suppress(ConnectionError):
                await self._socket.send_bytes(frame)

    def close(self) -> None:
        """Hang up."""
        self._tasks.spawn(self._stack.aclose())


def _port_error(said: str, port: int) -> str:
    return nobody_listens(port).describe() if "refused" in said else f"port {port} cannot be reached: {said}"


def _cut(frame: bytes) -> list[bytes]:
    """Frames of no more than a tunnel takes."""
    data = frame[1:]
    return [frame[:1] + data[at : at + tunnel.DATA_BYTES] for at in range(0, len(data), tunnel.DATA_BYTES)]


def _end(data: bytes) -> End:
    """What the API server says of a command's end."""
    try:
        commands.judge(data, "")
    except commands.CommandFailed as failed:
        return End(exit_code=failed.exit_code & 0xFF)
    except FederatorError as error:
        return End(error=error.describe())
    return End(exit_code=0)


async def hang_up(api: Api, pod_path: str, uid: str, number: int) -> None:
    """Tell the process group of that number to end, and kill what does not. A pod that is gone has ended it."""
    with contextlib.suppress(NotFound, commands.CommandFailed):
        await commands.done(api, pod_path, commands.HANG_UP, uid, "HUP", str(number))
        await asyncio.sleep(KILL_S)
        await commands.done(api, pod_path, commands.HANG_UP, uid, "KILL", str(number))

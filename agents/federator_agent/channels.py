"""The job's ends of tunnels that are made of processes and connections of this host: of a command with pipes or a terminal, and of a port."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from federator.kernel.errors import Conflict
from federator.kernel.tasks import cancel_and_wait
from federator.wire import tunnel
from federator.wire.tunnel import CLOSE, DATA_BYTES, END, RESIZE, STDERR, STDIN, STDIN_ENDS, STDOUT, End

WAITING_FRAMES = 4
"""Frames of output that wait for the tunnel to take them; beyond that the command waits."""
QUIET_S = 0.3
"""Once a command has ended, what others may still write to its output is waited for so long."""
KILL_S = 5.0
"""A command that goes on after it was hung up on is killed then."""
SIGNALLED = 128
LONGEST_NUMBER, MOST_SAID = 100, 500
BEGIN_S = 20.0
"""Real seconds for which the number of a command is waited for."""
Start = Callable[[Sequence[tuple[int, int]]], int]
"""Starts a process with these descriptors as those of the second numbers, as leader of a session; its process id."""


def open_process(start: Start, *, tty: bool, size: tunnel.Size, inner: bool = False) -> "ProcessChannel":
    """Start a command with a terminal or pipes of its own. `inner`: it leads a session below that of the process that is started. Raises `OSError`."""
    ours: list[int] = []
    theirs: list[int] = []
    pid = None
    try:
        if tty:
            _make_terminal(ours, theirs, size)
        else:
            _make_pipes(ours, theirs)
        pid = start([(theirs[0 if tty else number], number) for number in range(3)])
        process = os.pidfd_open(pid)
    except BaseException:
        _close(ours)
        if pid is not None:
            _end_unwatched(pid, inner=inner)
        raise
    finally:
        _close(theirs)
    outputs = {STDOUT: ours[1]} if tty else {STDOUT: ours[1], STDERR: ours[2]}
    return ProcessChannel(pid, process, ours[0], outputs, tty=tty, inner=inner)


def _make_terminal(ours: list[int], theirs: list[int], size: tunnel.Size) -> None:
    """Each descriptor is noted as it is made, since the next may be one too many for this process."""
    master, slave = pty.openpty()
    ours.append(master)
    theirs.append(slave)
    ours.append(os.dup(master))
    _set_size(slave, size)


def _make_pipes(ours: list[int], theirs: list[int]) -> None:
    """For its input, output and errors, noted likewise."""
    for number in range(3):
        read, written = os.pipe()
        ours.append(read if number else written)
        theirs.append(written if number else read)


def _end_unwatched(pid: int, *, inner: bool) -> None:
    """Kill one that was started but cannot be watched."""
    for group in {pid, (_leader_below(pid) if inner else None) or pid}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


class ProcessChannel:
    """A command that was started: its input, its output, and its exit code."""

    def __init__(
        self, pid: int, process: int, written: int, read: Mapping[int, int], *, tty: bool, inner: bool
    ) -> None:
        """`process`: a descriptor of it; `written`, `read`: its input, and its outputs by channel, all of them ours to close."""
        self._pid = pid
        self._process = process
        self._input: int | None = written
        self._outputs = dict(read)
        self._tty = tty
        self._inner = inner
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_FRAMES)
        self._count = 0
        self._code: int | None = None
        for descriptor in (written, *read.values()):
            os.set_blocking(descriptor, False)
        self._following = asyncio.create_task(self._follow())
        self._ending: asyncio.Task[None] | None = None

    async def receive(self) -> bytes | None:
        """Its output, and at last its exit code."""
        return await self._frames.get()

    async def send(self, frame: bytes) -> None:
        """Its input, or the size of its terminal."""
        if frame[0] == STDIN:
            await self._write(frame[1:])
        elif frame == STDIN_ENDS and not self._tty:
            self._close_input()
        elif frame[0] == RESIZE and self._tty and self._input is not None:
            size = tunnel.read_resize(frame)
            if size is not None:
                with contextlib.suppress(OSError):
                    _set_size(self._input, size)

    def close(self) -> None:
        """Hang up: a terminal's programs are told by the kernel, others by a signal."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
            _ending.add(self._ending)
            self._ending.add_done_callback(_ending.discard)

    async def _follow(self) -> None:
        pumps = [asyncio.create_task(self._pump(*each)) for each in self._outputs.items()]
        try:
            await self._exited()
            left = set(pumps)
            while left:
                before = self._count
                _, left = await asyncio.wait(left, timeout=QUIET_S)
                if self._count == before and self._frames.empty():
                    break  # somebody whom the command left behind has its output open
            await self._frames.put(tunnel.end_frame(End(exit_code=self._code)))
            await self._frames.put(None)
        finally:
            await cancel_and_wait(*pumps)

    async def _pump(self, channel: int, descriptor: int) -> None:
        while data := await _read(descriptor):
            await self._frames.put(bytes((channel,)) + data)
            self._count += 1

    async def _exited(self) -> None:
        if self._code is None:
            await _ready(self._process, writing=False)
            self._code = _code_of(self._process)

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._input is not None:
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                await _ready(self._input, writing=True)
            except OSError:
                self._close_input()  # it does not read any more

    def _close_input(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None

    async def _end(self) -> None:
        await cancel_and_wait(self._following)
        self._close_input()
        _close(list(self._outputs.values()))
        try:
            if self._code is None:
                self._signal(signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._exited(), KILL_S)
            if self._code is None:
                self._signal(signal.SIGKILL)
                await self._exited()
        finally:
            os.close(self._process)

    def _signal(self, number: signal.Signals) -> None:
        """To the command; and, to kill, to what it was started by."""
        command = _leader_below(self._pid) if self._inner else None
        groups = {command or self._pid} | ({self._pid} if number is signal.SIGKILL else set())
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def nobody_listens(port: int) -> Conflict:
    """What is said of a port that is not there."""
    return Conflict(
        f"nothing of the job listens on port {port} yet",
        remedy="let it listen on 127.0.0.1 or on all addresses of its host",
    )


async def begun(channel: ProcessChannel) -> tuple[int, bytes]:
    """The number that a command says first, on a line of its own, and what came with it. Raises `Conflict` when it ends before, or says nothing."""
    try:
        async with asyncio.timeout(BEGIN_S):
            return await _begun(channel)
    except TimeoutError:
        raise Conflict(f"the job cannot be entered: nothing has begun within {BEGIN_S:g} s") from None


async def _begun(channel: ProcessChannel) -> tuple[int, bytes]:
    line, said = b"", b""
    while (frame := await channel.receive()) is not None and frame[0] != END and len(line) < LONGEST_NUMBER:
        line, said = (
            (line + frame[1:], said) if frame[0] == STDOUT else (line, (said + frame[1:])[-MOST_SAID:])
        )
        number, newline, rest = line.partition(b"\n")
        if newline and number.strip().isdigit():
            return int(number), rest
    raise Conflict(f"the job cannot be entered: {(said or line).decode(errors='replace').strip()}")


class NumberedChannel:
    """A command that is not a process of ours: it has said its number, by which it is hung up on."""

    def __init__(self, channel: ProcessChannel, first: bytes, hang_up: Callable[[], None]) -> None:
        self._channel = channel
        self._first = first
        self._hang_up = hang_up
        self._over = False

    async def receive(self) -> bytes | None:
        """Its output, and at last its exit code."""
        first, self._first = self._first, b""
        if first:
            return bytes((STDOUT,)) + first
        frame = await self._channel.receive()
        self._over = self._over or frame is None or frame[0] == END
        return frame

    async def send(self, frame: bytes) -> None:
        """Its input, or the size of its terminal."""
        await self._channel.send(frame)

    def close(self) -> None:
        """Hang up."""
        if not self._over:
            self._over = True
            self._hang_up()
        self._channel.close()


class PortChannel:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._over = False

    async def receive(self) -> bytes | None:
        """What it says, and at last that it has closed."""
        if self._over:
            return None
        with contextlib.suppress(OSError):
            if data := await self._reader.read(DATA_BYTES):
                return bytes((STDOUT,)) + data
        self._over = True
        return tunnel.end_frame(End())

    async def send(self, frame: bytes) -> None:
        """What it is told, or that no more is."""
        with contextlib.suppress(OSError):
            if frame[0] == STDIN:
                self._writer.write(frame[1:])
                await self._writer.drain()
            elif frame[0] == CLOSE:
                self._writer.write_eof()

    def close(self) -> None:
        """Hang up, without a wait for a peer that does not read."""
        self._writer.transport.abort()


_ending: set[asyncio.Task[None]] = set()
"""Commands that were hung up on and are still to end."""


async def _read(descriptor: int) -> bytes:
    """The next bytes; none at its end."""
    while True:
        try:
            return os.read(descriptor, DATA_BYTES)
        except BlockingIOError:
            await _ready(descriptor, writing=False)
        except OSError:
            return b""  # a terminal that nobody has open any more


async def _ready(descriptor: int, *, writing: bool) -> None:
    """Wait until it can be read, or written."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    begin, end = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)

    def is_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    begin(descriptor, is_ready)
    try:
        await ready
    finally:
        end(descriptor)


def _code_of(process: int) -> int:
    """The exit code of one that has ended, as a shell has it."""
    found = os.waitid(os.P_PIDFD, process, os.WEXITED)
    assert found is not None
    return found.si_status if found.si_code == os.CLD_EXITED else SIGNALLED + found.si_status


def _set_size(terminal: int, size: tunnel.Size) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))


def _leader_below(pid: int) -> int | None:
    """The first process below this one that leads a session of its own."""
    below = [pid]
    while below:
        pid = below.pop(0)
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            with contextlib.suppress(OSError):
                if os.getsid(child) == child:
                    return child
            below.append(child)
    return None


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)

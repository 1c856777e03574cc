"""The only door to the `ssh` command: one question to one machine, with a bound on time and on what it answers."""

import asyncio
import contextlib
import os
import shlex
import signal

import msgspec

from federator.kernel.errors import Unavailable
from federator.wire.jsontext import read
from federator_providers.ssh.address import Address
from federator_providers.ssh.host import Answer, Question
from federator_providers.ssh.settings import SshSettings, file_options

ANSWER_S = 20.0
"""Real seconds for a question and its answer."""
CONNECT_S = 10
MAX_ANSWER = 2**20
MAX_COMPLAINT = 4096
AT_ONCE = 64
_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    f"ConnectTimeout={CONNECT_S}",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=2",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "LogLevel=ERROR",
)
"""Nobody is asked anything, only known hosts are believed, and nothing of this host is lent to a machine."""


class Login:
    """Asks machines by `ssh`, some at a time."""

    def __init__(self, given: SshSettings) -> None:
        options = [word for option in _OPTIONS for word in ("-o", option)]
        self._ssh = ("ssh", "-T", *options, *file_options(given))
        self._command = shlex.join((given.python, "-m", "federator_providers.ssh.host"))
        self._room = asyncio.Semaphore(AT_ONCE)

    async def ask(self, machine: Address, question: Question) -> Answer:
        """What the machine answers. Raises `Unavailable`; whether the question was heard is not known then."""
        async with self._room:
            said = await self._run(machine, msgspec.json.encode(question))
        try:
            return read(said, Answer)
        except msgspec.DecodeError:
            raise Unavailable(
                f"{machine} answered something else than Federator does", remedy="let its shell print nothing"
            ) from None

    async def _run(self, machine: Address, given: bytes) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._ssh,
                *machine.words,
                self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(
                f"ssh cannot be run: {error.strerror}", remedy="install OpenSSH's client"
            ) from None
        try:
            said, complaint = await asyncio.wait_for(_exchange(process, given), ANSWER_S)
        except TimeoutError:
            raise Unavailable(f"{machine} did not answer within {ANSWER_S:g} s") from None
        except OverflowError:
            raise Unavailable(
                f"{machine} says more than Federator does", remedy="let its shell print nothing"
            ) from None
        finally:
            await _end(process)
        if process.returncode == 0:
            return said
        if process.returncode == 255:
            raise Unavailable(f"{machine} cannot be reached: {_last(complaint)}")
        raise Unavailable(
            f"{machine} did not understand: {_last(complaint)}",
            remedy="install Federator there, and name its Python in `python`",
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of it is left, such as a command that it went through. What it had still to say is read, for asyncio waits for that."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(MAX_ANSWER):
            pass
    await process.wait()


async def _exchange(process: asyncio.subprocess.Process, given: bytes) -> tuple[bytes, bytes]:
    """Standard output and standard error. Raises `OverflowError` as soon as one of them is too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(given)
        await process.stdin.drain()
        process.stdin.close()
    said = await asyncio.gather(_read(process.stdout, MAX_ANSWER), _read(process.stderr, MAX_COMPLAINT))
    await process.wait()
    return said


async def _read(stream: asyncio.StreamReader, limit: int) -> bytes:
    parts = bytearray()
    while part := await stream.read(limit):
        parts += part
        if len(parts) > limit:
            raise OverflowError
    return bytes(parts)


def _last(complaint: bytes) -> str:
    """The last line, as far as it can be printed."""
    lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["it gave no reason"]
    return "".join(letter if letter.isprintable() else "?" for letter in lines[-1])[:200]

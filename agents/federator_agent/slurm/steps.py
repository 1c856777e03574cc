"""Steps beside the ranks of a placement: a command on the node of a rank, or a connection to a port there, inside of the job that Slurm runs.

`srun --overlap` starts them as the job's user, within what the job has, and ends them with it; input, output and the terminal go through Slurm's own connections,
so the nodes need not be reached from anywhere else. Without a terminal what the command writes goes through a pipe of the step's script: Slurm keeps lines back
that have no end yet, unless standard output is a terminal to it.
"""

import asyncio
import math
import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from federator.kernel.errors import Unavailable
from federator.model.jobs import Resources
from federator.wire import tunnel
from federator.wire.tunnel import END, STDERR, STDIN_ENDS, STDOUT, Exec, Forward
from federator_agent.channels import BEGIN_S, nobody_listens, open_process
from federator_agent.runtime import Channel
from federator_agent.slurm.script import command_script, container_script

NOBODY_LISTENS = 97
MOST_SAID = 500
_ENTER = """rm -f -- "$0"
[ ! -e devices-{rank} ] || . ./devices-{rank}
"""
_PIPED = "trap : HUP INT QUIT TERM\n({command}) | cat\nexit ${{PIPESTATUS[0]}}\n"
"""It outlives a TERM that the command may ignore: where Slurm finds processes by their parents, who has lost his is not killed with the step."""
_RELAY = f"""exec 3<>/dev/tcp/127.0.0.1/"$1" || exit {NOBODY_LISTENS}
exec 4<&0
echo
cat <&4 >&3 &
cat <&3 4<&-
kill $! 2>/dev/null
"""
_ABORTED = b"srun: Job step aborted: "
KILLED = 137


def script(rank: int, request: Exec, environment: dict[str, str], beside: str | None = None) -> str:
    """For bash on the rank's node, in the placement's directory: the command with the rank's devices, folder and variables. `beside`: where the rank runs in an image, what runs the command there."""
    given = environment | ({"TERM": request.term or "dumb"} if request.tty else {})
    if beside is None:
        command = command_script(list(request.command), given).rstrip("\n")
    else:
        command = container_script(beside, given).rstrip("\n")
    return _ENTER.format(rank=rank) + (f"{command}\n" if request.tty else _PIPED.format(command=command))


def options(slurm_job: str, node: str, need: Resources, ranks: int, shards: int) -> list[str]:
    """Of `srun`, for a step with all that a rank has. `ranks`: of the placement on that node, which divide its GPUs among themselves."""
    found = [
        f"--jobid={slurm_job}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none",
        f"--cpus-per-task={max(1, math.ceil(need.cpus_milli / 1000))}",
    ]  # fmt: skip
    if shards:
        found.append(f"--gres=shard:{shards}")
    elif need.gpus.count:
        found.append(f"--gpus={ranks * need.gpus.count}")
    return found


def command_words(options: Sequence[str], request: Exec, script: Path) -> list[str]:
    """What runs a command whose script is there."""
    how = "--pty" if request.tty else "--unbuffered"
    return ["srun", *options, how, f"--chdir={script.parent}", "bash", script.name]


def relay_words(options: Sequence[str], request: Forward) -> list[str]:
    """What connects to a port."""
    return ["srun", *options, "--unbuffered", "bash", "-c", _RELAY, "relay", str(request.port)]


def name() -> str:
    """Of a step's script, which no other has."""
    return f"enter-{secrets.token_hex(8)}"


def open_step(command: list[str], environment: Mapping[str, str], request: Exec | Forward) -> Channel:
    """Start it. Raises `OSError`."""
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise OSError(f"{command[0]} cannot be found; install Slurm's client commands on this host")
    start = partial(_start, program, command, environment)
    if isinstance(request, Exec):
        return StepChannel(open_process(start, tty=request.tty, size=request.size), tty=request.tty)
    return open_process(start, tty=False, size=tunnel.Size())


def _start(
    program: str, command: list[str], environment: Mapping[str, str], given: Sequence[tuple[int, int]]
) -> int:
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in given
    ]
    if os.isatty(given[0][0]):
        # Who leads a session and opens a terminal has it as his, and so is told of its size.
        terminal = os.ttyname(given[0][0])
        actions = [(os.POSIX_SPAWN_OPEN, each, terminal, os.O_RDWR, 0) for _, each in given]
    default = (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT)
    return os.posix_spawn(program, command, environment, file_actions=actions, setsid=True, setsigdef=default)


class StepChannel:
    """The command of a step, without srun's own words on how it ended."""

    def __init__(self, process: Channel, *, tty: bool) -> None:
        """With a terminal what srun says comes with the output; else it never touches standard output."""
        self._process = process
        self._said_on = STDOUT if tty else STDERR
        self._aborted = False

    async def receive(self) -> bytes | None:
        """Its output, and at last its exit code. Of a step that was ended with its job, srun may say 0 where it knows none."""
        while (frame := await self._process.receive()) is not None:
            if frame[0] == END and self._aborted and tunnel.read_end(frame).exit_code == 0:
                return tunnel.end_frame(tunnel.End(exit_code=KILLED))
            if frame[0] != self._said_on or b"srun: " not in frame:
                return frame
            self._aborted = self._aborted or _ABORTED in frame
            if len(said := b"".join(map(_without_srun, frame.splitlines(keepends=True)))) > 1:
                return said
        return None

    async def send(self, frame: bytes) -> None:
        """Its input, or the size of its terminal."""
        await self._process.send(frame)

    def close(self) -> None:
        """Hang up: Slurm ends the step."""
        self._process.close()


class RelayChannel:
    """A connection that a step has made on its node."""

    def __init__(self, step: Channel, rest: bytes) -> None:
        self._step = step
        self._rest = rest

    @classmethod
    async def made(cls, step: Channel, port: int) -> "RelayChannel":
        """It, once it stands. Raises `Conflict` when nobody listens there, `Unavailable` when Slurm starts no step."""
        try:
            async with asyncio.timeout(BEGIN_S):
                return cls(step, await _after_the_first_line(step, port))
        except TimeoutError:
            step.close()
            raise Unavailable(
                f"Slurm has connected nothing to port {port} of the job within {BEGIN_S:g} s",
                remedy="try again; a job that is suspended cannot be reached",
            ) from None
        except BaseException:
            step.close()
            raise

    async def receive(self) -> bytes | None:
        """What the port says, and at last that it has closed."""
        rest, self._rest = self._rest, b""
        if rest:
            return bytes((STDOUT,)) + rest
        while (frame := await self._step.receive()) is not None:
            if frame[0] == END:
                return tunnel.end_frame(tunnel.End())
            if frame[0] == STDOUT:
                return frame
        return None

    async def send(self, frame: bytes) -> None:
        """What it is told. That no more comes is not passed on: the relay could only close both ways."""
        if frame != STDIN_ENDS:
            await self._step.send(frame)

    def close(self) -> None:
        """Hang up."""
        self._step.close()


async def _after_the_first_line(step: Channel, port: int) -> bytes:
    """The relay begins with an empty line; what came with it."""
    said = b""
    while (frame := await step.receive()) is not None:
        if frame[0] == STDOUT:
            return frame[2:]
        if frame[0] == STDERR:
            said = (said + frame[1:])[-MOST_SAID:]
        elif frame[0] == END and tunnel.read_end(frame).exit_code == NOBODY_LISTENS:
            raise nobody_listens(port)
    raise Unavailable(f"Slurm starts no step in the job: {said.decode(errors='replace').strip()}")


def _without_srun(line: bytes) -> bytes:
    """A line without what srun tells of how a command ended, which its exit code says."""
    before, _, said = line.partition(b"srun: ")
    of_task = said.startswith(b"error: ") and b": task 0: " in said
    return (
        before if said.endswith(b"\n") and (of_task or said.startswith(b"Force Terminated StepId=")) else line
    )

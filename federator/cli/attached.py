"""`run --stdin`, `run --pty` and `attach`: a job whose command reads what is given here.

The job itself only waits, and ends with the exit code of the command, which is run inside of it through a tunnel: so it is one mechanism at every
runtime, and accounting, limits and cancelling are those of any job. When whoever gives the input has gone, the command is hung up on and the job
ends; a terminal is kept, and can be attached to again. When nobody comes at all, the job ends after a while. What passes is not in the job's log.
"""

import array
import asyncio
import fcntl
import os
import stat
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING

from federator.cli import terminal
from federator.cli.exit_codes import exit_of
from federator.cli.phrases import plain
from federator.cli.sanitize import LogOutput
from federator.cli.session import HERE, Connection, JobName, open_client
from federator.cli.tunnels import Rank, run_inside
from federator.kernel.errors import FederatorError, Invalid, Unavailable
from federator.model.jobs import TERMINAL, JobStatus
from federator.wire import tunnel
from federator.wire.addresses import names_array, one_task
from federator.wire.http import JobDetail

if TYPE_CHECKING:
    from federator.client import AsyncClient

_FIFO = "f=${TMPDIR:-/tmp}/federator-run-$FEDERATOR_PLACEMENT_ID\n"
WAITING = f"""{_FIFO}umask 077; mkfifo "$f" || exit 74
(sleep 120; echo late >"$f") & late=$!
exec 3<"$f"; read -r first <&3; kill $late; rm -f "$f"
[ "$first" = begun ] || {{ echo 'nobody gave this job its input' >&2; exit 125; }}
read -r code <&3 || code=129
cat <&3 >/dev/null
exit "$code"
"""
"""What the job runs. It reads the code from whoever has opened the pipe; should that one be killed, the pipe ends. It waits for that end: with the job its processes are killed, and who is attached would be told of that."""
INSIDE = f"""{_FIFO}n=0; until [ -p "$f" ]; do n=$((n + 1)); [ $n -lt 100 ] || exit 125; sleep 0.1; done
trap : HUP INT QUIT TERM; exec 3>"$f"; echo begun >&3
[ ! -t 1 ] || printf '\\r'; "$@" 3>&-; code=$?; echo $code >&3; exit $code
"""
"""What is run inside of it, before the command. A terminal says by a first byte, which shows nothing, that it is there. It lives on to tell how the command ended."""


ATTACHED_LINES = 100
"""So much of what a job has written is shown to who attaches."""


def attach(job: JobName, *, rank: Rank = 0, connection: Connection = HERE) -> int:
    """Come back to a job: to its terminal if it was started with `run --pty`, else to its output.

    A terminal goes on when its connection is lost, or is left with `Enter ~ .`, until the job ends. It is in one place at a time:
    whoever attaches takes it over. Only the job's owner may. Of any other job the output is followed to its end, and nothing that is
    typed goes there; Ctrl-C leaves, and the job goes on. The exit code is the job's.

    Parameters
    ----------
    rank:
        Which rank of a gang.
    """
    return asyncio.run(_attach(connection, job, rank))


async def _attach(connection: Connection, job: str, rank: int) -> int:
    async with open_client(connection, long_patience=True) as client:
        detail = await client.job(job)
        if names_array(job, detail.job):
            array = await client.array(job)
            raise one_task(array.name, array.indices, sum(array.tasks.values()), array.ended, "attach")
        if _has_terminal(detail):
            if not terminal.is_terminal():
                raise Invalid("standard input is not a terminal", field="JOB")
            return await run_inside(client, detail.job.id, tunnel.Attach(terminal.size()), rank=rank)
        _say(
            f"{detail.job.label} has no terminal: this is its output, and nothing goes to its input; Ctrl-C leaves"
        )
        out = LogOutput()
        async for part in client.logs(detail.job.id, node=rank, tail=ATTACHED_LINES, follow=True):
            out.write(part)
        ended = (await client.wait(detail.job.id)).job
        _say(f"{ended.status}: {ended.because}")
        return exit_of(ended)


def _say(text: str) -> None:
    print(f"federator: {plain(text)}", file=sys.stderr, flush=True)


def _has_terminal(detail: JobDetail) -> bool:
    """Whether it was started to have a command run inside, and has not ended: whether that has a terminal is known to its agent."""
    command = detail.spec.command or ()
    return not detail.job.terminal and len(command) > 2 and command[2].startswith(_FIFO)


def document_of(document: dict[str, object]) -> dict[str, object]:
    """The job file of a job that waits for its command. Raises `Invalid` for a gang."""
    if document.get("nodes", 1) != 1:
        raise Invalid("a job of several nodes has no one input", field="--stdin", remedy="leave it out")
    return {"name": _name(document), **document, "command": ["/bin/sh", "-c", WAITING]}


def _name(document: dict[str, object]) -> object:
    """The name that the job would have by its command."""
    from federator.wire.jobfile import read_job

    return read_job(document, now=0.0).spec.name


async def run_attached(
    client: "AsyncClient", job: str, command: tuple[str, ...], *, tty: bool, say: Callable[[str], None]
) -> int:
    """Wait until the job runs, run the command inside with what is given here, and answer the job's exit code. Whatever goes wrong, the job is cancelled, unless its terminal goes on."""
    begun = asyncio.Event()
    try:
        async for event in client.events(job):
            if event.text:
                say(f"{event.status}: {event.text}")
            if event.status == JobStatus.RUNNING or event.status in TERMINAL:
                break
        request = tunnel.Exec(
            command=("/bin/sh", "-c", INSIDE, "sh", *command),
            tty=tty,
            term=os.environ.get("TERM", "") if tty else "",
            size=terminal.size() if tty else tunnel.Size(),
            keep=tty,
        )
        if (await client.job(job)).job.status is JobStatus.RUNNING:
            await run_inside(client, job, request, begun=begun)
        ended = (await client.wait(job)).job
    except (FederatorError, asyncio.CancelledError) as error:
        if tty and begun.is_set() and isinstance(error, Unavailable):
            say(f"federator attach {job} comes back to it, federator cancel {job} ends it")
            raise
        await client.cancel(job)
        say(f"{job} is being cancelled")
        raise
    say(f"{ended.status}: {ended.because}")
    return exit_of(ended)


def is_given() -> bool:
    """Whether something waits on standard input that nobody is going to read."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISREG(kind):
            return os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR) < os.fstat(sys.stdin.fileno()).st_size
        waiting = array.array("i", [0])
        if stat.S_ISFIFO(kind):
            fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, waiting)
        return waiting[0] > 0
    except (OSError, ValueError):
        return False

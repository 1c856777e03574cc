"""Local jobs: what a site that is cut off runs for people at its host, through its agent's own socket."""

import os
import socket
import time
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from federator.cli.exit_codes import FAILED, NO_CODE, OK, TIMED_OUT
from federator.cli.layout import Column
from federator.cli.output import ListOutput, say, show_data, show_rows, status
from federator.cli.phrases import NONE, plain, seconds_in, when
from federator.cli.sanitize import LogOutput
from federator.kernel.errors import Damaged, FederatorError, Forbidden, Invalid, Unavailable
from federator.wire import local_submit as wire
from federator.wire.jsontext import Reader

SOCKET_VARIABLE = "FEDERATOR_AGENT_SOCKET"
ANSWER_S = 15.0
LOOK_S = 1.0
app = App(name="local")
JobName = Annotated[str, Parameter(help="Id of a local job, or its name: the newest of that name.")]
Socket = Annotated[Path, Parameter(name="--socket", help="The agent's socket.", env_var=SOCKET_VARIABLE)]
HERE = Path(wire.DEFAULT_SOCKET)
Kind = TypeVar("Kind", wire.Jobs, wire.Piece, wire.Done)
_answers: Reader[wire.Answer] = Reader(wire.Answer)


@app.default
def list_local(*, output: ListOutput = "table", agent: Socket = HERE) -> None:
    """List your jobs that this host's agent has admitted while it was cut off, and what is left of its allotment for you."""
    answer = _ask(agent, wire.List(), wire.Jobs)
    if output in ("json", "yaml"):
        show_data(answer, output)
        return
    now = time.time()
    columns = (
        Column[wire.LocalRow]("JOB", lambda row: row.job),
        Column[wire.LocalRow]("NAME", lambda row: plain(row.name)),
        Column[wire.LocalRow]("QUEUE", lambda row: row.queue),
        Column[wire.LocalRow]("STATUS", lambda row: status(row.status)),
        Column[wire.LocalRow]("SUBMITTED", lambda row: when(row.submitted_at, now)),
        Column[wire.LocalRow]("DISPATCHER", lambda row: Text("has it" if row.adopted else "not yet")),
        Column[wire.LocalRow]("WHY", lambda row: plain(row.detail) or NONE),
    )
    show_rows(answer.jobs, columns, output, empty="no local jobs of yours")
    if answer.connected:
        say("this site is connected: submit to the dispatcher")
    for each in answer.left:
        say(f"left for {answer.person} in queue {each.queue}: {each.jobs} jobs, {each.gpu_h:g} GPU-hours")


app.command(list_local, name="list")


@app.command
def submit(file: Path, /, *, agent: Socket = HERE) -> int:
    """Submit the job of a file to this host's agent, while its site is cut off, and print its id.

    It starts at once, or is refused. When the site is connected again it is a job like all others, of the same id.

    Parameters
    ----------
    file:
        The job file; `-` for standard input.
    """
    from federator.cli.jobfiles import read_one

    job = read_one(file)
    if job.workdir is not None:
        remedy = "leave it out, and name files of this host in the command"
        raise Invalid("is kept by the dispatcher, which is not there", field="$.workdir", remedy=remedy)
    with job.told_in_lines():
        request = wire.Submit(msgspec.json.encode(job.document).decode())
        print(_ask(agent, request, wire.Done).job)
    return OK


@app.command
def logs(
    job: JobName,
    *,
    follow: Annotated[bool, Parameter(name=("-f", "--follow"), negative="")] = False,
    node: int = 0,
    agent: Socket = HERE,
) -> None:
    """Show what a local job has written, as far as it is on this host.

    Parameters
    ----------
    follow:
        Go on until it has ended.
    node:
        Which node of a gang.
    """
    out, offset = LogOutput(), 0
    while True:
        piece = _ask(agent, wire.Log(job, node, offset), wire.Piece)
        out.write(piece.data)
        offset += len(piece.data)
        if not piece.data and (piece.over or not follow):
            return
        if not piece.data:
            time.sleep(LOOK_S)


@app.command
def cancel(job: JobName, *, agent: Socket = HERE) -> None:
    """End a local job that the dispatcher does not have yet."""
    print(_ask(agent, wire.Cancel(job), wire.Done).job)


@app.command
def wait(job: JobName, *, timeout: str | None = None, agent: Socket = HERE) -> int:
    """Wait until a local job has ended; the exit code is its own.

    Parameters
    ----------
    timeout:
        Stop waiting after this, such as 30m, with exit code 124.
    """
    until_s = None if timeout is None else time.monotonic() + seconds_in(timeout, "--timeout")
    while True:
        mine = _ask(agent, wire.List(), wire.Jobs).jobs
        row = next((each for each in reversed(mine) if job in (each.job, each.name)), None)
        if row is None:
            raise Invalid(
                f"you have no job {job!r} here", remedy="federator local list shows those that there are"
            )
        if row.over:
            say(f"{row.name}: {row.status} {row.detail}".strip())
            return OK if row.status == "SUCCEEDED" else (row.exit_code or NO_CODE) & 0xFF or FAILED
        if until_s is not None and time.monotonic() >= until_s:
            return TIMED_OUT
        time.sleep(LOOK_S)


def _ask(path: Path, request: wire.Request, kind: type[Kind]) -> Kind:
    """One request, one answer. Raises what the agent refuses, and `Unavailable` where none answers."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(ANSWER_S)
            link.connect(os.fspath(path))
            link.sendall(msgspec.json.encode(request) + b"\n")
            with link.makefile("rb") as file:
                line = file.readline(wire.MAX_ANSWER_BYTES)
    except (BrokenPipeError, ConnectionResetError):
        line = b""
    except OSError as error:
        raise Unavailable(
            f"no agent answers at {path}: {error.strerror or error}",
            remedy=f"run it on the site's host; {SOCKET_VARIABLE} or --socket names another socket",
        ) from None
    if not line.endswith(b"\n"):
        raise Unavailable(f"the agent at {path} takes no more connections just now", remedy="try again")
    try:
        answer = _answers.decode(line)
    except msgspec.DecodeError as error:
        raise Damaged(
            f"the agent's answer cannot be read: {error}", remedy="use the federator of its version"
        ) from None
    if isinstance(answer, wire.Refused):
        kind_of: type[FederatorError] = Invalid if answer.field else Forbidden
        raise kind_of(answer.message, field=answer.field or None, remedy=answer.remedy or None)
    if not isinstance(answer, kind):
        raise Damaged(f"the agent has answered something else ({type(answer).__name__})")
    return answer

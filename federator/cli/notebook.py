"""`notebook`: a Jupyter on somebody's GPU, opened here through a forwarded port."""

import asyncio
import contextlib
import secrets
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.exit_codes import INTERRUPTED, exit_of
from federator.cli.job_options import AS_WRITTEN, NO_FOLDER, JobOptions
from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, open_client
from federator.cli.tunnels import LOOPBACK, Forwarded, local_host
from federator.kernel.errors import Conflict, Invalid, Unavailable
from federator.kernel.quantities import format_duration
from federator.model.jobs import TERMINAL, Job, JobStatus
from federator.wire import tunnel
from federator.wire.fields import duration_s

if TYPE_CHECKING:
    from federator.client import AsyncClient

USUAL_PORT = 8888
FIRST_PORT, PORTS = 20_000, 12_000
"""Where Jupyter listens in the job: below the ports that systems hand out by themselves, and hardly the same for two jobs of one host."""
BEGIN_S = 180.0
"""Real seconds that Jupyter may take until it listens."""
LOOK_S = 0.5
MISSING = 127
NOTEBOOKS = "**/*.ipynb"
RUN = """command -v jupyter >/dev/null || {{ echo 'there is no jupyter on PATH' >&2; exit {missing}; }}
umask 077
JUPYTER_TOKEN=$(head -c 24 /dev/urandom | od -A n -t x1 | tr -d ' \\n')
export JUPYTER_TOKEN
echo "$JUPYTER_TOKEN" >{note}
umask 022
{watch}exec jupyter lab --no-browser --allow-root --ip={loopback} --port={port} --ServerApp.port_retries=0
"""
"""The token is made in the job, and read through the tunnel: it stands in no record and no log."""
WATCH = Path(__file__).with_name("notebook_idle.py.txt")
"""Ends the notebook once nobody uses it: a program of the job's, for whoever opened it may be gone."""
BUSY_PERCENT = 5
"""A GPU that is busier is used."""
NOTE = ".federator-notebook"
READ = f"cat {NOTE} && rm {NOTE}"


def notebook(
    *,
    options: JobOptions = AS_WRITTEN,
    idle: str | None = None,
    port: Annotated[int, Parameter(name=("-p", "--port"))] = USUAL_PORT,
    connection: Connection = HERE,
) -> int:
    """Run a Jupyter in the federation and open it here, until Ctrl-C.

    A job is submitted that runs `jupyter lab`, which the site or its `--image` must have. Once it listens, its address is printed, with a
    token of its own, on the loopback address of this machine. Ctrl-C ends the job; notebooks in its work folder are kept as its outputs, for
    `federator download`.

    Parameters
    ----------
    idle:
        End the notebook once no kernel and no terminal in it has done anything for so long, and its GPUs neither, such as 2h. A page that is only open does not count.
    port:
        Port of this machine; another where it is taken.
    """
    if not 0 <= port <= 65_535:
        raise Invalid(f"cannot be {port}", field="--port", remedy="write 1 to 65535")
    if options.array or (options.nodes or 1) > 1:
        raise Invalid("a notebook is one job on one node", field="--array" if options.array else "--nodes")
    inside = FIRST_PORT + secrets.randbelow(PORTS)
    watch = "" if idle is None else _watch(duration_s(idle, "--idle", low_s=1.0), inside)
    run = RUN.format(missing=MISSING, loopback=LOOPBACK, port=inside, note=NOTE, watch=watch)
    document: dict[str, object] = {"name": "notebook", "outputs": [NOTEBOOKS], **options.fields(), "run": run}
    workdir = None if options.workdir == NO_FOLDER else options.workdir
    try:
        return asyncio.run(run_notebook(connection, document, workdir, tunnel.Forward(inside), port))
    except asyncio.CancelledError:
        return INTERRUPTED


def _watch(limit_s: float, inside: int) -> str:
    """The lines that end a notebook in which nothing has happened for so long."""
    arguments = f"{LOOPBACK} {inside} {limit_s} {format_duration(limit_s)} {BUSY_PERCENT}"
    return f"python3 - $$ {arguments} <<'END' &\n{WATCH.read_text()}END\n"


async def run_notebook(
    connection: Connection,
    document: dict[str, object],
    workdir: Path | None,
    inside: tunnel.Forward,
    port: int,
) -> int:
    """Submit the notebook, forward a port of it, and cancel it in the end. Answers the exit code."""
    async with open_client(connection, long_patience=True) as client:
        submitted = await client.submit(document, workdir=workdir)
        job = submitted.jobs[0]
        try:
            end_as_ctrl_c_does(signal.SIGTERM, signal.SIGHUP)
            _say(f"{submitted.name} is {job}")
            await _running(client, job)
            async with contextlib.AsyncExitStack() as stack:
                forwarded = Forwarded(client, job, inside, 0)
                local = await _listen(forwarded, stack, port)
                await _listening(client, job, inside)
                token = await _token(client, job)
                print(f"http://{local_host(client.transport.server)}:{local}/lab?token={token}", flush=True)
                _say("Ctrl-C ends it")
                ended = (await client.wait(job)).job
        except BaseException:  # else the job holds its GPU, and nobody knows
            await client.cancel(job)
            with contextlib.suppress(OSError):
                _say(f"{job} is being cancelled; federator download {job} fetches its notebooks")
            raise
        _say(f"{ended.status}: {ended.because}")
        return exit_of(ended)


def end_as_ctrl_c_does(*numbers: signal.Signals) -> None:
    """For a closed terminal, or a machine that goes down. With nohup it goes on. Not by SIGINT, which shells have background commands ignore."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, this.cancel)


async def _running(client: "AsyncClient", job: str) -> None:
    """Return when it runs, telling what it waits for. Raises `Conflict` when it has ended."""
    async for event in client.events(job):
        if event.text:
            _say(f"{event.status}: {event.text}")
        if event.status == JobStatus.RUNNING:
            return
        if event.status in TERMINAL:
            raise _ended((await client.job(job)).job)


async def _listening(client: "AsyncClient", job: str, inside: tunnel.Forward) -> None:
    """Return when it can be reached. Raises `Conflict` when it has ended, `Unavailable` when it takes too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BEGIN_S):
            while not await _reached(client, job, inside):
                record = (await client.job(job)).job
                if record.terminal:
                    raise _ended(record)
                await asyncio.sleep(LOOK_S)
            return
    raise Unavailable(
        f"Jupyter does not listen after {BEGIN_S:g} s", remedy=f"federator logs {job} has what it says"
    )


async def _reached(client: "AsyncClient", job: str, inside: tunnel.Forward) -> bool:
    """Whether it answers a request."""
    try:
        async with client.tunnel(job, inside) as through:
            await through.send(tunnel.STDIN, b"HEAD /api HTTP/1.0\r\n\r\n")
            async for channel, _ in through.frames():
                return channel == tunnel.STDOUT
    except Conflict:
        return False
    return False


async def _token(client: "AsyncClient", job: str) -> str:
    said = b""
    request = tunnel.Exec(("sh", "-c", READ))
    async with client.tunnel(job, request) as through:
        await through.close_input()
        async for channel, data in through.frames():
            said += data if channel == tunnel.STDOUT else b""
    token = said.decode(errors="replace").strip()
    if not token.isalnum():
        raise Conflict("the token of the notebook cannot be read", remedy=f"federator logs {job} may say why")
    return token


async def _listen(forwarded: Forwarded, stack: contextlib.AsyncExitStack, port: int) -> int:
    """Listen here, on another port where that one is taken."""
    try:
        return await forwarded.listen(stack, port)
    except OSError:
        return await forwarded.listen(stack, 0)


def _ended(record: Job) -> Conflict:
    if record.outcome is not None and record.outcome.exit_code == MISSING:
        remedy = "name an image that has it with --image, or write --setup 'pip install jupyterlab'"
        return Conflict("there is no jupyter where the job ran", remedy=remedy)
    return Conflict(
        f"the job has ended: {record.status}, {record.because}",
        remedy=f"federator logs {record.id} has what it said",
    )


def _say(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)

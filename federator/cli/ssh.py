"""`ssh-config` and `ssh-proxy`: running jobs as hosts of ssh, for editors and whatever else speaks it."""

import asyncio
import os
import re
import shlex
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from federator.cli.output import say
from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, JobName, ask, open_client
from federator.cli.tunnels import Rank
from federator.client.settings import config_folder, read_settings
from federator.kernel.errors import Conflict, FederatorError, Invalid
from federator.kernel.tasks import cancel_and_wait
from federator.model.jobs import JobStatus

if TYPE_CHECKING:
    from federator.client import Verbs

MOST = 200
"""Jobs of one file."""
BLOCK_BYTES = 2**16
DOMAIN = "federator"
FILE = "ssh_config"
_LETTERS = re.compile(r"[^A-Za-z0-9._-]+")
_ENTRY = """Host {names}
  ProxyCommand {command}
  User federator
  UserKnownHostsFile /dev/null
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


class SshHost(NamedTuple):
    """A job as ssh is to know it."""

    names: tuple[str, ...]
    job: str
    """Its address: an id or a name."""


def ssh_config(
    *jobs: JobName,
    rank: Rank = 0,
    install: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = HERE,
) -> None:
    """Print what ssh and editors need to reach running jobs as hosts: `ssh train.federator`, or JOB.federator in the editor's list of hosts.

    Nothing is needed in the job but a shell: this command answers ssh, and runs what it asks for as `federator exec` does. Without a
    job it is about all of yours that run.

    Parameters
    ----------
    rank:
        Which rank of a gang; above 0 the host is JOB.RANK.federator.
    install:
        Write it to ssh_config in the folder of config.yaml in place of what is there, and include that file in ~/.ssh/config.
    """
    if find_spec("asyncssh") is None:
        raise _lacking()
    hosts, _ = ask(connection, lambda client: _hosts(client, jobs, rank))
    settings = read_settings(connection.server, connection.token, ca=connection.ca)
    words = [sys.executable, "-m", "federator", "ssh-proxy", "--server", settings.server]
    words += ["--ca", str(Path(settings.ca).absolute())] if settings.ca else []
    words += ["--rank", str(rank)] if rank else []
    entries = "\n".join(
        _ENTRY.format(names=" ".join(host.names), command=as_written([*words, host.job])) for host in hosts
    )
    if settings.token_source in ("--token", "FEDERATOR_TOKEN"):
        say("note: the token is not written there; whoever runs ssh needs FEDERATOR_TOKEN")
    if not install:
        print(entries, end="")
        return
    include(config_folder() / FILE, entries, Path.home() / ".ssh/config")
    print("\n".join(host.names[0] for host in hosts))


def _lacking() -> Invalid:
    return Invalid("asyncssh is not installed here", remedy="pip install 'federator[ssh]'")


async def _hosts(client: "Verbs", jobs: tuple[str, ...], rank: int) -> list[SshHost]:
    """Those that were named; else all of one's own that run, where the newest of a name has that name."""
    from federator.client import JobFilter

    if jobs:
        for job in jobs:
            await client.job(job)  # raises what is wrong with the name
        return [SshHost((host_name(job, rank),), job) for job in jobs]
    page = await client.jobs(JobFilter(mine=True, status=JobStatus.RUNNING), limit=MOST)
    newest = {row.label: row.id for row in reversed(page.jobs)}
    names = {job: label for label, job in newest.items()}
    return [
        SshHost(tuple(host_name(name, rank) for name in (names.get(row.id), row.id) if name), row.id)
        for row in page.jobs
    ]


def host_name(name: str, rank: int) -> str:
    """As ssh may be given it: `sweep[3]` is sweep.3."""
    plain_name = _LETTERS.sub(".", name).strip(".-") or "job"
    return f"{plain_name}.{rank}.{DOMAIN}" if rank else f"{plain_name}.{DOMAIN}"


def as_written(words: list[str]) -> str:
    """A command as ssh hands it to a shell, which fills in what follows a percent sign. Raises `Invalid`."""
    if not all(word.isprintable() for word in words):
        raise Invalid("has letters that cannot be printed", field="JOB", remedy="name the job by its id")
    return shlex.join(words).replace("%", "%%")


def include(file: Path, entries: str, config: Path) -> None:
    """Write our file, for its owner alone, and have the person's own include it, before anything that holds for some hosts only."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _replace(file, entries)
    line = f'Include "{file}"\n'
    config = config.resolve()
    text = config.read_text() if config.exists() else ""
    if line not in text.splitlines(keepends=True):
        config.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(config, line + text)


def _replace(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.federator-{os.getpid()}")
    with open(draft, "w", opener=_for_its_owner) as out:
        out.write(text)
    draft.replace(file)


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def ssh_proxy(job: JobName, *, rank: Rank = 0, connection: Connection = HERE) -> None:
    """Answer an ssh on standard input and output, as its ProxyCommand: `federator ssh-config` writes it. Each command, terminal and connection is a tunnel of its own into the job.

    Parameters
    ----------
    rank:
        Which rank of a gang.
    """
    asyncio.run(_answer(connection, job, rank))


async def _answer(connection: Connection, job: str, rank: int) -> None:
    try:
        from federator.client import ssh
    except ImportError:
        raise _lacking() from None
    async with open_client(connection) as client:
        record = (await client.job(job)).job
        if record.status is not JobStatus.RUNNING:
            raise Conflict(f"only a running job can be entered: this one is {record.status}")
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        passing = [asyncio.ensure_future(each) for each in (_send(writer), _show(reader))]
        try:
            await ssh.serve(client, record.id, rank, theirs, _tell)
        finally:
            await cancel_and_wait(*passing)
            writer.close()


async def _send(writer: asyncio.StreamWriter) -> None:
    from federator.cli.terminal import Input

    given = Input()
    while data := await given.read():
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _show(reader: asyncio.StreamReader) -> None:
    while data := await reader.read(BLOCK_BYTES):
        await asyncio.to_thread(_write, data)


def _tell(error: FederatorError) -> None:
    print(f"federator: {plain(error.describe())}", file=sys.stderr, flush=True)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

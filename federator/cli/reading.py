"""What jobs leave: their logs and their outputs."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.harmless import LogOutput
from federator.cli.jobs import JobName
from federator.cli.output import say
from federator.cli.phrases import plain
from federator.cli.session import HERE, LONG_PATIENCE_S, Connection, ask, open_client
from federator.kernel.errors import Invalid

if TYPE_CHECKING:
    from federator.client import Client


def logs(
    job: JobName,
    *,
    follow: Annotated[bool, Parameter(name=("-f", "--follow"), negative="")] = False,
    node: int = 0,
    index: int | None = None,
    tail: int | None = None,
    raw: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = HERE,
) -> None:
    """Show what a job has written. Kept after the site is gone.

    On a terminal, letters that could steer it are shown as signs; files and pipes get the bytes as they are.

    Parameters
    ----------
    job:
        Id or name.
    follow:
        Go on until the job has ended, over restarts of the dispatcher and of the job.
    node:
        Which node of a gang.
    index:
        Which task of an array, by its index.
    tail:
        Only the last lines, this many.
    raw:
        Give a terminal all bytes as they are, colours too: for jobs that you trust.
    """
    asyncio.run(_logs(connection, job, LogOutput(raw=raw), follow=follow, node=node, index=index, tail=tail))


async def _logs(
    connection: Connection,
    job: str,
    out: LogOutput,
    *,
    follow: bool,
    node: int,
    index: int | None,
    tail: int | None,
) -> None:
    async with open_client(connection) as client:
        detail = await client.job(job if index is None else await client.task(job, index))
        job, nodes = detail.job.id, detail.spec.nodes
        if not 0 <= node < nodes:
            there = f"its nodes are 0 to {nodes - 1}" if nodes > 1 else "it has node 0 only"
            raise Invalid(f"{detail.job.name} has no node {node}", field="--node", remedy=there)
        if follow:
            client.transport.patience_s = LONG_PATIENCE_S
        async for chunk in client.logs(job, node=node, tail=tail, follow=follow):
            out.write(chunk)


def download(
    job: JobName,
    *,
    into: Annotated[Path | None, Parameter(name=("-d", "--into"))] = None,
    index: int | None = None,
    connection: Connection = HERE,
) -> None:
    """Fetch the files that a job's `outputs` named, and print where they are.

    Parameters
    ----------
    job:
        Id or name.
    into:
        Folder to put them below; else one with the job's name.
    index:
        Which task of an array, by its index.
    """

    async def fetch(client: "Client") -> list[Path]:
        record = (await client.job(job if index is None else await client.task(job, index))).job
        folder = into or Path(
            record.name if record.array_index is None else f"{record.name}-{record.array_index}"
        )
        return await client.download(record.id, folder)

    files, _ = ask(connection, fetch)
    for file in files:
        print(_relative(file))
    if not files:
        say("the job has left no outputs")


def _relative(path: Path) -> str:
    here = Path.cwd()
    return plain(str(path.relative_to(here) if path.is_relative_to(here) else path))

"""What jobs leave: their logs and their outputs."""

import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from federator.cli.layout import Column
from federator.cli.log_lines import LogLines
from federator.cli.output import ListOutput, say, show_rows
from federator.cli.phrases import moment_at, plain
from federator.cli.sanitize import LogOutput
from federator.cli.session import HERE, LONG_PATIENCE_S, Connection, JobName, ask, open_client
from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_bytes
from federator.model.jobs import Job, JobStatus
from federator.wire.addresses import names_array, one_task
from federator.wire.http import ArrayDetail, JobDetail, OutputFile
from federator.wire.log_times import LogPart

if TYPE_CHECKING:
    from federator.client import Verbs


def logs(
    job: JobName,
    *,
    follow: Annotated[bool, Parameter(name=("-f", "--follow"), negative="")] = False,
    node: int = 0,
    attempt: int | None = None,
    all: Annotated[bool, Parameter(negative="")] = False,  # noqa: A002 - the option's name
    tail: int | None = None,
    since: str | None = None,
    grep: str | None = None,
    timestamps: Annotated[bool, Parameter(name=("-t", "--timestamps"), negative="")] = False,
    raw: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = HERE,
) -> None:
    """Show what a job has written. Kept after the site is gone.

    On a terminal, letters that could steer it are shown as signs; files and pipes get the bytes as they are.

    Parameters
    ----------
    job:
        Id or name; `'sweep[3]'` is a task of an array.
    follow:
        Go on until the job has ended, over restarts of the dispatcher and of the job.
    node:
        Which node of a gang.
    attempt:
        Which attempt, counted from 1; without it the newest. `federator show JOB` lists them.
    all:
        All attempts, oldest first, each below a line that names it.
    tail:
        Only the last lines, this many.
    since:
        Only what was written from then on: an instant such as 2026-12-01T00:00:00Z, or how long ago, such as 10m.
    grep:
        Only lines that this regular expression matches.
    timestamps:
        Put before each line when it was written, to a second or so, in local time with its zone; `-` where that was not recorded.
    raw:
        Give a terminal all bytes as they are, colours too: for jobs that you trust.
    """
    if all and (attempt is not None or follow):
        raise Invalid(
            "goes with neither --attempt nor --follow", field="--all", remedy="leave one of them out"
        )
    since_at = moment_at(since, "--since", time.time()) if since else 0.0
    lines = LogLines(grep, timestamps=timestamps)

    async def write(client: "Verbs") -> None:
        detail = await client.job(job)
        if names_array(job, detail.job):
            assert detail.job.array is not None
            array = await client.array(detail.job.array)
            raise one_task(array.name, array.indices, sum(array.tasks.values()), array.ended, "logs")
        _check_node(detail, node)
        if follow:
            client.transport.patience_s = LONG_PATIENCE_S
        out = LogOutput(raw=raw)
        for number, heading in _attempts(detail) if all else ((attempt, b""),):
            out.write(heading)
            parts = client.log_parts(
                detail.job.id,
                node=node,
                tail=tail,
                since=since_at,
                times=timestamps,
                attempt=number,
                follow=follow,
            )
            await _copy(parts, lines, out)

    ask(connection, write)


async def _copy(parts: AsyncIterator[LogPart], lines: LogLines, out: LogOutput) -> None:
    async for part in parts:
        for piece in (part.data,) if lines.whole else lines.take(part):
            out.write(piece)
    for piece in lines.end():
        out.write(piece)


def _check_node(detail: JobDetail, node: int) -> None:
    nodes = detail.spec.nodes
    if not 0 <= node < nodes:
        there = f"its nodes are 0 to {nodes - 1}" if nodes > 1 else "it has node 0 only"
        raise Invalid(f"{detail.job.name} has no node {node}", field="--node", remedy=there)


def _attempts(detail: JobDetail) -> Iterator[tuple[int, bytes]]:
    """Each attempt's number, and the line above its log, as `tail` has them above files."""
    for each in detail.attempts:
        blank = "" if each is detail.attempts[0] else "\n"
        heading = f"{blank}==> attempt {each.attempt} at {each.site}: {each.status} <==\n"
        yield each.attempt, heading.encode()


def download(
    job: JobName,
    *,
    into: Annotated[Path | None, Parameter(name=("-d", "--into"))] = None,
    list_only: Annotated[bool, Parameter(name="--list", negative="")] = False,
    output: ListOutput = "table",
    connection: Connection = HERE,
) -> None:
    """Fetch the files that a job's `outputs` named, and print where they are; of a job that runs, what there is of them so far.

    Parameters
    ----------
    job:
        Id or name; `'sweep[3]'` is a task of an array, and the name of an array all its tasks, each in a folder with its index.
    into:
        Folder to put them below; else one with the job's name, and -partial while it runs.
    list_only:
        List what was collected of one job, with sizes, and fetch nothing.
    """
    if list_only:
        listed, _ = ask(connection, lambda client: client.outputs(job))
        columns: tuple[Column[OutputFile], ...] = (
            Column("FILE", lambda row: plain(row.path)),
            Column("SIZE", lambda row: format_bytes(row.size), right=True),
        )
        show_rows(listed.files, columns, output, empty="the job has left no outputs")
        if not listed.complete:
            print("note: there are more; only the first are listed", file=sys.stderr)
        return

    async def fetch(client: "Verbs") -> list[Path] | JobDetail | ArrayDetail:
        detail = await client.job(job)
        record = detail.job
        if names_array(job, record):
            return await client.array(record.array or "")
        if record.status is JobStatus.RUNNING and detail.spec.outputs:
            return detail
        return await client.download(record.id, into or _folder_of(record))

    found, _ = ask(connection, fetch)
    runs = isinstance(found, JobDetail)
    if isinstance(found, ArrayDetail):
        files = _download_tasks(connection, found, into or Path(found.name))
    else:
        files = _download_so_far(connection, found, into) if isinstance(found, JobDetail) else found
    for file in files:
        print(_relative(file))
    if not files:
        say("the job has no outputs yet" if runs else "the job has left no outputs")


def _download_tasks(connection: Connection, array: ArrayDetail, into: Path) -> list[Path]:
    import asyncio

    from federator.client.progress import Bars

    bars = Bars()

    async def fetch() -> list[Path]:
        tell = bars.tell if sys.stderr.isatty() else None
        async with open_client(connection, progress=tell) as client:
            return await client.download_all(array, into)

    try:
        return asyncio.run(fetch())
    finally:
        bars.close()


def _folder_of(job: Job) -> Path:
    return Path(job.name if job.array_index is None else f"{job.name}-{job.array_index}")


def _download_so_far(connection: Connection, detail: JobDetail, into: Path | None) -> list[Path]:
    """By commands in the job; told as what it is, wherever that is read."""
    import asyncio

    folder = into or Path(f"{_folder_of(detail.job)}-partial")
    ranks = len(detail.members) or detail.spec.nodes

    async def fetch() -> list[Path]:
        async with open_client(connection) as client:
            return await client.outputs_so_far(detail.job.id, ranks, detail.spec.outputs, folder)

    files = asyncio.run(fetch())
    print(f"note: {plain(detail.job.label)} runs; its outputs are as far as they are now", file=sys.stderr)
    return files


def _relative(path: Path) -> str:
    here = Path.cwd()
    return plain(str(path.relative_to(here) if path.is_relative_to(here) else path))

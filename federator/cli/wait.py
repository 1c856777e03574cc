"""`wait`: until jobs have ended, or run."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from federator.cli.exits import FAILED, TIMED_OUT, exit_of
from federator.cli.phrases import plain, seconds_in
from federator.cli.pipelines import steps_of
from federator.cli.session import HERE, Connection, open_client
from federator.cli.status_line import StatusLine, keep_showing
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.quantities import format_duration
from federator.model.jobs import Job, JobStatus
from federator.wire.addresses import names_array, read_address
from federator.wire.http import ArrayDetail, JobRow

if TYPE_CHECKING:
    from federator.client import Verbs


def wait(
    *jobs: str,
    until: Annotated[Literal["end", "running"], Parameter(name="--for")] = "end",
    timeout: str | None = None,
    connection: Connection = HERE,
) -> int:
    """Wait until jobs have ended, or run; exits as the first that did not succeed, or 0.

    Parameters
    ----------
    jobs:
        Ids or names; the name of an array means all its tasks, that of a pipeline all its steps.
    until:
        `running`: only until the jobs run, of an array one of its tasks, or have ended before.
    timeout:
        Give up after this, such as 30m, with exit code 124. The jobs go on.
    """
    if not jobs:
        raise Invalid("no job is named", field="JOBS", remedy="write one or more ids or names")
    timeout_s = seconds_in(timeout, "--timeout") if timeout else None
    return asyncio.run(_wait(connection, jobs, timeout_s, running=until == "running"))


async def _wait(
    connection: Connection, jobs: tuple[str, ...], timeout_s: float | None, *, running: bool
) -> int:
    async with open_client(connection, long_patience=True) as client:
        line, left = StatusLine(), dict.fromkeys(jobs)
        shown = asyncio.ensure_future(keep_showing(line, client, left, while_=lambda _: True))

        async def ended_of(name: str) -> list[_Ended]:
            found = await _ended(client, name, running=running)
            left.pop(name, None)
            return found

        try:
            async with asyncio.timeout(timeout_s):
                ended = await asyncio.gather(*map(ended_of, jobs))
        except TimeoutError:
            line.clear()
            print(
                f"gave up waiting after {format_duration(timeout_s or 0.0)}; the jobs go on", file=sys.stderr
            )
            return TIMED_OUT
        finally:
            shown.cancel()
            line.clear()
        lines = [line for found in ended for line in found]
        for each in lines:
            print(each.text)
        return next((each.code for each in lines if each.code), 0)


MOST_TOLD = 1000
"""Tasks of an array of which each has a line when all have ended."""


class _Ended(NamedTuple):
    """A job that has ended, as it is told, and its exit code."""

    text: str
    code: int


async def _ended(client: "Verbs", name: str, *, running: bool) -> list[_Ended]:
    """What a name means, once all of it has ended, or runs. An array is asked about as a whole; only what did not succeed is looked at by itself."""
    from federator.client import JobFilter

    try:
        found = None if len(read_address(name).indices) > 1 else (await client.job(name)).job
    except NotFound as error:
        steps = await steps_of(client, name, error)
        ends = await asyncio.gather(*(_ended(client, step.id, running=running) for step in steps))
        return [each for of_step in ends for each in of_step]
    if found is None or not names_array(name, found):
        details = await asyncio.gather(
            *(client.wait(job, running=running) for job in await client.tasks(name))
        )
        return [_Ended(_told(each.job), exit_of(each.job) if each.job.terminal else 0) for each in details]
    array = await client.wait_all(found.array or "", running=running)
    if array.finished_at is None:
        return [_Ended(_added_up(array), 0)]
    if sum(array.tasks.values()) > MOST_TOLD:
        return [_Ended(_added_up(array), FAILED if array.tasks.keys() - {JobStatus.SUCCEEDED} else 0)]
    rows = [row async for row in client.all_jobs(JobFilter(array=array.id))]
    failed = next((row.id for row in reversed(rows) if row.status != JobStatus.SUCCEEDED), None)
    code = exit_of((await client.job(failed)).job) if failed else 0
    return [_Ended(_told(row), code if row.id == failed else 0) for row in reversed(rows)]


def _told(job: Job | JobRow) -> str:
    return f"{job.status}  {plain(job.label)}  {plain(job.because)}"


def _added_up(array: ArrayDetail) -> str:
    tasks = ", ".join(f"{count} {status}" for status, count in array.tasks.items())
    return f"{tasks}  {plain(array.name)}[{array.indices}]"

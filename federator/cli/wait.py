"""`wait`: until jobs have ended, or run."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from federator.cli.exit_codes import FAILED, TIMED_OUT, exit_of
from federator.cli.phrases import plain, seconds_in
from federator.cli.pipelines import steps_of
from federator.cli.session import HERE, Connection, ask
from federator.cli.status_line import StatusLine, shown_meanwhile
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
    left, line = dict.fromkeys(jobs), StatusLine()
    waited = partial(_wait, left=left, running=until == "running")
    try:
        with _limited(timeout_s), shown_meanwhile(line, connection, left):
            lines, _ = ask(connection, waited, follows=True)
    except _TimedOut:
        print(f"gave up waiting after {format_duration(timeout_s or 0.0)}; the jobs go on", file=sys.stderr)
        return TIMED_OUT
    for each in lines:
        print(each.text)
    return next((each.code for each in lines if each.code), 0)


class _TimedOut(BaseException):
    """The time is over: no error, so that nothing on the way takes it for one and tries again."""


@contextmanager
def _limited(timeout_s: float | None) -> Iterator[None]:
    """Raises `_TimedOut` in the middle of what is done when that time is over. None: no limit."""
    if timeout_s is None:
        yield
        return

    def over(number: int, frame: object) -> None:
        del number, frame
        raise _TimedOut

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(timeout_s, SHORTEST_S))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


SHORTEST_S = 0.001
"""A timer of nothing would never go off."""
MOST_TOLD = 1000
"""Tasks of an array of which each has a line when all have ended."""


class _Ended(NamedTuple):
    """A job that has ended, as it is told, and its exit code."""

    text: str
    code: int


async def _wait(client: "Verbs", *, left: dict[str, None], running: bool) -> list[_Ended]:
    """Wait for one after the other, which is as long as for the last; all are looked up first, so that a wrong name is told at once."""
    found = {name: await _found(client, name) for name in left}
    ended = list[_Ended]()
    for name, meant in found.items():
        ended += await _ended(client, name, meant, running=running)
        del left[name]
    return ended


async def _found(client: "Verbs", name: str) -> Job | list[JobRow] | None:
    """The job of that name, the steps of a pipeline of that name, or None for several tasks of an array."""
    try:
        return None if len(read_address(name).indices) > 1 else (await client.job(name)).job
    except NotFound as error:
        return await steps_of(client, name, error)


async def _ended(
    client: "Verbs", name: str, meant: Job | list[JobRow] | None, *, running: bool
) -> list[_Ended]:
    """What a name means, once all of it has ended, or runs. An array is asked about as a whole; only what did not succeed is looked at by itself."""
    from federator.client import JobFilter

    if isinstance(meant, list):
        steps = [(step.id, (await client.job(step.id)).job) for step in meant]
        return [each for id_, job in steps for each in await _ended(client, id_, job, running=running)]
    if meant is None or not names_array(name, meant):
        jobs = [(await client.wait(job, running=running)).job for job in await client.tasks(name)]
        return [_Ended(_told(job), exit_of(job) if job.terminal else 0) for job in jobs]
    array = await client.wait_all(meant.array or "", running=running)
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

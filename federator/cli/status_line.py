"""How far a job or an array is, in one line that is written over: for `run` and `wait` on a terminal. Pipes and files get nothing of it."""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from federator.cli.phrases import ago, counted, plain, when, when_about
from federator.kernel.errors import FederatorError
from federator.model.jobs import JobStatus
from federator.wire.addresses import names_array
from federator.wire.http import ArrayDetail, JobDetail

if TYPE_CHECKING:
    from federator.client import Verbs

LOOK_S = 2.0
"""How often the dispatcher is asked."""
_CLEARED = "\r\x1b[K"


class StatusLine:
    """The last line of a terminal, while nothing else is written there."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        """Write this in its place."""
        if self.on:
            room = max(1, shutil.get_terminal_size().columns - 1)
            cut = text if len(text) <= room else text[: room - 1] + "…"
            print(f"{_CLEARED}{cut}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        """Take it away, before something else is written."""
        if self._shown:
            print(_CLEARED, end="", file=sys.stderr, flush=True)
            self._shown = False


def state_of(detail: JobDetail, now: float) -> str:
    """`train PENDING 3m: starts in 12m (2 before it): no room now …`, or `train RUNNING 3m at north: ends in 20m`."""
    job = detail.job
    head = f"{plain(job.label)} {job.status}"
    if job.status is JobStatus.PENDING:
        start = when_about(detail.expected_start_at, detail.start_low_at, detail.start_high_at, now)
        said = [f"starts {start}"] if detail.expected_start_at is not None else []
        said += [f"{counted(detail.before, 'job')} before it"] if detail.before else []
        said += [plain(detail.waiting.because)] if detail.waiting is not None else []
        return ": ".join(filter(None, (f"{head} {ago(job.submitted_at, now)}", ", ".join(said))))
    if job.terminal:
        return head
    where = f" at {plain(detail.site)}" if detail.site else ""
    since = f" {ago(job.started_at, now)}" if job.started_at is not None else ""
    end_at = detail.expected_finish_at
    ends = f": ends {when(end_at, now)}" if end_at is not None and end_at > now else ""
    return f"{head}{since}{where}{ends}"


def state_of_array(array: ArrayDetail, now: float) -> str:
    """`sweep[0-99]: 4 RUNNING, 96 PENDING, ends in 2h`."""
    counts = ", ".join(f"{count} {status}" for status, count in array.tasks.items())
    end_at = array.expected_finish_at
    ends = f", ends {when(end_at, now)}" if end_at is not None and end_at > now else ""
    return f"{plain(array.name)}[{array.indices}]: {counts}{ends}"


async def keep_showing(
    line: StatusLine, client: "Verbs", left: Collection[str], *, while_: Callable[[JobDetail], bool]
) -> None:
    """Show how the first of these that is `left` stands, until there is none, or a job is not to be shown any more."""
    count = len(left)
    while line.on and left:
        name = next(iter(left))
        with contextlib.suppress(FederatorError):
            detail = await client.job(name)
            if names_array(name, detail.job) and detail.job.array is not None:
                text = state_of_array(await client.array(detail.job.array), client.now())
            elif while_(detail):
                text = state_of(detail, client.now())
            else:
                line.clear()
                return
            over = f"{count - len(left)} of {count} ended; " if count > 1 else ""
            if name in left:
                line.show(f"{over}{text}")
        await asyncio.sleep(LOOK_S)

"""How far a job or an array is, in one line that is written over: for `run` and `wait` on a terminal. Pipes and files get nothing of it."""

import contextlib
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from threading import Lock, Thread
from typing import TYPE_CHECKING

from federator.cli.phrases import ago, counted, plain, when, when_about
from federator.cli.session import Connection
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
        self._writing = Lock()

    def show(self, text: str) -> None:
        """Write this in its place."""
        room = max(1, shutil.get_terminal_size().columns - 1)
        cut = text if len(text) <= room else text[: room - 1] + "…"
        with self._writing:
            if self.on:
                print(f"{_CLEARED}{cut}", end="", file=sys.stderr, flush=True)
                self._shown = True

    def clear(self) -> None:
        """Take it away, before something else is written."""
        with self._writing:
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
    while line.on and (names := list(left)):
        name = names[0]
        with contextlib.suppress(FederatorError):
            detail = await client.job(name)
            if names_array(name, detail.job) and detail.job.array is not None:
                text = state_of_array(await client.array(detail.job.array), client.now())
            elif while_(detail):
                text = state_of(detail, client.now())
            else:
                line.clear()
                return
            which = f"{count - len(left) + 1} of {count}: " if count > 1 else ""
            if name in left:
                line.show(f"{which}{text}")
        await client.transport.sleep(LOOK_S)


@contextlib.contextmanager
def shown_meanwhile(line: StatusLine, connection: Connection, left: Collection[str]) -> Iterator[None]:
    """Keep showing these on a terminal, from a thread and a connection of its own, while something else blocks."""
    if line.on:
        Thread(target=_show_in_thread, args=(line, connection, left), daemon=True).start()
    try:
        yield
    finally:
        line.on = False
        line.clear()


def _show_in_thread(line: StatusLine, connection: Connection, left: Collection[str]) -> None:
    from federator.client import Client
    from federator.client.blocking import finish

    with (
        contextlib.suppress(FederatorError),  # whoever waits tells it
        Client(connection.server, connection.token, ca=connection.ca, patience_s=0.0) as client,
    ):
        finish(keep_showing(line, client.verbs, left, while_=lambda _: True))

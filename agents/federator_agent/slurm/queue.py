"""One look at Slurm's queue for all who want to know: however many placements there are, at most one `squeue` runs, and not often.

Who asks says how long it may take until the look begins; the next look begins when the most urgent of them wants it. It began after they asked, so it shows what they have done.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping

from federator_agent.slurm.commands import Commands
from federator_agent.slurm.output import QUEUE_FORMAT, Job, read_queue

LEAST_PAUSE_S = 0.2
BREATH = 4.0
"""Between two looks there is at least this many times what the last one took: a slow slurmctld is asked less."""


class QueueSnapshot(Mapping[str, tuple[Job, ...]]):
    """The queue as it was at some moment: by job name, all jobs of that name that Slurm still knows."""

    def __init__(self, jobs: Iterable[Job], began_s: float) -> None:
        self.began_s = began_s
        """By the event loop's clock."""
        self._jobs: dict[str, tuple[Job, ...]] = {}
        for job in sorted(jobs, key=lambda job: int(job.id)):
            self._jobs[job.name] = (*self._jobs.get(job.name, ()), job)

    def __getitem__(self, name: str) -> tuple[Job, ...]:
        return self._jobs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)


class Queue:
    """The jobs of this agent, and of whomever it submits for."""

    def __init__(self, commands: Commands, users: Iterable[str]) -> None:
        """`users`: in whose name jobs are submitted besides the agent's own."""
        self._commands = commands
        self._users = ",".join([str(os.getuid()), *sorted(set(users))])
        self._next: asyncio.Future[QueueSnapshot] | None = None
        self._due_s = 0.0
        self._earliest_s = 0.0
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def look(self, within_s: float = 0.0) -> QueueSnapshot:
        """What is in the queue, seen from now on, and at the latest begun after `within_s`. Raises `Unreachable`, `Rejected`."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + within_s
        if self._next is None:
            self._next, self._due_s = loop.create_future(), due_s
            self._next.add_done_callback(lambda future: future.cancelled() or future.exception())
        else:
            self.hasten(within_s)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        return await asyncio.shield(self._next)

    def hasten(self, within_s: float) -> None:
        """Let the look that is waited for, if one is, begin after that at the latest."""
        due_s = asyncio.get_running_loop().time() + within_s
        if due_s < self._due_s:
            self._due_s = due_s
            self._sooner.set()

    async def _work(self) -> None:
        while self._next is not None:
            await self._until_due()
            await self._look()

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (left_s := max(self._due_s, self._earliest_s) - loop.time()) > 0:
            self._sooner.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._sooner.wait()
            except TimeoutError:
                return

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        asked, self._next = self._next, None
        assert asked is not None
        began_s = loop.time()
        pause_s = LEAST_PAUSE_S
        try:
            text = await self._commands.run(
                "squeue", "--noheader", "--states=all", f"--user={self._users}", f"--Format={QUEUE_FORMAT}"
            )
        except Exception as error:  # noqa: BLE001 - all who wait must be told
            asked.set_exception(error)
        else:
            asked.set_result(QueueSnapshot(read_queue(text), began_s))
            pause_s = max(pause_s, BREATH * (loop.time() - began_s))
        self._earliest_s = loop.time() + pause_s

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

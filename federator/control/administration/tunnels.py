"""Tunnels into running jobs: where one leads, and that it was opened and closed, for the job's timeline and the ledger.

What is run in one is not written down beyond the program's name: its arguments may be secret, and a timeline is seen by more people than the job's owner.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.kernel.errors import Conflict, Invalid
from federator.kernel.tasks import cancel_and_wait
from federator.model.identity import Caller
from federator.model.jobs import Job, JobStatus
from federator.wire.tunnel import Attach, Exec, Forward, Request

LONGEST_NAME = 100
LINGER_S = 10.0
"""Real seconds: connections to one port that follow each other within this are one entry of the timeline, since a browser makes twenty for a page."""


class TunnelTarget(NamedTuple):
    """A rank that runs."""

    job: Job
    placement: str
    rank: int
    member: str
    site: str


class TunnelUse:
    """One entry of the timeline: of one command, or of the connections to one port."""

    def __init__(self) -> None:
        self.how = "the connection was lost"
        """How it ended."""
        self.present = 0
        """Tunnels that are open."""
        self.last: object = None
        """Of those that are over, which was the last."""


class TunnelService:
    """Looks where a tunnel leads, and keeps account of it."""

    def __init__(self, records: Records, writer: EventWriter) -> None:
        self._records = records
        self._writer = writer
        self._ports: dict[tuple[str, str, int, Request], TunnelUse] = {}
        self._lingering: set[asyncio.Task[None]] = set()

    def target(self, job: Job, rank: int) -> TunnelTarget:
        """Where a rank of the job runs now. Raises `Conflict` for one that does not run, `Invalid` for a rank that it does not have."""
        placement = self._records.placements.get(job.placement or "")
        if job.status is not JobStatus.RUNNING or placement is None:
            raise Conflict(
                f"{job.label} is {job.status}: only a running job can be entered",
                remedy="submit it again" if job.terminal else "wait until it runs",
            )
        ranks = len(placement.members)
        if not 0 <= rank < ranks:
            there = f"its ranks are 0 to {ranks - 1}" if ranks > 1 else "it has rank 0 only"
            raise Invalid(f"{job.label} has no rank {rank}", field="?rank", remedy=there)
        return TunnelTarget(job, placement.id, rank, placement.members[rank], placement.site)

    @asynccontextmanager
    async def accounted(
        self, caller: Caller, target: TunnelTarget, request: Request
    ) -> AsyncIterator[TunnelUse]:
        """Write down that it is open, before anything goes through it, and that it is over."""
        key = (caller.name, target.placement, target.rank, request)
        account = self._ports.get(key)
        if account is None:
            account = TunnelUse()
            if isinstance(request, Forward):
                self._ports[key] = account
            await self._note(caller, target, _kind(request), f"opened {_what(request, target)}")
        account.present += 1
        try:
            yield account
        finally:
            account.present -= 1
            if not isinstance(request, Forward):
                await self._note(
                    caller, target, _kind(request), f"closed {_what(request, target)}: {account.how}"
                )
            elif not account.present:
                account.last = object()
                task = asyncio.create_task(self._linger(caller, target, request, account, account.last))
                self._lingering.add(task)
                task.add_done_callback(self._lingering.discard)

    async def _linger(
        self, caller: Caller, target: TunnelTarget, request: Request, account: TunnelUse, last: object
    ) -> None:
        """Write down that a port is not used any more, unless it is again soon."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LINGER_S)
        key = (caller.name, target.placement, target.rank, request)
        if not account.present and account.last is last:
            del self._ports[key]
            await self._note(
                caller, target, _kind(request), f"closed {_what(request, target)}: {account.how}"
            )

    async def close(self) -> None:
        """Write down what is over."""
        await cancel_and_wait(*self._lingering)

    async def _note(self, caller: Caller, target: TunnelTarget, kind: str, what: str) -> None:
        def compute() -> Changes:
            changes = Changes()
            job = self._records.jobs.get(target.job.id)
            if job is not None:
                changes.put(self._writer.event(job, kind, f"{caller.name} {what}", site=target.site))
            self._writer.act(
                changes,
                f"user:{caller.name}",
                what,
                job=target.job.id,
                queue=target.job.queue,
                owner=target.job.owner,
                site=target.site,
            )
            return changes

        await self._records.transact(compute)


def _kind(request: Request) -> str:
    return "port-forward" if isinstance(request, Forward) else "exec"


def _what(request: Request, target: TunnelTarget) -> str:
    if isinstance(request, Exec):
        program = request.command[0].rpartition("/")[2][:LONGEST_NAME]
        return f"{'a terminal with ' if request.tty else ''}{program!r} in rank {target.rank}"
    if isinstance(request, Attach):
        return f"the terminal of rank {target.rank} again"
    return f"port {request.port} of rank {target.rank}"

"""Looks at the federation all the time: draws it, notes what changes, and lets the story wait for something to be so."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from federator.cli.demo.federation import DemoFederation, NotStarted
from federator.cli.demo.screen import Frame, Screen, moment
from federator.cli.phrases import plain, usd
from federator.client import AsyncClient
from federator.kernel.errors import FederatorError, Transient
from federator.model.jobs import TERMINAL
from federator.wire.http import JobRow, LeaseRow, Overview

LOOK_S = 0.4
"""Real seconds between two looks."""
PATIENCE_S = 30.0
"""For how long the dispatcher may be away unannounced, in real seconds."""


class TookTooLong(FederatorError):
    """What the demonstration waits for does not happen."""

    code = "took-too-long"


class Watch:
    """The present overview, the present phase, and the story so far. Runs between `__aenter__` and `__aexit__`."""

    def __init__(self, federation: DemoFederation, screen: Screen, title: str) -> None:
        self.phase = ""
        self.outage = ""
        self.overview: Overview | None = None
        self._federation = federation
        self._screen = screen
        self._title = title
        self._notes: list[str] = []
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def enter(self, phase: str) -> None:
        """A new phase begins."""
        self.phase = phase
        self.say(f"== {phase}")

    def say(self, line: str) -> None:
        """Note something that has happened, with the world's time."""
        when = moment(self._federation.clock.now(), self._federation.origin_at)
        self._notes.append(f"{when}  {plain(line)}")
        self._screen.say(self._notes[-1])

    async def until(self, holds: Callable[[Overview], bool], what: str, *, within_s: float) -> Overview:
        """Return when an overview is so. Raises `TookTooLong` after that many real seconds, or `NotStarted` when a process has died."""
        until = time.monotonic() + within_s
        while self.overview is None or self.outage or not holds(self.overview):
            if time.monotonic() > until:
                raise TookTooLong(f"after {within_s:g} s it is still not so that {what}")
            self._check()
            self._looked.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * LOOK_S):
                    await self._looked.wait()
        return self.overview

    def _check(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()
        dead = [name for name in self._federation.processes.ended() if not self.outage]
        if dead:
            raise NotStarted(
                f"{dead[0]} has ended by itself",
                remedy=f"see {self._federation.processes.log_file(dead[0])}",
            )

    async def _run(self) -> None:
        async with AsyncClient(
            self._federation.server, self._federation.admin_token, patience_s=0.0
        ) as client:
            answered = time.monotonic()
            while True:
                try:
                    overview = await client.overview()
                except Transient:
                    if not self.outage and time.monotonic() - answered > PATIENCE_S:
                        raise
                else:
                    answered = time.monotonic()
                    self._compare(self.overview, overview)
                    self.overview = overview
                self._draw()
                self._looked.set()
                await asyncio.sleep(LOOK_S)

    def _draw(self) -> None:
        if self.overview is None:
            return
        overview = msgspec.structs.replace(self.overview, now=self._federation.clock.now())
        self._screen.draw(
            Frame(
                title=self._title,
                phase=self.phase,
                overview=overview,
                began_at=self._federation.origin_at,
                notes=tuple(self._notes[-10:]),
                outage=self.outage,
                console=self._federation.console,
            )
        )

    def _compare(self, before: Overview | None, now: Overview) -> None:
        """Say what is different from the last look."""
        jobs = {job.id: job for job in before.jobs} if before else {}
        for job in now.jobs:
            self._compare_job(jobs.get(job.id), job)
        leases = {lease.id: lease for lease in before.leases} if before else {}
        for lease in now.leases:
            old = leases.get(lease.id)
            if old is None or old.status != lease.status:
                self.say(_about_lease(lease))

    def _compare_job(self, old: JobRow | None, job: JobRow) -> None:
        if old is None or old.status == job.status:
            return
        where = f" at {job.site}" if job.site else ""
        late = ", too late" if job.missed_deadline else ""
        why = f": {job.because}" if job.status in ("PLACED", "FAILED", "HELD") else ""
        in_time = ", in time" if job.status in TERMINAL and job.missed_deadline is False else ""
        self.say(f"{job.label}: {old.status} -> {job.status}{where}{late}{in_time}{why}")


def _about_lease(lease: LeaseRow) -> str:
    if lease.status == "REQUESTED":
        return f"renting {lease.offer} for {lease.price_usd_h:.2f} USD/h: {lease.because}"
    bill = f", billed {usd(lease.billed_usd)}" if lease.status == "GONE" else ""
    return f"rented {lease.gpus} GPUs ({lease.offer}): {lease.status}{bill}"

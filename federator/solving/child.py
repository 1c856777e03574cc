"""The parent's side of the solver: a persistent child process that never costs more than its limit.

`decide` never raises and never waits longer than it is told to. A child that is late is killed and another one is started at once, so
that it is warm for the next turn; one that dies or answers nonsense, likewise. The turn then keeps greedy's plan.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from federator.model.outlook import Outlook
from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.solving.frames import HEADER_BYTES, Ask, Told, body_length, pack

T = TypeVar("T")

log = logging.getLogger(__name__)

CLOSE_S = 0.5
"""How long a child has to end after its input has ended."""


class ChildSolver:
    """A `Solver` that decides in a child process. Use from one event loop; calls queue up."""

    def __init__(self, niceness: int | None = None, otherwise: str = "greedy's plans stand") -> None:
        """Nothing starts before `start` or the first `decide`. `niceness` of the process; `otherwise`: what holds while it is not ready."""
        self.restarts = 0
        self._niceness, self._otherwise = niceness, otherwise
        self._process: asyncio.subprocess.Process | None = None
        self._ready = False
        self._number = 0
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._process.pid if self._process is not None else None

    async def start(self, limit_s: float = 30.0) -> bool:
        """Start the child and wait until it is ready; False when it is not within the limit."""
        async with self._lock:
            try:
                async with asyncio.timeout(limit_s):
                    await self._awake()
            except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
                await self._discard(f"the solver did not start: {error!r}")
            return self._ready

    async def decide(
        self, problem: Problem, *, stages: tuple[str, ...], seed: int, limit_s: float
    ) -> Plan | None:
        """The child's plan; None when the child was late, died or returned nonsense."""
        return await self._answered(Ask(0, msgspec.msgpack.encode(problem), seed, stages), Plan, limit_s)

    async def look_ahead(self, problem: Problem, counts: Sequence[int], *, limit_s: float) -> Outlook | None:
        """The child's outlook; None when there is none, or the child was late, died or returned nonsense."""
        if not counts:
            return None
        asked = Ask(0, msgspec.msgpack.encode(problem), 0, (), tuple(counts))
        return await self._answered(asked, Outlook, limit_s)

    async def _answered(self, asked: Ask, kind: type[T], limit_s: float) -> T | None:
        async with self._lock:
            if self._closed:
                return None
            try:
                async with asyncio.timeout(limit_s):
                    return await self._ask(asked, kind)
            except TimeoutError:
                if self._ready:
                    await self._replace(f"the solver was late: not done within {limit_s:g} s")
            except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
                await self._replace(f"the solver failed: {error!r}")
            return None

    async def close(self) -> None:
        """End the child: its input ends; if it does not follow, it is killed."""
        self._closed = True
        async with self._lock:
            process, self._process, self._ready = self._process, None, False
            if process is None or process.stdin is None:
                return
            process.stdin.close()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _ask(self, asked: Ask, kind: type[T]) -> T | None:
        process = await self._awake()
        self._number += 1
        assert process.stdin is not None, "the child was started with pipes"
        process.stdin.write(pack(replace(asked, number=self._number)))
        await process.stdin.drain()
        told = await self._read(process)
        if told.number != self._number:
            raise ValueError(f"an answer to {told.number}, asked was {self._number}")
        if told.error:
            log.warning("the solver could not decide: %s", told.error)
            return None
        return msgspec.msgpack.decode(told.plan, type=kind) if told.plan else None

    async def _awake(self) -> asyncio.subprocess.Process:
        """The child, once it has said that it is ready. Cancelled while it starts, it goes on starting."""
        if self._process is None:
            await self._launch()
        assert self._process is not None, "it was just launched"
        if not self._ready:
            await self._read(self._process)
            self._ready = True
        return self._process

    async def _launch(self) -> None:
        command = [sys.executable, "-m", "federator.solving.worker", str(os.getpid())]
        command += [] if self._niceness is None else [str(self._niceness)]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        self._ready = False

    async def _read(self, process: asyncio.subprocess.Process) -> Told:
        assert process.stdout is not None, "the child was started with pipes"
        header = await process.stdout.readexactly(HEADER_BYTES)
        body = await process.stdout.readexactly(body_length(header))
        return msgspec.msgpack.decode(body, type=Told)

    async def _replace(self, why: str) -> None:
        """Kill the child and start another, without waiting until that one is ready."""
        await self._discard(why)
        try:
            await self._launch()
        except OSError as error:
            log.warning("no other solver could be started: %s", error)

    async def _discard(self, why: str) -> None:
        log.warning("%s; %s until another is ready", why, self._otherwise)
        process, self._process, self._ready = self._process, None, False
        self.restarts += 1
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

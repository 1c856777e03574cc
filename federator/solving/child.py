"""The parent's side of the solver: a persistent child process that never costs more than its limit.

`decide` never raises and never waits longer than it is told to. A child that is late is killed, and so is one that answers nonsense; the turn then
keeps greedy's plan. A spare that has started meanwhile takes its place at once: a child takes seconds of the processor to be ready.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from federator.model.outlook import Outlook, Proof
from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.solving.frames import HEADER_BYTES, Ask, Reply, body_length, pack

T = TypeVar("T")

log = logging.getLogger(__name__)

CLOSE_S = 0.5
"""How long a child has to end after its input has ended."""
SPARE_AFTER_S = 30.0
"""For so long after the first child was ready there is no spare: what has just begun has better uses for the processor."""


class ChildSolver:
    """A `Solver` that decides in a child process. Use from one event loop; calls queue up."""

    def __init__(
        self, niceness: int | None = None, otherwise: str = "greedy's plans stand", *, spare: bool = False
    ) -> None:
        """Nothing starts before `launch`, `start` or the first `decide`. `niceness` of the process; `otherwise`: what holds while it is not ready; `spare`: keep another."""
        self.restarts = 0
        self._niceness, self._otherwise = niceness, otherwise
        self._process: asyncio.subprocess.Process | None = None
        self._keeps_spare = spare
        self._spare: asyncio.subprocess.Process | None = None
        self._ready = False
        self._spare_from_s: float | None = None
        self._number = 0
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._process.pid if self._process is not None else None

    @property
    def spare_pid(self) -> int | None:
        """The process id of the one that waits, while there is one."""
        return self._spare.pid if self._spare is not None else None

    async def launch(self) -> None:
        """Start the child and return at once: it becomes ready while there is nothing to decide. Raises nothing."""
        async with self._lock:
            if self._closed or self._process is not None:
                return
            try:
                self._process = await self._next()
            except OSError as error:
                log.warning("the solver could not be started: %s", error)

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

    async def certify(self, problem: Problem, plan: Plan, *, limit_s: float) -> Proof | None:
        """How good the child finds the plan's decisions; None when there is no proof, or the child was late, died or returned nonsense."""
        asked = Ask(0, msgspec.msgpack.encode(problem), 0, (), certify=msgspec.msgpack.encode(plan))
        return await self._answered(asked, Proof, limit_s)

    async def _answered(self, asked: Ask, kind: type[T], limit_s: float) -> T | None:
        async with self._lock:
            if self._closed:
                return None
            try:
                async with asyncio.timeout(limit_s):
                    found = await self._ask(asked, kind)
            except TimeoutError:
                if self._ready:
                    await self._replace(f"the solver was late: not done within {limit_s:g} s")
            except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
                await self._replace(f"the solver failed: {error!r}")
            else:
                await self._renew_spare()
                return found
            return None

    async def close(self) -> None:
        """End the child: its input ends; if it does not follow, it is killed."""
        self._closed = True
        async with self._lock:
            processes = [each for each in (self._process, self._spare) if each is not None]
            self._process = self._spare = None
            self._ready = False
            for process in processes:
                await _end(process)

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
        process = self._process
        if process is None:
            process = self._process = await self._next()
        if not self._ready:
            await self._read(process)
            self._ready = True
            if self._spare_from_s is None:
                self._spare_from_s = asyncio.get_running_loop().time() + SPARE_AFTER_S
        return process

    async def _next(self) -> asyncio.subprocess.Process:
        """The spare, or one that is to start."""
        spare, self._spare = self._spare, None
        return await self._launch() if spare is None or spare.returncode is not None else spare

    async def _renew_spare(self) -> None:
        due_s = self._spare_from_s if self._keeps_spare and self._spare is None else None
        if due_s is None or asyncio.get_running_loop().time() < due_s:
            return
        try:
            self._spare = await self._launch()
        except OSError as error:
            log.warning("no spare solver could be started: %s", error)

    async def _launch(self) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "federator.solving.worker", str(os.getpid())]
        command += [] if self._niceness is None else [str(self._niceness)]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    async def _read(self, process: asyncio.subprocess.Process) -> Reply:
        assert process.stdout is not None, "the child was started with pipes"
        header = await process.stdout.readexactly(HEADER_BYTES)
        body = await process.stdout.readexactly(body_length(header))
        return msgspec.msgpack.decode(body, type=Reply)

    async def _replace(self, why: str) -> None:
        """Kill the child; the spare takes its place, or another is started, without waiting until that one is ready."""
        await self._discard(why)
        try:
            self._process = await self._next()
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


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()

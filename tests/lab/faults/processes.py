"""Processes that can be killed or stopped between any two steps of theirs, all on one loop.

A process here is everything that was started from within it: its tasks, callbacks and timers carry it in their context, and the loop looks at it before
it runs any of them. So a kill needs no help from what is killed: no `finally` runs, nobody is told, as with `kill -9`. A process that is stopped (a
pause of its collector, a suspended machine) has its steps kept, and runs them when it goes on, unaware of the time in between.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from federator.simulation.virtual_time import VirtualLoop

_PRESENT: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """One life of a program. Work is put into it with `spawn` and `call`; `kill` ends it for good."""

    def __init__(self, name: str, loop: "FaultLoop", died: Callable[[], None]) -> None:
        """`died` is called, outside of the process, when it has been killed."""
        self.name = name
        self.loop = loop
        self.alive = True
        self.steps_left: int | None = None
        """It dies after so many more steps; None: it does not."""
        self.doomed: tuple[str, int] | None = None
        """It begins to count, so many steps, when it comes to a deed of that name."""
        self._died = died
        self._stopped = False
        self._kept: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._context: Context = copy_context()
        self._context.run(_PRESENT.set, self)

    @property
    def running(self) -> bool:
        """Whether it takes steps now."""
        return self.alive and not self._stopped

    def spawn(self, doing: Coroutine[Any, Any, None], what: str) -> None:
        """Begin a task of the process."""
        task = self.loop.create_task(doing, name=f"{self.name}: {what}", context=self._context.copy())
        self.tasks.append(task)

    def call(self, what: Callable[..., object], *args: Any) -> None:
        """Let the process do this soon, if it is alive then."""
        self.loop.call_soon(what, *args, context=self._context.copy())

    def stop(self) -> None:
        """Take no step until `go_on`."""
        self._stopped = True

    def go_on(self) -> None:
        """Take all the steps that have become due meanwhile, in their order."""
        self._stopped = False
        kept, self._kept = self._kept, []
        self.loop.put_back(kept)

    def kill(self) -> None:
        """It is gone: nothing of it ever runs again."""
        if self.alive:
            self.alive = False
            self.loop.outside(self._died)

    def stumbles(self) -> bool:
        """Count a step; whether the process has died at it. Called before every step of the loop, and by what takes several steps at once."""
        if self.steps_left is not None:
            if self.steps_left <= 0:
                self.kill()
            self.steps_left -= 1
        return not self.alive

    def comes_to(self, deed: str) -> None:
        """It is about to do this."""
        if self.doomed is not None and self.doomed[0] == deed:
            self.steps_left, self.doomed = self.doomed[1], None

    def may_run(self, handle: asyncio.Handle) -> bool:
        """Whether a step may be taken now; one of a stopped process is kept."""
        if self.alive and self._stopped:
            self._kept.append(handle)
            return False
        return not self.stumbles()

    def bury(self) -> None:
        """Let its abandoned tasks go, so that nothing complains of them. Called when the simulation is over."""
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no other way
            unwind(task)


def unwind(task: asyncio.Task[Any]) -> None:
    """End a coroutine that will never be resumed; what it still wants to wait for in its `finally` is not granted."""
    coroutine = task.get_coro()
    for _ in range(100):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001 - it may raise anything: its world is gone
            continue
        return


class FaultLoop(VirtualLoop):
    """The virtual loop, which asks before each step whether its process is there to take it."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []
        """What nobody has caught in a process that was alive."""
        self._outside = copy_context()
        self.set_task_factory(_task)  # type: ignore[arg-type] # typeshed wants a protocol with any arguments

    def outside(self, what: Callable[..., object], *args: Any) -> None:
        """Have it done soon, as part of the world and of no process."""
        self.call_soon(what, *args, context=self._outside.copy())

    def later(self, delay_s: float, what: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Have it done after that time, as part of the world."""
        return self.call_later(delay_s, what, *args, context=self._outside.copy())

    def put_back(self, handles: list[asyncio.Handle]) -> None:
        """Steps that were kept are due now."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def call_at(  # type: ignore[override] # as in the virtual loop, arguments are anything
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's own."""
        timer = super().call_at(when, callback, *args, context=context)
        process = _of(context)
        if process is not None:
            timer.__class__ = _ProcessTimer
        return timer

    def _call_soon(
        self, callback: Callable[..., object], args: Any, context: Context | None
    ) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)  # type: ignore[misc]
        if _of(context) is not None:
            handle.__class__ = _ProcessHandle
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody has caught is a finding. Of what was killed nothing can be said."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.failures.append(f"{context.get('message')}: {error!r}")


def _of(context: Context | None) -> Process | None:
    return _PRESENT.get() if context is None else context.get(_PRESENT)


class _ProcessHandle(asyncio.Handle):
    """A step of a process."""

    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(_PRESENT)  # type: ignore[attr-defined]
        if process is None or process.may_run(self):
            super()._run()


class _ProcessTimer(asyncio.TimerHandle):
    """A step of a process at a time."""

    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(_PRESENT)  # type: ignore[attr-defined]
        if process is None or process.may_run(self):
            super()._run()


def _task(
    loop: asyncio.AbstractEventLoop, doing: Coroutine[Any, Any, Any], **fields: Any
) -> asyncio.Task[Any]:
    """A task that its process knows of, wherever in it it was begun."""
    task: asyncio.Task[Any] = asyncio.Task(doing, loop=loop, **fields)
    process = _of(fields.get("context"))
    if process is not None:
        process.tasks.append(task)
        if len(process.tasks) % 256 == 0:
            process.tasks[:] = [each for each in process.tasks if not each.done()]
    return task


def coming_to(deed: str) -> None:
    """Whoever runs now is about to do this."""
    process = _PRESENT.get()
    if process is not None:
        process.comes_to(deed)

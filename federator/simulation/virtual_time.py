"""An event loop whose time passes only while nobody has anything to do, and the clock that goes with it.

It is asyncio's own loop, with two things taken away: the operating system (there are no sockets and no threads, so nothing from outside can come
in between) and waiting (where the real loop would sleep until the next timer, this one sets its time to it). What is ready runs in the order in
which it became so, and timers in the order of their times, so a run depends on nothing but what runs in it.

Why not a library: the ones there are patch a loop that still polls sockets and runs threads; here neither may happen unseen.
"""

import asyncio
from asyncio import base_events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
RESOLUTION_S = 1e-6
"""Timers that are less than this apart are due together: at a month of virtual time a float still tells microseconds apart."""
BOOTED_S = 1_000.0
"""What boot clocks say at the start: a boot time of 0 would mean that nothing was ever heard."""
ORIGIN_AT = 1_767_225_600.0
"""The instant at which virtual time starts unless told otherwise: midnight, 1 January 2026, UTC."""


class Stalled(RuntimeError):
    """Nothing is ready, no timer is set, and what was waited for has not happened: it never will."""


class _Pass:
    """Stands where asyncio asks the operating system: lets the time pass instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Nothing ever comes from outside. `timeout` None: asyncio would wait for ever."""
        if timeout is None:
            raise Stalled("everything waits for something that nobody will do")
        if timeout > 0:
            self._loop.pass_time()
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """Asyncio on virtual time. What is given to a thread or an executor runs at once, in its place."""

    def __init__(self) -> None:
        super().__init__()
        self._time_s = 0.0
        self._clock_resolution = RESOLUTION_S
        self._selector = _Pass(self)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._time_s

    def pass_time(self) -> None:
        """Nobody has anything to do: it becomes the time of the next timer."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self._time_s = max(self._time_s, scheduled[0].when())

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Threads would finish in an order of their own: the work is done here, before anything else runs."""
        del executor
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits for the result gets it
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody has caught ends the run: in a simulation it must not be a line in a log."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            raise error
        super().call_exception_handler(context)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody else could be waiting for us."""


class LoopClock:
    """Both times of `federator.kernel.clock.Clock`, by a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, origin_at: float = ORIGIN_AT) -> None:
        self._time = loop.time
        self.origin_at = origin_at

    def now(self) -> float:
        """Wall time."""
        return self.origin_at + self._time()

    def boot(self) -> float:
        """Boot time."""
        return BOOTED_S + self._time()

    def real_delay_s(self, delay_s: float) -> float:
        """Sleepers sleep on the same loop."""
        return max(0.0, delay_s)


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run what `main` makes on a fresh loop to its end; what it leaves behind is cancelled. Raises `Stalled` when it can never end."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()

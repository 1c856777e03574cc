"""An event loop whose time passes only while nobody has anything to do, and the clock that goes with it.

It is asyncio's own loop, with two things taken away: the operating system (there are no sockets and no threads, so nothing from outside can come
in between) and waiting (where the real loop would sleep until the next timer, this one sets its time to it). What is ready runs in the order in
which it became so, and timers in the order of their times, so a run depends on nothing but what runs in it.

Why not a library: the ones there are patch a loop that still polls sockets and runs threads; here neither may happen unseen.
"""

# ruff: noqa: SLF001 - it stands in for a method of asyncio's own loop

import asyncio
import heapq
from asyncio import base_events
from collections.abc import Callable, Coroutine
from contextvars import Context
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")
MANY_TIMERS = 100
"""Of more than so many, those that are cancelled are thrown out as soon as they are the most."""
BOOTED_S = 1_000.0
"""What boot clocks say at the start: a boot time of 0 would mean that nothing was ever heard."""
ORIGIN_AT = 1_767_225_600.0
"""The instant at which virtual time starts unless told otherwise: midnight, 1 January 2026, UTC."""


class Stalled(RuntimeError):
    """Nothing is ready, no timer is set, and what was waited for has not happened: it never will."""


class VirtualLoop(base_events.BaseEventLoop):
    """Asyncio on virtual time. What is given to a thread or an executor runs at once, in its place.

    Timers of one time are due in the order in which they were set, whatever others there are: asyncio leaves that to its heap. So its heap has
    numbers beside the times here, in tuples, which are compared much faster than asyncio's handles.
    """

    def __init__(self) -> None:
        super().__init__()
        self._time_s = 0.0
        self._numbers = count()

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._time_s

    def pass_time(self) -> None:
        """Nobody has anything to do: it becomes the time of the next timer."""
        due_s: float = self._scheduled[0][0]  # type: ignore[attr-defined]
        self._time_s = max(self._time_s, due_s)

    def call_at(  # type: ignore[override] # its stubs know the types of arguments, which nobody here reads
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's own, but that it numbers its timers."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, next(self._numbers), timer))  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _run_once(self) -> None:
        """One pass, as asyncio's own makes it, without what only the real world asks for: it is half of what the loop costs."""
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if len(scheduled) > MANY_TIMERS and 2 * self._timer_cancelled_count > len(scheduled):  # type: ignore[has-type]
            for _, _, timer in scheduled:
                timer._scheduled = not timer._cancelled
            scheduled[:] = [each for each in scheduled if not each[2]._cancelled]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        self._drop_cancelled(scheduled)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stalled("everything waits for something that nobody will do")
            self.pass_time()
        while scheduled and scheduled[0][0] <= self._time_s:
            _, _, timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self, scheduled: list[Any]) -> None:
        while scheduled and scheduled[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)[2]._scheduled = False

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

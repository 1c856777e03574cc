"""Trying again: the one policy for whatever failed and may succeed later. tenacity runs the attempts.

Pauses double up to a limit, and a part of each is random, so that many who failed at once do not return at once. Sleeping is asyncio's and the
time is the event loop's, so a simulation on virtual time waits in virtual time; a program without an event loop gives its own. A loop that keeps
state of its own between attempts takes its pauses from `Backoff` and counts its failures itself.
"""

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from federator.kernel.errors import NotLeading, Transient

T = TypeVar("T")
Kinds = type[Exception] | tuple[type[Exception], ...]
ASKED_SPREAD = 0.5
"""Where the other side asks for a pause it asks many: each adds up to this share of it."""
MOST_DOUBLINGS = 60
log = logging.getLogger(__name__)


class Backoff(NamedTuple):
    """Pauses between attempts, in seconds: they double from the first to the longest."""

    first_s: float
    longest_s: float
    spread: float = 0.5
    """The share of each pause that is random: 0 is none of it, and 1 is any pause from zero on."""

    def pause_s(
        self, failures: int, *, asked_s: float = 0.0, draw: Callable[[float, float], float] = random.uniform
    ) -> float:
        """The pause after so many failures in a row, on top of the `asked_s` of the other side. `draw` answers a random number between two."""
        bound_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, MOST_DOUBLINGS))
        return asked_s * draw(1.0, 1.0 + ASKED_SPREAD) + bound_s * draw(1.0 - self.spread, 1.0)


SUPERVISION = Backoff(0.2, 10.0, spread=0.0)


def _nothing(error: BaseException) -> float:  # noqa: ARG001 - what fits in its place looks at it
    return 0.0


class Sleeper(NamedTuple):
    """How a program waits: what a pause is, and what time it is in seconds."""

    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]


async def _block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - the thread has no event loop that it could keep


BLOCKING = Sleeper(_block, time.monotonic)
"""Of a thread without an event loop."""


def _of_the_loop() -> Sleeper:
    import asyncio  # noqa: PLC0415 - a command without an event loop starts faster without it

    return Sleeper(asyncio.sleep, asyncio.get_running_loop().time)


async def retried(  # noqa: PLR0913 - each is another answer to when to try again
    work: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    on: Kinds,
    patience_s: float = math.inf,
    attempts: float = math.inf,
    asked_s: Callable[[BaseException], float] = _nothing,
    failed: Callable[[BaseException], object] = _nothing,
    waiting: Sleeper | None = None,
) -> T:
    """What `work` answers; it is called again after a pause when it raises one of `on`.

    Raises its last error once `attempts` are made, or the next pause would end more than `patience_s` after the beginning; any other error
    at once. `asked_s` is the shortest pause that an error asks for, and `failed` is told each error that is followed by a pause.
    `waiting` is that of a program without an event loop.
    """
    sleep, clock = waiting or _of_the_loop()
    until_s = clock() + patience_s

    def pause_s(state: RetryCallState) -> float:
        return backoff.pause_s(state.attempt_number, asked_s=asked_s(_error(state)))

    def is_over(state: RetryCallState) -> bool:
        return state.attempt_number >= attempts or clock() + state.upcoming_sleep > until_s

    def tell(state: RetryCallState) -> None:
        failed(_error(state))

    repeated = AsyncRetrying(
        sleep=sleep,
        wait=pause_s,
        stop=is_over,
        retry=retry_if_exception_type(on),
        before_sleep=tell,
        reraise=True,
    )

    async def attempt() -> T:
        # tenacity would not wait for what a plain function returns.
        return await work()

    answer: T = await repeated(attempt)
    return answer


def retried_in_thread(work: Callable[[], T], backoff: Backoff, *, on: Kinds, patience_s: float) -> T:
    """As `retried`, for work of a thread without an event loop; its pauses block."""

    async def attempt() -> T:
        return work()

    verb = retried(attempt, backoff, on=on, patience_s=patience_s, waiting=BLOCKING)
    try:
        verb.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("nothing here waits for an event loop")


def _error(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome is not None else None
    assert error is not None, "only a failure is followed by a pause"
    return error


async def supervise(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run `loop` until it returns or is cancelled; when it fails, log that and start it again.

    A loop that ran longer than the longest pause starts again after the first one. `NotLeading` ends it for good: the dispatcher
    that leads now has a loop of its own.
    """
    sleep, clock = _of_the_loop()
    failures = 0
    while True:
        started_s = clock()
        try:
            return await loop()
        except NotLeading as error:
            return log.warning("%s stops: %s", name, error)
        except Exception as error:
            failures = 1 if clock() - started_s > SUPERVISION.longest_s else failures + 1
            pause_s = SUPERVISION.pause_s(failures)
            if isinstance(error, Transient):
                # Foreseen, such as a full disk: it needs no trace, and is over when it is over.
                log.warning("%s waits: %s; again in %.1f s", name, error, pause_s)
            else:
                log.exception("%s failed; again in %.1f s", name, pause_s)
        await sleep(pause_s)

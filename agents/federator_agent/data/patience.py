"""Trying again what may yet succeed, for as long as a job can be asked to wait for it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from federator.kernel.errors import Transient
from federator.retry import Backoff, retried

PATIENCE_S = 600.0
"""So long another side may be in trouble before a transfer is given up: the dispatcher may know a better place by then."""
BACKOFF = Backoff(0.5, 30.0)
T = TypeVar("T")


async def patiently(
    work: Callable[[], Awaitable[T]], note: Callable[[str], None], patience_s: float = PATIENCE_S
) -> T:
    """Repeat while it raises `Transient`, with growing pauses. Raises that error once patience has run out, and all others at once."""

    def failed(error: BaseException) -> None:
        note(f"{error.message if isinstance(error, Transient) else error}; trying again\n")

    return await retried(work, BACKOFF, on=Transient, patience_s=patience_s, failed=failed)

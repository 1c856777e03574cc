"""Trying again what may yet succeed, for as long as a job can be asked to wait for it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from federator.kernel.errors import Transient

PATIENCE_S = 600.0
"""So long another side may be in trouble before a transfer is given up: the dispatcher may know a better place by then."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
T = TypeVar("T")


async def patiently(
    work: Callable[[], Awaitable[T]], note: Callable[[str], None], patience_s: float = PATIENCE_S
) -> T:
    """Repeat while it raises `Transient`, with growing pauses. Raises that error once patience has run out, and all others at once."""
    give_up_at = asyncio.get_running_loop().time() + patience_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await work()
        except Transient as error:
            if asyncio.get_running_loop().time() + pause_s > give_up_at:
                raise
            note(f"{error.message}; trying again\n")
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

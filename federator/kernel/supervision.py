"""Keeping a loop alive: a fault in one pass is logged and the loop starts again, later and later while it keeps failing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from federator.kernel.errors import NotLeading, Transient

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0


async def supervise(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run `loop` until it returns or is cancelled. `NotLeading` ends it for good: whoever leads now has a loop of its own."""
    delay_s = FIRST_DELAY_S
    while True:
        started_s = asyncio.get_running_loop().time()
        try:
            return await loop()
        except NotLeading as error:
            return log.warning("%s stops: %s", name, error)
        except Transient as error:
            # Foreseen, such as a full disk: it needs no trace, and is over when it is over.
            log.warning("%s waits: %s; again in %.1f s", name, error, delay_s)
        except Exception:
            log.exception("%s failed; again in %.1f s", name, delay_s)
        if asyncio.get_running_loop().time() - started_s > LONGEST_DELAY_S:
            delay_s = FIRST_DELAY_S
        await asyncio.sleep(delay_s)
        delay_s = min(LONGEST_DELAY_S, delay_s * 2)

"""Tasks of an event loop."""

import asyncio
from typing import Any


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel them, and return once all have ended. What they raise is dropped: whoever wants it asks before."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

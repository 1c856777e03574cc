"""Waiting for what real processes bring about: poll often, give up late. The bound is for a machine that is slow and shared, not for the code."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
"""How long anything may take before a test gives it up."""
POLL_S = 0.02


async def until(holds: Callable[[], Any], what: str = "it", limit_s: float = PATIENCE_S) -> Any:
    """The first true value of the condition, which may be awaitable. Fails the test after `limit_s` real seconds."""
    give_up_at = time.monotonic() + limit_s
    while True:
        value = holds()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < give_up_at, f"waited {limit_s:.0f} s in vain: {what}"
        await asyncio.sleep(POLL_S)


def wait_until(holds: Callable[[], object], what: str = "it", limit_s: float = PATIENCE_S) -> None:
    """The same for tests without a loop, and without the value."""
    give_up_at = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < give_up_at, f"waited {limit_s:.0f} s in vain: {what}"
        time.sleep(POLL_S)

"""An event loop for tests that are not coroutines themselves, such as state machines."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """Runs coroutines one after another, or some together, on one loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end."""
        return self._loop.run_until_complete(coroutine)

    async def together(self, *coroutines: Coroutine[Any, Any, object]) -> None:
        """All at once."""
        await asyncio.gather(*coroutines)

    def close(self) -> None:
        """End it."""
        self._loop.close()

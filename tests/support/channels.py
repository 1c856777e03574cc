"""Ends of tunnels that say what a test has them say."""

import asyncio


class Told:
    """Says these frames, and then that it is over, or nothing more."""

    def __init__(self, *frames: bytes, goes_on: bool = False) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self._frames = list(frames)
        self._goes_on = goes_on
        self.closed = False

    async def receive(self) -> bytes | None:
        """The next of them."""
        if not self._frames and self._goes_on:
            await asyncio.Event().wait()
        return self._frames.pop(0) if self._frames else None

    async def send(self, frame: bytes) -> None:
        """Noted."""
        self.heard.put_nowait(frame)

    def close(self) -> None:
        """Noted."""
        self.closed = True

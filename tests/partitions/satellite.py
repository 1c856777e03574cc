"""A proxy that is a satellite link: a long way, few bytes a second, and now and then a segment that has to be sent again.

Why not the kernel's own netem: not every kernel has it, and it wants root. What is lost on the way comes late, with all that follows it, as TCP has it.
"""

import asyncio
import random
from collections import Counter

from tests.partitions.proxy import Proxy

SEGMENT_BYTES = 1400
WAITING = 16
"""Segments under way in one direction; whoever sends more waits, as with a full window."""


class Satellite(Proxy):
    """600 ms there and back, 256 kbit/s each way for all connections together, and one segment in a hundred is lost; `speed` times as fast as life."""

    def __init__(self, target_port: int, speed: float, seed: int = 1) -> None:
        super().__init__(target_port)
        self._one_way_s = 0.3 / speed
        self._bytes_s = 32_000 * speed
        self._random = random.Random(seed)
        self._free_s: dict[int, float] = {}
        self.moved = Counter[str]()
        """Bytes that have arrived `up` and `down`."""

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)
        arriving = asyncio.create_task(self._arrive(way, sink, gate))
        try:
            while data := await source.read(SEGMENT_BYTES):
                await way.put((self._arrival_s(len(data), gate), data))
            await way.put((0.0, b""))
            await arriving
        finally:
            arriving.cancel()

    def _arrival_s(self, size: int, gate: asyncio.Event) -> float:
        """When a segment that is sent now is there, by the loop's clock. Each direction has one gate, and sends one after the other."""
        now_s = asyncio.get_running_loop().time()
        self._free_s[id(gate)] = max(now_s, self._free_s.get(id(gate), 0.0)) + size / self._bytes_s
        lost = self._random.random() < 0.01
        return self._free_s[id(gate)] + self._one_way_s * (3 if lost else 1)

    async def _arrive(
        self, way: "asyncio.Queue[tuple[float, bytes]]", sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while True:
            at_s, data = await way.get()
            await asyncio.sleep(max(0.0, at_s - asyncio.get_running_loop().time()))
            await gate.wait()
            if not data:
                sink.close()
                return
            self.moved["up" if gate is self._up else "down"] += len(data)
            sink.write(data)
            await sink.drain()

"""A TCP proxy that can be a bad network. What it holds back is not lost: it arrives late, as after a partition that TCP outlives."""

import asyncio
from contextlib import suppress


class Proxy:
    """Stands between one agent and the dispatcher. `up` is towards the dispatcher."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self.delay_s = 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.open()

    async def start(self) -> str:
        """Listen; returns the address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def open(self) -> None:
        """Let everything through, also what was held back."""
        self._up.set()
        self._down.set()

    def cut(self, *, up: bool = True, down: bool = True) -> None:
        """Hold back everything in these directions, in old connections and in new ones."""
        (self._up.clear if up else self._up.set)()
        (self._down.clear if down else self._down.set)()

    def sever(self) -> None:
        """Break all connections: what was held back in them is lost."""
        for task in tuple(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        self.sever()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _gates(self, writer: asyncio.StreamWriter) -> tuple[asyncio.Event, asyncio.Event]:
        """What a connection of that caller waits for, up and down."""
        return self._up, self._down

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.CancelledError):
            up, down = self._gates(writer)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            try:
                await asyncio.gather(self._pump(reader, far_writer, up), self._pump(far_reader, writer, down))
            finally:
                far_writer.close()
        writer.close()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while data := await source.read(65536):
            await asyncio.sleep(self.delay_s)
            await gate.wait()
            sink.write(data)
            await sink.drain()
        await gate.wait()
        sink.close()

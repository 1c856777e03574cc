"""The agent's ends of tunnels into the jobs here: dials one out when it is told to, has the runtime enter the job, and passes frames both ways.

A frame is read only once the one before it was taken, so nothing piles up here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
from aiohttp import WSMsgType

from federator.kernel.errors import FederatorError, Transient, Unavailable
from federator.kernel.tasks import cancel_and_wait
from federator.model.jobs import JobSpec
from federator.wire import tunnel
from federator.wire.link import Dial
from federator.wire.tunnel import Attach, Exec
from federator_agent.core.state import PlacementRecord
from federator_agent.enrollment import reason
from federator_agent.kept_terminals import KeptTerminals
from federator_agent.runtime import Channel, Runtime, Surroundings

MOST = 256
"""Tunnels at once."""
ENTER_S = 60.0
"""Real seconds that a runtime may take to enter a job, beyond its own patience with what it asks."""
LOOK_S = 1.0
LINGER_S = 5.0
"""Real seconds after a rank's end for which its tunnels may say how they ended."""
log = logging.getLogger("federator_agent.tunnels")


class Tunnels:
    """All that are open. `running`: what a rank that runs here is of."""

    def __init__(
        self,
        around: Surroundings,
        runtime: Runtime,
        running: Callable[[str, int], tuple[PlacementRecord, JobSpec] | None],
        over: Callable[[str, int], bool] = lambda _placement, _rank: False,
    ) -> None:
        """`over`: whether a rank has ended."""
        self._around = around
        self._runtime = runtime
        self._running = running
        self._over = over
        self._kept = KeptTerminals(around.tasks, over)
        self._open = 0

    def open(self, dial: Dial) -> None:
        """Do as told, beside the loop."""
        if self._open >= MOST:
            log.warning("a tunnel into %s is not opened: %d are open", dial.placement, MOST)
            return
        self._open += 1
        self._around.tasks.spawn(self._hold(dial))

    async def _hold(self, dial: Dial) -> None:
        try:
            async with self._around.bulk.tunnel(dial.tunnel) as socket:
                log.info("a tunnel into rank %d of %s is open", dial.rank, dial.placement)
                await self._serve(dial, socket)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("the tunnel into rank %d of %s ended: %s", dial.rank, dial.placement, reason(error))
        finally:
            self._open -= 1

    async def _serve(self, dial: Dial, socket: aiohttp.ClientWebSocketResponse) -> None:
        try:
            await _couple(socket, self._entered(dial), self.until_over(dial))
        except FederatorError as error:
            end = tunnel.End(error=error.describe(), lost=isinstance(error, Transient))
            await socket.send_bytes(tunnel.end_frame(end))
        except (OSError, ValueError) as error:
            said = f"the job cannot be entered: {getattr(error, 'strerror', None) or error}"
            await socket.send_bytes(tunnel.end_frame(tunnel.End(error=said)))

    async def _entered(self, dial: Dial) -> Channel:
        try:
            async with asyncio.timeout(ENTER_S):
                return await self._enter(dial)
        except TimeoutError:
            said = f"the job could not be entered within {ENTER_S:g} s"
            raise Unavailable(said, remedy="try again, or look whether it hangs or is suspended") from None

    async def until_over(self, dial: Dial) -> None:
        """Until some time after the rank's end, for what has not ended with it: a cluster may end it only with the whole job."""
        while not self._over(dial.placement, dial.rank):  # noqa: ASYNC110 - the core tells nobody
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(LINGER_S)

    async def _enter(self, dial: Dial) -> Channel:
        found = self._running(dial.placement, dial.rank)
        if found is None:
            raise OSError(f"rank {dial.rank} does not run here any more")
        record, spec = found
        key = dial.placement, dial.rank
        if isinstance(dial.request, Attach):
            return await self._kept.attach(key, dial.request.size)
        channel = await self._runtime.enter(record, spec, dial.rank, dial.request)
        if isinstance(dial.request, Exec) and dial.request.keep and dial.request.tty:
            return self._kept.keep(key, channel)
        return channel


async def _couple(
    socket: aiohttp.ClientWebSocketResponse,
    entered: Coroutine[Any, Any, Channel],
    over: Coroutine[Any, Any, None],
) -> None:
    """Enter the job, and pass frames until its side has ended, or the other has gone, or it is over. Raises what keeps it from being entered."""
    entering = asyncio.ensure_future(entered)
    each_way = (_outwards(entering, socket), _inwards(socket, entering), _until_gone(socket), over)
    tasks = [asyncio.ensure_future(each) for each in each_way]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(entering, *tasks)
        if not entering.cancelled() and entering.exception() is None:
            entering.result().close()
    if not entering.cancelled():
        entering.result()


async def _until_gone(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Until nothing can be written to it any more: while a command neither reads nor writes, nobody else uses it. A pong asks for no answer."""
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.sleep(tunnel.PING_S)
            await socket.pong()


async def _outwards(entering: asyncio.Future[Channel], socket: aiohttp.ClientWebSocketResponse) -> None:
    channel = await entering
    with contextlib.suppress(ConnectionError):
        while (frame := await channel.receive()) is not None:
            await socket.send_bytes(frame)


async def _inwards(socket: aiohttp.ClientWebSocketResponse, entering: asyncio.Future[Channel]) -> None:
    with contextlib.suppress(TimeoutError):
        while (message := await socket.receive()).type is WSMsgType.BINARY:
            frame: bytes = message.data
            if frame:
                await (await entering).send(frame)

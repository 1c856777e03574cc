"""All that can be asked of a federation, over any transport."""

from federator.client.jobs import JobVerbs
from federator.client.platform import PlatformVerbs
from federator.client.progress import Tell
from federator.client.series import SeriesVerbs
from federator.client.services import ServiceVerbs
from federator.client.transport import Transport


class Verbs(JobVerbs, SeriesVerbs, ServiceVerbs, PlatformVerbs):
    """Every verb once, as an `async` function; the transport decides whether it suspends."""

    def __init__(self, transport: Transport, *, progress: Tell | None = None) -> None:
        self.transport = transport
        self.progress = progress

    def now(self) -> float:
        """The dispatcher's time by its last answer, seconds since the epoch."""
        return self.transport.now()

    async def close(self) -> None:
        """Let go of all connections."""
        await self.transport.close()

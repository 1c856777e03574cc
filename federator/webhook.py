"""Alerts by HTTP: each as one JSON object, with its sentence under `text`, as chat systems take it.

The address often holds a secret, so no log line and no error says more of it than its host.
"""

from urllib.parse import urlsplit

import aiohttp
import msgspec

from federator.kernel.errors import Unavailable
from federator.model.events import Alert
from federator.retry import Backoff, retried
from federator.settings import AlertSettings

TIMEOUT_S = 10.0
BACKOFF = Backoff(0.5, 60.0)
REFUSED = 400
SERVER_FAULT = 500
TOO_MANY = 429


class _Busy(Unavailable):
    """It may take the alert later."""


class Webhook:
    """Posts to one address; see `federator.ports.Courier`."""

    def __init__(self, settings: AlertSettings, federation: str) -> None:
        self._url = settings.webhook
        self._attempts = max(1, settings.attempts)
        self._federation = federation
        self.host = urlsplit(settings.webhook).hostname or "?"

    async def deliver(self, alert: Alert) -> None:
        """Post it; again after a while where nobody answers or the server is at fault. Raises `Unavailable` when all attempts failed."""
        body = msgspec.json.encode({"federation": self._federation} | msgspec.to_builtins(alert))
        await retried(lambda: self._post(body), BACKOFF, on=_Busy, attempts=self._attempts)

    async def _post(self, body: bytes) -> None:
        """Raises `Unavailable`, and `_Busy` where a repetition may help. What the server says is left out: it may name the address."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._untaken(type(error).__name__, _Busy) from None
        if status >= SERVER_FAULT or status == TOO_MANY:
            raise self._untaken(f"status {status}", _Busy)
        if status >= REFUSED:
            raise self._untaken(f"refused with {status}", Unavailable)

    def _untaken(self, why: str, kind: type[Unavailable]) -> Unavailable:
        return kind(f"the webhook at {self.host} did not take it: {why}")

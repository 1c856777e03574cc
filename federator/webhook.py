"""Alerts by HTTP: each as one JSON object, with its sentence under `text`, as chat systems take it.

The address often holds a secret, so no log line and no error says more of it than its host.
"""

import asyncio
from urllib.parse import urlsplit

import aiohttp
import msgspec

from federator.kernel.errors import Unavailable
from federator.model.events import Alert
from federator.settings import AlertSettings

TIMEOUT_S = 10.0
FIRST_DELAY_S = 0.5
REFUSED = 400
SERVER_FAULT = 500
TOO_MANY = 429


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
        why = ""
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(FIRST_DELAY_S * 2 ** (attempt - 1))
            why = await self._post(body)
            if not why:
                return
            if why.startswith("refused"):
                break
        raise Unavailable(f"the webhook at {self.host} did not take it: {why}")

    async def _post(self, body: bytes) -> str:
        """Why it was not taken; empty when it was. What the server says is not repeated: it may name the address."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status < REFUSED:
                    return ""
                again = answer.status >= SERVER_FAULT or answer.status == TOO_MANY
                return f"{'status' if again else 'refused with'} {answer.status}"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return type(error).__name__

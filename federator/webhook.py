"""Alerts by HTTP: each as one JSON object with its sentence under `text`, or as chat systems take it: Slack's incoming webhooks, workflows of Teams.

The address often holds a secret, so no log line and no error says more of it than its host.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from federator.kernel.errors import Unavailable
from federator.model.events import Alert
from federator.retry import Backoff, retried
from federator.settings import MessageFormat

TIMEOUT_S = 10.0
BACKOFF = Backoff(0.5, 60.0)
REFUSED = 400
SERVER_FAULT = 500
TOO_MANY = 429
SLACK_LETTERS = 3000
"""Most that a section takes."""


class _Busy(Unavailable):
    """It may take the alert later."""


class Webhook:
    """Posts to one address; see `federator.ports.Courier`."""

    def __init__(
        self,
        url: str,
        federation: str,
        *,
        attempts: int,
        format: MessageFormat = "json",  # noqa: A002 - the setting's name
    ) -> None:
        self._url = url
        self._attempts = max(1, attempts)
        self._federation = federation
        self._format = format
        self.host = urlsplit(url).hostname or "?"

    async def deliver(self, alert: Alert) -> None:
        """Post it; again after a while where nobody answers or the server is at fault. Raises `Unavailable` when all attempts failed."""
        body = msgspec.json.encode(_BODIES[self._format](alert, self._federation))
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


def _plain(alert: Alert, federation: str) -> dict[str, Any]:
    return {"federation": federation, **msgspec.to_builtins(alert)}


def _slack(alert: Alert, federation: str) -> dict[str, Any]:
    """`text` is for notifications, and where blocks are not shown. Letters that mean something there are escaped, or a job's name could call everybody."""
    text = alert.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:SLACK_LETTERS]
    about = {"type": "plain_text", "text": f"{federation}: {alert.kind}"}
    blocks = [
        {"type": "section", "text": {"type": "plain_text", "text": alert.text[:SLACK_LETTERS]}},
        {"type": "context", "elements": [about]},
    ]
    return {"text": text, "blocks": blocks}


def _teams(alert: Alert, federation: str) -> dict[str, Any]:
    lines = [{"type": "TextBlock", "text": _unmarked(line), "wrap": True} for line in alert.text.splitlines()]
    about = {
        "type": "TextBlock",
        "text": _unmarked(f"{federation}: {alert.kind}"),
        "isSubtle": True,
        "size": "Small",
    }
    card = {"type": "AdaptiveCard", "version": "1.4", "body": [*lines, about]}
    card["$schema"] = "http://adaptivecards.io/schemas/adaptive-card.json"
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _unmarked(text: str) -> str:
    """Without what a card would take for markup."""
    return _MARKUP.sub(r"\\\g<0>", text)


_MARKUP = re.compile(r"[\\*_\[\]()`#~]")
_BODIES: dict[MessageFormat, Callable[[Alert, str], dict[str, Any]]] = {
    "json": _plain,
    "slack": _slack,
    "teams": _teams,
}

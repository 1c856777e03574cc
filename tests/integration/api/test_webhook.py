"""The webhook: alerts arrive as JSON, failures are repeated and bounded, and no secret is told."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import web

from federator import webhook
from federator.kernel.errors import Unavailable
from federator.model.events import Alert, AlertKind
from federator.retry import Backoff
from federator.webhook import Webhook

ALERT = Alert(kind=AlertKind.BUDGET, text="half is spent", at=1.0, policy="Budget/b")
SECRET = "services/T0000/very-secret"


class Listener:
    """An HTTP server that answers as it is told, and keeps what it is sent."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[dict[str, object]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    monkeypatch.setattr(webhook, "BACKOFF", Backoff(0.001, 0.001))
    there = Listener()
    app = web.Application()
    app.router.add_post("/{tail:.*}", there.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    there.url = f"{site.name}/{SECRET}".replace(
        "http://127.0.0.1:0", f"http://127.0.0.1:{runner.addresses[0][1]}"
    )
    yield there
    await runner.cleanup()


def posting_to(url: str, attempts: int = 3) -> Webhook:
    return Webhook(url, "lab", attempts=attempts)


async def test_an_alert_arrives_as_json(listener: Listener) -> None:
    await posting_to(listener.url).deliver(ALERT)
    (body,) = listener.bodies
    assert body == {
        "federation": "lab", "kind": "budget", "text": "half is spent", "at": 1.0, "policy": "Budget/b",
    }  # fmt: skip


async def test_a_fault_of_the_server_is_tried_again(listener: Listener) -> None:
    listener.statuses = [503, 429]
    await posting_to(listener.url).deliver(ALERT)
    assert len(listener.bodies) == 3


async def test_attempts_are_bounded_and_the_address_is_not_told(listener: Listener) -> None:
    listener.statuses = [500] * 9
    with pytest.raises(Unavailable) as failed:
        await posting_to(listener.url).deliver(ALERT)
    assert len(listener.bodies) == 3
    assert SECRET not in str(failed.value)
    assert "127.0.0.1" in str(failed.value)


async def test_what_is_refused_is_not_repeated(listener: Listener) -> None:
    listener.statuses = [404]
    with pytest.raises(Unavailable, match="refused with 404"):
        await posting_to(listener.url).deliver(ALERT)
    assert len(listener.bodies) == 1


async def test_nobody_there_ends_in_an_error_without_the_address() -> None:
    with pytest.raises(Unavailable) as failed:
        await posting_to(f"http://127.0.0.1:1/{SECRET}", attempts=1).deliver(ALERT)
    assert SECRET not in str(failed.value)


RUDE = Alert(kind=AlertKind.JOB, text="<!channel> *x* is FAILED & gone\n- [see](http://evil)", at=1.0)


async def test_slack_is_told_in_its_own_words(listener: Listener) -> None:
    await Webhook(listener.url, "lab", attempts=1, format="slack").deliver(RUDE)
    (body,) = listener.bodies
    assert body["text"] == "&lt;!channel&gt; *x* is FAILED &amp; gone\n- [see](http://evil)"
    section, context = cast("list[dict[str, Any]]", body["blocks"])
    assert section["text"] == {"type": "plain_text", "text": RUDE.text}, "as plain text it calls nobody"
    assert context["elements"][0]["text"] == "lab: job"


async def test_teams_is_shown_a_card(listener: Listener) -> None:
    await Webhook(listener.url, "lab", attempts=1, format="teams").deliver(RUDE)
    (body,) = listener.bodies
    (attachment,) = cast("list[dict[str, Any]]", body["attachments"])
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    lines = [block["text"] for block in attachment["content"]["body"]]
    assert lines == ["<!channel> \\*x\\* is FAILED & gone", "- \\[see\\]\\(http://evil\\)", "lab: job"]

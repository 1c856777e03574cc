"""`federator notifications`: shown, said and taken back."""

import json

from federator.wire.administration import MyAddress, MyNotifications
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.conftest import Command


def test_an_address_is_said_shown_and_taken_back(federator: Command, fake: FakeDispatcher) -> None:
    own = MyAddress("ada@example.org", "https://hooks.slack.com/…", "slack")
    found = MyNotifications(reachable=True, own=own, mail_domains=("example.org",))
    fake.answer("GET /v1/notifications", MyNotifications(reachable=False))
    fake.answer("PUT /v1/notifications", found)
    assert "nowhere: name an address" in federator("notifications").out
    words = ("--mail", "ada@example.org", "--webhook", "https://hooks.slack.com/x", "--format", "slack")
    ran = federator("notifications", *words)
    assert "https://hooks.slack.com/… (slack)" in ran.out
    assert "--mail at example.org" in ran.out
    federator("notifications", "--clear")
    said = [json.loads(heard.body) for heard in fake.of("PUT /v1/notifications")]
    assert said == [
        {"mail": "ada@example.org", "webhook": "https://hooks.slack.com/x", "format": "slack"},
        {"mail": "", "webhook": "", "format": "json"},
    ]
    assert federator("notifications", "--clear", "--mail", "a@b.c").code == 2

"""Where people say to be told of their jobs: within what the settings allow, audited, and theirs alone."""

import pytest

from federator.couriers import courier_to
from federator.kernel.clock import ManualClock
from federator.kernel.errors import FederatorError, Forbidden, Invalid
from federator.mail import Mail
from federator.model.identity import Caller, Role
from federator.settings import NotificationSettings, PersonSettings, Settings, SmtpSettings
from federator.store.memory import MemoryStore
from federator.webhook import Webhook
from federator.wire.administration import MyAddress
from tests.support.dispatch import ADA, BOB, World, make_world

SETTINGS = NotificationSettings(
    smtp=SmtpSettings("localhost", "federator@example.org"),
    people={"ada": PersonSettings(webhook="https://hooks.example.org/of-the-settings")},
    own_mail_domains=("example.org", "lab.example.org"),
    own_webhook_hosts=("hooks.slack.com",),
)
HOOK = "https://hooks.slack.com/services/T0/secret"


@pytest.fixture
async def world() -> World:
    return await make_world(notifications=SETTINGS, reach=lambda _person, own: None if own is None else Box())


class Box:
    """A courier that takes nothing anywhere."""

    async def deliver(self, alert: object) -> None:
        """Take it."""


async def test_what_somebody_says_counts_for_them_alone_and_over_a_restart() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    world = await make_world(store, clock, notifications=SETTINGS)
    said = MyAddress("ada@lab.example.org", HOOK, "slack")
    await world.core.notifications.addresses.put(ADA, said)
    again = await make_world(store, clock, notifications=SETTINGS)
    own = again.core.notifications.addresses.of("ada")
    assert own is not None
    assert (own.mail, own.webhook, own.format) == ("ada@lab.example.org", HOOK, "slack")
    assert again.core.notifications.addresses.of("bob") is None
    lines = [line.what for line in await again.core.views.ledger()]
    assert "is told of jobs by mail to ada@lab.example.org and a webhook at hooks.slack.com" in lines
    assert not any("secret" in line for line in lines), "a webhook is a secret"
    await again.core.notifications.addresses.put(ADA, MyAddress())
    assert again.core.notifications.addresses.of("ada") is None


async def test_what_is_said_again_writes_nothing(world: World) -> None:
    addresses, said = world.core.notifications.addresses, MyAddress("ada@example.org", HOOK, "slack")
    await addresses.put(ADA, said)
    first, lines = world.core.records.addresses["ada"], len(await world.core.views.ledger())
    world.clock.advance(60.0)
    for _ in range(3):
        await addresses.put(ADA, said)
    assert world.core.records.addresses["ada"] is first
    assert len(await world.core.views.ledger()) == lines
    await addresses.put(ADA, MyAddress("ada@example.org", HOOK, "teams"))
    assert len(await world.core.views.ledger()) == lines + 1


async def test_mail_goes_to_ones_own_address_alone(world: World) -> None:
    """Else anybody could have the dispatcher write to everybody there."""
    addresses = world.core.notifications.addresses
    signed_in = Caller("u1234", Role.USER, mail="Eve.Example@example.org")
    named_by_mail = Caller("eve@example.org", Role.USER)
    for caller, mail in (
        (ADA, "Ada@example.org"),
        (signed_in, "eve.example@example.org"),
        (named_by_mail, "eve@example.org"),
    ):
        await addresses.put(caller, MyAddress(mail))
    for caller, mail in (
        (ADA, "ceo@example.org"),
        (signed_in, "ceo@example.org"),
        (named_by_mail, "eve@lab.example.org"),
    ):
        with pytest.raises(Forbidden, match="is not the address of") as refused:
            await addresses.put(caller, MyAddress(mail))
        assert refused.value.field == "$.mail"


async def test_notify_is_taken_from_who_has_said_where(world: World) -> None:
    with pytest.raises(Invalid, match="no address for bob"):
        await world.submit(BOB, notify=["end"])
    await world.core.notifications.addresses.put(BOB, MyAddress(webhook=HOOK))
    await world.submit(BOB, notify=["end"])


@pytest.mark.parametrize(
    ("said", "kind", "field"),
    [
        (MyAddress("ada@elsewhere.org"), Forbidden, "$.mail"),
        (MyAddress("ada@sub.example.org"), Forbidden, "$.mail"),
        (MyAddress("ada@example.org\r\nBcc: x@y.z"), Invalid, "$.mail"),
        (MyAddress("two@example.org,three@example.org"), Invalid, "$.mail"),
        (MyAddress(webhook="http://hooks.slack.com/x"), Invalid, "$.webhook"),
        (MyAddress(webhook="https://hooks.slack.com:8443/x"), Invalid, "$.webhook"),
        (MyAddress(webhook="https://hooks.slack.com@10.0.0.1/x"), Invalid, "$.webhook"),
        (MyAddress(webhook="https://127.0.0.1/x"), Forbidden, "$.webhook"),
        (MyAddress(webhook="https://hooks.slack.com.evil.org/x"), Forbidden, "$.webhook"),
        (MyAddress(webhook="https://[::1/x"), Invalid, "$.webhook"),
    ],
)
async def test_what_is_not_allowed_is_refused(
    world: World, said: MyAddress, kind: type[FederatorError], field: str
) -> None:
    with pytest.raises(kind) as refused:
        await world.core.notifications.addresses.put(ADA, said)
    assert refused.value.field == field
    assert not world.core.records.addresses


async def test_what_settings_allow_no_more_counts_no_more() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    world = await make_world(store, clock, notifications=SETTINGS)
    await world.core.notifications.addresses.put(ADA, MyAddress(webhook=HOOK))
    closed = await make_world(store, clock, notifications=NotificationSettings())
    assert closed.core.notifications.addresses.of("ada") is None


async def test_ones_own_word_goes_before_the_settings(world: World) -> None:
    settings = Settings(notifications=SETTINGS)
    assert isinstance(courier_to(settings, "ada", None), Webhook)
    await world.core.notifications.addresses.put(ADA, MyAddress("ada@example.org"))
    assert isinstance(courier_to(settings, "ada", world.core.notifications.addresses.of("ada")), Mail)

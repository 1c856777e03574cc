"""Who takes messages to whom, by the settings."""

import re
from collections.abc import Sequence

from federator.kernel.errors import Unavailable
from federator.mail import Mail
from federator.model.events import Alert
from federator.model.identity import OwnAddress
from federator.ports import Courier
from federator.settings import PersonSettings, Settings
from federator.webhook import Webhook

_LOCAL_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class Several:
    """Takes each message several ways; see `federator.ports.Courier`."""

    def __init__(self, couriers: Sequence[Courier]) -> None:
        self._couriers = couriers

    async def deliver(self, alert: Alert) -> None:
        """All of them. Raises the first failure once each has been tried."""
        failed: list[Unavailable] = []
        for courier in self._couriers:
            try:
                await courier.deliver(alert)
            except Unavailable as error:
                failed.append(error)
        if failed:
            raise failed[0]


def courier_of_alerts(settings: Settings) -> Courier | None:
    """For what the platform team hears of; None: nobody does."""
    alerts = settings.alerts
    return _together(settings, PersonSettings(mail=alerts.mail, webhook=alerts.webhook, format=alerts.format))


def courier_to(settings: Settings, person: str, own: OwnAddress | None) -> Courier | None:
    """For somebody's own messages: where they have said, else as the settings say; None: nobody knows where to reach them."""
    given = settings.notifications
    if own is not None:
        return _together(settings, PersonSettings(mail=own.mail, webhook=own.webhook, format=own.format))
    known = given.people.get(person, PersonSettings())
    mail = known.mail or _at_domain(person, given.mail_domain)
    return _together(settings, PersonSettings(mail=mail, webhook=known.webhook, format=known.format))


def _together(settings: Settings, where: PersonSettings) -> Courier | None:
    couriers: list[Courier] = []
    smtp, name = settings.notifications.smtp, settings.federation
    if where.webhook:
        couriers.append(Webhook(where.webhook, name, attempts=settings.alerts.attempts, format=where.format))
    if where.mail and smtp is not None:
        couriers.append(Mail(smtp, where.mail, name))
    return None if not couriers else couriers[0] if len(couriers) == 1 else Several(couriers)


def _at_domain(person: str, domain: str) -> str:
    """Somebody's address there: their name as it is, if it is one there already; else before the sign. Empty: it makes none."""
    if not domain:
        return ""
    local = person.removesuffix(f"@{domain}")
    return f"{local}@{domain}" if _LOCAL_PART.fullmatch(local) else ""

"""Where people say to be told of their jobs: within the domains and hosts that the settings allow, because the dispatcher dials what is written here.

A mail address is also the person's own: nobody can have the dispatcher send mail to somebody else.
"""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from msgspec.structs import replace

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records, row_key
from federator.kernel.errors import Forbidden, Invalid
from federator.model.identity import Caller, OwnAddress
from federator.settings import NotificationSettings
from federator.wire.administration import MyAddress

_MAIL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._+-]{0,63})@([a-z0-9.-]{1,253})")


class OwnAddresses:
    """People's own words of where they are reached."""

    def __init__(self, records: Records, event_writer: EventWriter, settings: NotificationSettings) -> None:
        self._records, self._event_writer, self._settings = records, event_writer, settings

    def of(self, person: str) -> OwnAddress | None:
        """What somebody has said, as far as it is still allowed; None: nothing."""
        found = self._records.addresses.get(person)
        return found if found is not None and _refusal(found, self._settings) is None else None

    async def put(self, caller: Caller, asked: MyAddress) -> None:
        """Take it down in place of what was said before; nothing at all takes it away, and the same again changes nothing. Raises `Invalid` and `Forbidden`."""
        said = OwnAddress(
            name=caller.name,
            mail=asked.mail,
            webhook=asked.webhook,
            format=asked.format,
            at=self._event_writer.clock.now(),
        )
        error = _refusal(said, self._settings)
        if error is None and said.mail and not _is_own(said.mail, caller):
            error = Forbidden(
                f"{said.mail} is not the address of {caller.name}",
                field="$.mail",
                remedy="name your own address, or ask a user with the role platform to write this one into notifications.people",
            )
        if error is not None:
            raise error
        await self._records.transact(self._written(caller, said))

    def _written(self, caller: Caller, said: OwnAddress) -> Callable[[], Changes]:
        def compute() -> Changes:
            changes = Changes(quiet=True)
            found = self._records.addresses.get(caller.name)
            if (said.mail or said.webhook) and (found is None or replace(found, at=said.at) != said):
                changes.put(said)
            elif found is not None and not (said.mail or said.webhook):
                changes.deletes.append(row_key(said))
            if changes:
                mail = said.mail and f"mail to {said.mail}"
                webhook = said.webhook and f"a webhook at {urlsplit(said.webhook).hostname}"
                ways = " and ".join(filter(None, (mail, webhook)))
                what = f"is told of jobs by {ways}" if ways else "is told of jobs as the settings say"
                self._event_writer.act(changes, f"user:{caller.name}", what, owner=caller.name)
            return changes

        return compute


def _is_own(mail: str, caller: Caller) -> bool:
    """Whether it is that of the sign-in, or has the person's name before the sign; a name that is an address is the whole of it."""
    name = caller.name.lower()
    local = mail.lower().partition("@")[0]
    return mail.lower() in (name, caller.mail.lower()) or local == name


def _refusal(said: OwnAddress, settings: NotificationSettings) -> Invalid | Forbidden | None:
    """Why it is not allowed; None: it is. No message has the webhook in it."""
    if said.mail:
        match = _MAIL.fullmatch(said.mail)
        if match is None:
            return Invalid(
                "is not a mail address", field="$.mail", remedy="write for example ada@example.org"
            )
        if settings.smtp is None:
            return Forbidden("this dispatcher sends no mail", field="$.mail", remedy="name a webhook")
        if match[2] not in settings.own_mail_domains:
            return Forbidden(
                f"{match[2]} is not among the domains of people's own addresses",
                field="$.mail",
                remedy=_allowed(settings.own_mail_domains, "notifications.own_mail_domains"),
            )
    if said.webhook:
        try:
            parts = urlsplit(said.webhook)
            plain = parts.scheme == "https" and parts.port in (None, 443) and "@" not in parts.netloc
        except ValueError:
            return Invalid("is no URL", field="$.webhook", remedy="write https://…")
        if not plain:
            return Invalid(
                "is not an https URL, or has a port or a password",
                field="$.webhook",
                remedy="write https://…",
            )
        if (parts.hostname or "") not in settings.own_webhook_hosts:
            return Forbidden(
                "its host is not among those of people's own webhooks",
                field="$.webhook",
                remedy=_allowed(settings.own_webhook_hosts, "notifications.own_webhook_hosts"),
            )
    return None


def _allowed(names: tuple[str, ...], setting: str) -> str:
    if names:
        return f"these are: {', '.join(names)}"
    return f"ask a user with the role platform, who may allow it by {setting}"

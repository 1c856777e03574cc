"""Alerts by mail, over SMTP.

The standard library's client blocks, so it runs on threads of its own: a server that is slow or dead keeps no other work waiting. One that goes on sending
without end is cut off when the time is over.
"""

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path

from federator.kernel.errors import Unavailable
from federator.model.events import Alert
from federator.retry import Backoff, retried
from federator.settings import SmtpSettings

BACKOFF = Backoff(1.0, 60.0)
ATTEMPTS = 3
LONGEST_SUBJECT = 150
REFUSED = 500
_threads = ThreadPoolExecutor(4, thread_name_prefix="mail")


class _Busy(Unavailable):
    """It may take the mail later."""


class Mail:
    """Sends to one address; see `federator.ports.Courier`."""

    def __init__(self, settings: SmtpSettings, to: str, federation: str) -> None:
        self._settings = settings
        self._to = to
        self._federation = federation

    async def deliver(self, alert: Alert) -> None:
        """Send it; again after a while where nobody answers or the server is at fault. Raises `Unavailable` when all attempts failed."""
        message = self._message(alert)
        await retried(lambda: self._send(message), BACKOFF, on=_Busy, attempts=ATTEMPTS)

    def _message(self, alert: Alert) -> EmailMessage:
        message = EmailMessage()
        first, *_ = alert.text.splitlines() or [""]
        message["Subject"] = f"[{self._federation}] {' '.join(first.split())}"[:LONGEST_SUBJECT]
        message["From"] = self._settings.sender
        message["To"] = self._to
        message["Date"] = formatdate()
        message["Message-ID"] = make_msgid(domain="federator.invalid")
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(alert.text + "\n")
        return message

    async def _send(self, message: EmailMessage) -> None:
        """Raises `Unavailable`, and `_Busy` where a repetition may help. What the server says is left out: it may repeat what it was told."""
        connection = _Connection(self._settings)
        sending = asyncio.get_running_loop().run_in_executor(_threads, connection.send, message)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await asyncio.shield(sending)
        except TimeoutError:
            connection.cut()
            sending.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise self._untaken("no answer in time", _Busy) from None
        except smtplib.SMTPResponseException as error:
            kind = Unavailable if error.smtp_code >= REFUSED else _Busy
            raise self._untaken(f"status {error.smtp_code}", kind) from None
        except smtplib.SMTPRecipientsRefused:
            raise self._untaken("the address was refused", Unavailable) from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise self._untaken(type(error).__name__, _Busy) from None

    def _untaken(self, why: str, kind: type[Unavailable]) -> Unavailable:
        return kind(f"the mail server {self._settings.host} did not take it: {why}")


class _Client(smtplib.SMTP):
    """One that is known before it connects, so that it can be cut off while it is greeted."""

    def __init__(
        self, settings: SmtpSettings, _: ssl.SSLContext | None, begin: Callable[[smtplib.SMTP], None]
    ) -> None:
        begin(self)
        super().__init__(settings.host, settings.port, timeout=settings.timeout_s)


class _SecretClient(smtplib.SMTP_SSL):
    """The same with TLS from the first byte on."""

    def __init__(
        self, settings: SmtpSettings, context: ssl.SSLContext | None, begin: Callable[[smtplib.SMTP], None]
    ) -> None:
        begin(self)
        super().__init__(settings.host, settings.port, timeout=settings.timeout_s, context=context)


class _Connection:
    """One conversation with the server, on a thread."""

    def __init__(self, settings: SmtpSettings) -> None:
        self._settings = settings
        self._client: smtplib.SMTP | None = None
        self._over = False

    def send(self, message: EmailMessage) -> None:
        """Raises `OSError` and `SMTPException`."""
        if self._over:
            return
        settings = self._settings
        context = ssl.create_default_context(cafile=settings.ca or None) if settings.tls != "none" else None
        kind = _SecretClient if settings.tls == "tls" else _Client
        client = kind(settings, context, self._begin)
        try:
            if settings.tls == "starttls":
                client.starttls(context=context)
            if settings.user:
                client.login(settings.user, Path(settings.password_file).read_text(encoding="utf-8").strip())
            client.send_message(message)
        finally:
            client.close()

    def _begin(self, client: smtplib.SMTP) -> None:
        self._client = client

    def cut(self) -> None:
        """End it, wherever it is."""
        self._over = True
        sock = self._client.sock if self._client is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

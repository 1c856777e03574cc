"""The certificate that a dispatcher shows: read at the start, again whenever its files change, and when somebody asks.

Certificates live for weeks, dispatchers for months. A new pair of files is tried before it is used: while only one of the two has been replaced, or when
they are damaged, the former certificate goes on being shown and the log says so. Connections that stand keep theirs.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from time import time

from cryptography import x509

from federator.kernel.errors import Invalid
from federator.settings import TlsSettings
from federator.telemetry import METRICS

LOOK_S = 5.0
"""Real seconds between two looks at the files."""
SOON_S = 14 * 86400.0
SAY_AGAIN_S = 86400.0
log = logging.getLogger(__name__)


class Certificate:
    """What is shown to whoever connects. Raises `Invalid` when it cannot be read at the start."""

    def __init__(self, settings: TlsSettings) -> None:
        self._files = (Path(settings.cert), Path(settings.key))
        self._seen = self._stamps()
        self.present, self._expires_at = self._read()
        self._said_at = 0.0
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        """For the server's socket: for each connection it turns to the newest certificate."""
        self.context.sni_callback = self._choose
        self._note()

    def look(self, *, asked: bool = False) -> None:
        """Take up the files if they have changed, or somebody has `asked`; what cannot be used is not."""
        seen = self._stamps()
        if seen != self._seen or asked:
            self._seen = seen
            try:
                self.present, self._expires_at = self._read()
            except Invalid as error:
                log.warning("the former certificate is kept: %s", error)
            else:
                log.info("the certificate was read again")
        self._note()

    async def watch(self) -> None:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.look)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self.present

    def _read(self) -> tuple[ssl.SSLContext, float]:
        cert, key = self._files
        for file, field in ((cert, "cert"), (key, "key")):
            try:
                file.read_bytes()
            except OSError as error:
                raise Invalid(
                    f"{file}: {error.strerror}",
                    field=f"$.server.tls.{field}",
                    remedy="name a PEM file that the dispatcher's user can read",
                ) from None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            certificate = x509.load_pem_x509_certificate(cert.read_bytes())
            # An encrypted key is answered with no password, rather than by asking a terminal.
            context.load_cert_chain(cert, key, password=lambda: "")
        except (ValueError, OSError) as error:
            raise _unusable(cert, key, error) from None
        return context, certificate.not_valid_after_utc.timestamp()

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(file) for file in self._files)

    def _note(self) -> None:
        """Say when it ends, to those who measure; and once a day to those who read, when that is soon."""
        METRICS.set("federator_certificate_expires_timestamp_seconds", self._expires_at)
        left_s = self._expires_at - time()
        if left_s < SOON_S and time() - self._said_at > SAY_AGAIN_S:
            self._said_at = time()
            what = f"expires in {left_s / 86400:.1f} days" if left_s > 0 else "has expired"
            log.warning(
                "the certificate in %s %s: renew it, it is read again by itself", self._files[0], what
            )


def _unusable(cert: Path, key: Path, error: Exception) -> Invalid:
    reason = getattr(error, "reason", None) or str(error)
    if reason == "KEY_VALUES_MISMATCH":
        what, field = f"{key} is not the key of the certificate in {cert}", "key"
    elif isinstance(error, ssl.SSLError):
        what, field = f"{cert} and {key} cannot be used: {reason}", "key"
    else:
        what, field = f"{cert} is not a PEM certificate: {reason}", "cert"
    remedy = (
        "name the certificate, with what is between it and the authority after it, and its key, not encrypted"
    )
    return Invalid(what, field=f"$.server.tls.{field}", remedy=remedy)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        seen = file.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns

"""The way to a dispatcher: whose certificates are believed, and through which proxy it goes. For agents and clients alike.

Why here: both programs dial, and a person who reads the error of one should know that of the other. Proxies are read from the environment here and not by
the HTTP library, which would also read `.netrc` and replace our own credential by what it finds there. As in other programs, this machine itself is
never reached through a proxy that only the environment names.
"""

import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

from federator.kernel.errors import Invalid, Untrusted

PEM = "-----BEGIN CERTIFICATE-----"
NO_PROXY = "none"
"""Instead of a proxy's URL: none, whatever the environment says."""
_EXPIRED, _NOT_YET = 10, 9
_WRONG_NAME = (62, 64)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


class Options(TypedDict):
    """What aiohttp wants to know for one request."""

    ssl: ssl.SSLContext | bool
    proxy: str | None


class Way:
    """How the dispatcher at a URL is reached. `ca` is a PEM file, or PEM text; empty: the authorities that this machine knows.

    A file is read again when it has changed. `proxy`: a URL for every request, `none`, or empty: as `environ` says. The `_field`s name, in errors, where
    a person has written CA, proxy and the dispatcher's address. Raises `Invalid`.
    """

    def __init__(
        self,
        *,
        ca: str = "",
        proxy: str = "",
        environ: Mapping[str, str] | None = None,
        ca_field: str = "ca",
        proxy_field: str = "proxy",
        server_field: str = "server",
    ) -> None:
        self._ca = ca
        self._ca_field = ca_field
        self._server_field = server_field
        self._context: ssl.SSLContext | None = None
        self._known: ssl.SSLContext | None = None
        self._read_at: tuple[int, int, int] | None = None
        if proxy and proxy != NO_PROXY:
            _check_proxy(proxy, proxy_field)
        self._proxy = proxy
        self._environ = {name.lower(): value for name, value in (environ or {}).items() if value}
        for name in ("http_proxy", "https_proxy"):
            if name in self._environ:
                _check_proxy(self._environ[name], name.upper())
        self._named_authority()

    def options(self, url: str) -> Options:
        """For a request to this URL. Where no TLS is on the way nobody's certificates are read."""
        proxy = self.proxy(url)
        tls = url.startswith("https:") or (proxy or "").startswith("https:")
        return Options(ssl=self.context() if tls else True, proxy=proxy)

    def context(self) -> ssl.SSLContext:
        """Who is believed: the one that was named, or whom this machine believes. Raises `Invalid` when the file cannot be used."""
        if named := self._named_authority():
            return named
        if self._known is None:
            self._known = ssl.create_default_context()
        return self._known

    def _named_authority(self) -> ssl.SSLContext | None:
        if not self._ca or (PEM in self._ca and self._context is not None):
            return self._context
        try:
            stamp = None if PEM in self._ca else _stamp(Path(self._ca))
            if self._context is None or stamp != self._read_at:
                text = self._ca if stamp is None else Path(self._ca).read_text()
                self._context, self._read_at = ssl.create_default_context(cadata=text), stamp
        except OSError as error:
            if self._context is not None and not isinstance(error, ssl.SSLError):
                return self._context  # it is just being replaced
            why = "is not a PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
            raise self._unusable(f"{self._named()}: {why}") from None
        except ValueError:
            raise self._unusable(f"{self._named()}: holds no certificate in PEM") from None
        return self._context

    def proxy(self, url: str) -> str | None:
        """The proxy for this URL, if any."""
        if self._proxy:
            return None if self._proxy == NO_PROXY else self._proxy
        parts = urlsplit(url)
        host = parts.hostname or ""
        if is_loopback(host) or _exempt(host, self._environ.get("no_proxy", "")):
            return None
        return self._environ.get(f"{parts.scheme}_proxy")

    def fault(self, error: BaseException, url: str) -> Untrusted | None:
        """What is wrong, if a request to this URL failed for TLS; None: something else is."""
        found = _ssl_error(error)
        if found is None:
            return None
        host = urlsplit(url).hostname or url
        if not isinstance(found, ssl.SSLCertVerificationError):
            if found.reason in _NOT_TLS:
                remedy = "write http:// if that is meant, or have TLS switched on there: server.tls in its settings"
                return Untrusted(f"{url} answers without TLS", field=self._server_field, remedy=remedy)
            return Untrusted(f"no TLS with {url}: {found.reason or found}", field=self._server_field)
        if found.verify_code == _EXPIRED:
            remedy = "renew server.tls.cert at the dispatcher, which reads it again by itself; or this machine's clock is wrong"
            return Untrusted(f"the certificate of {url} has expired", field=self._server_field, remedy=remedy)
        if found.verify_code == _NOT_YET:
            return Untrusted(
                f"the certificate of {url} is not valid yet", remedy="is this machine's clock right?"
            )
        if found.verify_code in _WRONG_NAME:
            remedy = "dial a name or address that is in it, or have a certificate made that names this one"
            return Untrusted(
                f"the certificate of {url} is not made for {host}", field=self._server_field, remedy=remedy
            )
        return self._unknown_authority(url, found)

    def _unknown_authority(self, url: str, found: ssl.SSLCertVerificationError) -> Untrusted:
        if self._ca:
            what = f"the certificate of {url} is not signed by the authority in {self._named()}"
            remedy = "give the PEM file of the authority that signed the dispatcher's certificate"
        else:
            what = f"the certificate of {url} is not signed by an authority that this machine knows"
            remedy = "with a private authority, name its PEM file here"
        return Untrusted(f"{what}: {found.verify_message}", field=self._ca_field, remedy=remedy)

    def _named(self) -> str:
        return "the given text" if PEM in self._ca else self._ca

    def _unusable(self, what: str) -> Invalid:
        return Invalid(
            what, field=self._ca_field, remedy="name the PEM file of the certificate authority to trust"
        )


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _exempt(host: str, no_proxy: str) -> bool:
    """Whether NO_PROXY names the host: itself, a domain above it, a network that its address is in, or `*`."""
    for word in (each.strip().lower() for each in no_proxy.split(",")):
        name = word.removeprefix("*").lstrip(".")
        if word == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(word, strict=False):
                return True
        except ValueError:
            continue
    return False


def _check_proxy(url: str, field: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # Not the URL itself: it may hold a password.
        raise Invalid(
            f"this is not the URL of an HTTP proxy (its scheme is {parts.scheme or 'missing'!r})",
            field=field,
            remedy="write for example http://proxy.example.org:3128",
        )


def _stamp(path: Path) -> tuple[int, int, int]:
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """The innermost TLS error in an error: HTTP libraries wrap it, also in kinds of TLS error of their own."""
    found: ssl.SSLError | None = None
    while error is not None:
        found = error if isinstance(error, ssl.SSLError) else found
        error = (
            getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error.__cause__
        )
    return found

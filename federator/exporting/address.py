"""The addresses that a ledger can be exported to."""

from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from federator.kernel.errors import Invalid

KINDS = (
    "file:///PATH, syslog:///dev/log, syslog://HOST:PORT (UDP), syslog+tcp://HOST:PORT or s3://BUCKET/PREFIX"
)
UDP_PORT = 514
TCP_PORT = 601


class Address(NamedTuple):
    """One target, as the settings write it and in its parts."""

    text: str
    scheme: str
    host: str
    """Of S3: the bucket."""
    port: int
    path: str


def read_address(text: str, field: str = "") -> Address:
    """What the settings say. Raises `Invalid`."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise _invalid(text, "is not an address", field) from None
    if url.username or url.password or url.query or url.fragment:
        # Neither repeated nor kept: it may be a secret.
        raise _invalid("", "has a user, a query or a fragment, which no target takes", field)
    path = unquote(url.path)
    if fault := _fault(url, path):
        raise _invalid(text, fault, field)
    default = TCP_PORT if url.scheme == "syslog+tcp" else UDP_PORT
    return Address(text, url.scheme, url.hostname or "", default if port is None else port, path)


def _fault(url: SplitResult, path: str) -> str:
    match url.scheme:
        case "file":
            return "" if not url.netloc and path.strip("/") and not path.endswith("/") else "names no file"
        case "syslog":
            if bool(url.hostname) == bool(path.strip("/")):
                return "needs either a host or the path of a socket"
            return ""
        case "syslog+tcp":
            return "" if url.hostname and not path.strip("/") else "needs a host, and no path"
        case "s3":
            return "" if url.hostname and url.netloc == url.hostname else "names no bucket"
        case _:
            return "has a scheme that is not known"


def _invalid(text: str, fault: str, field: str) -> Invalid:
    return Invalid(f"{text!r} {fault}" if text else fault, field=field, remedy=f"write {KINDS}")

"""Where a machine is, as people write it."""

import re
from typing import Any, NamedTuple

from federator.kernel.errors import Invalid
from federator.wire.fields import text

_ADDRESS = re.compile(
    r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?"
)


class Address(NamedTuple):
    """`USER@HOST:PORT`. No part of it begins with a hyphen, so that none is an option of the `ssh` command."""

    host: str
    user: str = ""
    port: int | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}:{self.port}" if self.port else user + host

    @property
    def words(self) -> tuple[str, ...]:
        """As the `ssh` command takes it, after its options."""
        user = ("-l", self.user) if self.user else ()
        port = ("-p", str(self.port)) if self.port else ()
        return (*user, *port, "--", self.host)


def address(value: Any, path: str) -> Address:
    """Read one. Raises `Invalid`."""
    written = text(value, path, limit=400)
    match = _ADDRESS.fullmatch(written)
    port = int(match[3]) if match and match[3] else None
    if match is None or (port is not None and not 1 <= port <= 65535):
        raise Invalid(
            f"{written!r} is not the address of a machine",
            field=path,
            remedy="write HOST, USER@HOST or USER@HOST:PORT",
        )
    return Address(match[2].strip("[]"), match[1] or "", port)

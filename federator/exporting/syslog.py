"""A syslog server: RFC 5424 messages to a Unix socket, by UDP, or by TCP with counted octets (RFC 6587).

`logging.handlers.SysLogHandler` writes the older format, and swallows what fails.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime

from federator.exporting.address import Address
from federator.kernel.errors import Unavailable

PRIORITY = 13 * 8 + 6
"""Facility "log audit", severity "informational"."""
TIMEOUT_S = 10.0
READ_BYTES = 4096


class SyslogTarget:
    """See `federator.ports.LedgerTarget`. One connection for each seal, closed by both sides: so we know that a server by TCP has read all of it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._host = socket.gethostname() or "-"

    async def append(self, name: str, lines: Sequence[bytes]) -> None:
        """One message for each line, with the seal's name as its message id."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        head = f"<{PRIORITY}>1 {now} {self._host} federator {os.getpid()} {name} - ".encode()
        try:
            await asyncio.to_thread(self._send, [head + line for line in lines])
        except OSError as error:
            raise Unavailable(f"{self._address.text}: {error.strerror or error}") from error

    def _send(self, messages: Sequence[bytes]) -> None:
        with self._connected() as link:
            if link.type == socket.SOCK_DGRAM:
                for message in messages:
                    link.send(message)
                return
            link.sendall(b"".join(b"%d %s" % (len(message), message) for message in messages))
            link.shutdown(socket.SHUT_WR)
            while link.recv(READ_BYTES):
                pass

    def _connected(self) -> socket.socket:
        address = self._address
        if address.scheme == "syslog+tcp":
            return socket.create_connection((address.host, address.port), timeout=TIMEOUT_S)
        if not address.host:
            return _connect(socket.AF_UNIX, address.path)
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
        return _connect(found[0], found[4])


def _connect(family: int, where: object) -> socket.socket:
    link = socket.socket(family, socket.SOCK_DGRAM)
    link.settimeout(TIMEOUT_S)
    try:
        link.connect(where)  # type: ignore[arg-type]
    except OSError:
        link.close()
        raise
    return link

"""What a service of `Type=notify` tells systemd, by its protocol of one datagram (sd_notify(3))."""

import os
import socket
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"


def tell(state: str) -> None:
    """Say so; to nobody where no supervisor has asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect("\0" + address[1:] if address.startswith("@") else address)
        link.sendall(state.encode())

"""Ports for servers that have to be told theirs before they start, and that find it again when they are started anew.

They lie below those that the kernel gives to connections and to whoever binds 0: while a server is not listening, nobody gets its port by chance, and
nobody who dials it in vain meets himself, which TCP allows where both ends may have the same number.
"""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST = 15000
_random = random.SystemRandom()
"""Not the one that hypothesis seeds for every example."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now, all different. Drawn by chance, so that two runs of the tests hardly ever draw the same."""
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = _random.randrange(LOWEST, max(highest, LOWEST + 5000))
            try:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:  # somebody's, or drawn before
                continue
            found.append(port)
    return found

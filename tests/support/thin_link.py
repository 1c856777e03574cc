"""A thin link: IP packets between two network namespaces, late, lost by a seed, and so many bytes a second. For Linux, as root.

Why not the kernel's own netem: not every kernel has it. A process holds a TUN device in each namespace and passes on what comes out of one to the other, so
that connections are the kernel's own, with their handshakes, acknowledgements and retransmissions, and each byte of them is counted. The near namespace is
that of the test's main thread and of whatever it starts; the far one has nothing but the link.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import mmap
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.waiting import PATIENCE_S
from tests.testbeds.required import need

NEAR, FAR = "10.77.0.1", "10.77.0.2"
MTU_BYTES = 1400
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_COUNTS = struct.Struct("4Q")
_libc = ctypes.CDLL(None, use_errno=True)


class Satellite(NamedTuple):
    """How the link is; `speed` times as fast as life."""

    speed: float = 1.0
    one_way_s: float = 0.3
    bytes_s: float = 32_000.0
    loss: float = 0.01
    queue_bytes: int = 32_000
    """So much may wait for its turn in one direction; what comes then is dropped, as a modem does."""
    seed: int = 1


class Carried(NamedTuple):
    """Bytes of IP packets: what has arrived from the far side and from the near one, what was lost on the way, and what found the queue full."""

    up: int
    down: int
    lost: int
    dropped: int


class ThinLink:
    """The namespaces and the link between them, while it is entered. Skips the test where they cannot be made."""

    def __init__(self, folder: Path, link: Satellite) -> None:
        able = os.geteuid() == 0 and shutil.which("ip") and Path("/dev/net/tun").exists()
        need("" if able else "network namespaces with a link in between want root, ip and /dev/net/tun")
        self._file = folder / "carried"
        self._link = link
        self._within = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._file.write_bytes(bytes(_COUNTS.size))
        home = self._within.enter_context(Path("/proc/thread-self/ns/net").open("rb"))
        _checked(_libc.unshare(CLONE_NEWNET))
        self._within.callback(_enter, home.fileno())
        _ip("link", "set", "lo", "up")
        words = [sys.executable, "-m", __name__, str(self._file), json.dumps(self._link)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        self._within.callback(self._process.communicate, timeout=PATIENCE_S)
        self._within.callback(self._process.kill)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._within.close()

    @property
    def carried(self) -> Carried:
        """So far."""
        return Carried(*_COUNTS.unpack(self._file.read_bytes()))

    @contextlib.contextmanager
    def far(self) -> Iterator[None]:
        """What is started meanwhile is on the far side."""
        with Path("/proc/thread-self/ns/net").open("rb") as near:
            with Path(f"/proc/{self._process.pid}/ns/net").open("rb") as far:
                _enter(far.fileno())
            try:
                yield
            finally:
                _enter(near.fileno())


def _checked(answer: int) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _enter(namespace: int) -> None:
    _checked(_libc.setns(namespace, CLONE_NEWNET))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=PATIENCE_S)


def _tun(address: str, peer: str) -> int:
    """A device in the present namespace, as a descriptor that gives and takes one packet at a time."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"thin", IFF_TUN | IFF_NO_PI))
    _ip("address", "add", address, "peer", peer, "dev", "thin")
    _ip("link", "set", "thin", "up", "mtu", str(MTU_BYTES))
    return device


def _carry(near: int, far: int, link: Satellite, counts: mmap.mmap) -> None:
    """For ever."""
    chance = random.Random(link.seed)
    under_way: list[tuple[float, int, int, bytes]] = []
    free_s = {near: 0.0, far: 0.0}
    carried, lost, dropped, number = {near: 0, far: 0}, 0, 0, 0
    rate, one_way_s = link.bytes_s * link.speed, link.one_way_s / link.speed
    while True:
        wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for source in select.select([near, far], [], [], wait_s)[0]:
            with contextlib.suppress(BlockingIOError):
                packet = os.read(source, MTU_BYTES + 100)
                now_s, number = time.monotonic(), number + 1
                if (free_s[source] - now_s) * rate > link.queue_bytes:
                    dropped += len(packet)
                    continue
                free_s[source] = max(now_s, free_s[source]) + len(packet) / rate
                if chance.random() < link.loss:
                    lost += len(packet)
                    continue
                sink = far if source == near else near
                heapq.heappush(under_way, (free_s[source] + one_way_s, number, sink, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            *_, sink, packet = heapq.heappop(under_way)
            os.write(sink, packet)
            carried[sink] += len(packet)
        counts[:] = _COUNTS.pack(carried[near], carried[far], lost, dropped)


def main() -> None:
    """Make the far namespace, and carry between it and that of whoever has started this."""
    file, link = sys.argv[1], Satellite(*json.loads(sys.argv[2]))
    near = _tun(NEAR, FAR)
    _checked(_libc.unshare(CLONE_NEWNET))
    _ip("link", "set", "lo", "up")
    far = _tun(FAR, NEAR)
    with Path(file).open("r+b") as counted:
        counts = mmap.mmap(counted.fileno(), _COUNTS.size)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    _carry(near, far, link, counts)


if __name__ == "__main__":
    main()

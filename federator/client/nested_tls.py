"""TLS with a dispatcher inside of TLS with the proxy before it. The sockets of `ssl` cannot be stacked, so this one works over bytes in memory.

It has what `http.client` and the transport ask of a socket, and no more.
"""

import io
import ssl
from collections.abc import Callable
from functools import partial
from http.client import HTTPResponse
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 2**16
R = TypeVar("R")


def open_tunnel(proxy: ssl.SSLSocket, host: str, port: int, headers: dict[str, str]) -> None:
    """Have the proxy pass on what follows to this address. Raises `OSError` where it refuses."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = (f"CONNECT {where} HTTP/1.1", f"Host: {where}", *(f"{k}: {v}" for k, v in headers.items()))
    proxy.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1"))
    answer = HTTPResponse(proxy, method="CONNECT")
    answer.begin()
    if answer.status != 200:
        answer.close()
        raise OSError(f"Tunnel connection failed: {answer.status} {answer.reason}")


class NestedTls:
    """A TLS connection over one that is TLS itself."""

    def __init__(self, outer: ssl.SSLSocket, context: ssl.SSLContext, host: str) -> None:
        """Raises `ssl.SSLError` where the other end is not believed."""
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._readers = 0
        self._closed = False
        self._through(self._tls.do_handshake)

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        view = memoryview(data)
        while view:
            sent = self._through(partial(self._tls.write, view[:CHUNK]))
            view = view[sent:]

    def receive(self, most: int) -> bytes:
        """What has come, as soon as there is any; empty at the end."""
        try:
            return self._through(lambda: self._tls.read(most))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def makefile(self, mode: str) -> io.BufferedReader:
        """What comes, as a file. The connection is closed once this is, too."""
        assert mode == "rb"
        self._readers += 1
        return io.BufferedReader(_Reader(self))

    def settimeout(self, timeout_s: float | None) -> None:
        """How long a read or a write may take."""
        self._outer.settimeout(timeout_s)

    def fileno(self) -> int:
        """Of the connection below."""
        return self._outer.fileno()

    def shutdown(self, how: int) -> None:
        """End what is under way."""
        self._outer.shutdown(how)

    def close(self) -> None:
        """Hang up as soon as nobody reads any more."""
        self._closed = True
        if not self._readers:
            self._outer.close()

    def leave(self) -> None:
        """One reads no more."""
        self._readers -= 1
        if self._closed:
            self.close()

    def _through(self, step: Callable[[], R]) -> R:
        """Repeat a step of TLS, with what it wants to send and to receive, until it is done."""
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._send()
                if data := self._outer.recv(CHUNK):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._send()
                return done

    def _send(self) -> None:
        if data := self._outgoing.read():
            self._outer.sendall(data)


class _Reader(io.RawIOBase):
    def __init__(self, of: NestedTls) -> None:
        super().__init__()
        self._of = of

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        room = memoryview(buffer)
        data = self._of.receive(len(room))
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._of.leave()

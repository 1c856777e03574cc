"""The agent's private key on its disk, and how it gives way to another.

A new key lies beside the old one until the dispatcher has taken it, and the old one signs that it may. Whatever dies when, one of the two works: the
old one until the dispatcher has written the change down, the new one from then on. The agent need not know which: where the old key is refused it shows
what the old one has signed, which a dispatcher that has taken the new key confirms and one that has not takes now. So a next key is never thrown away,
whatever the answer was.

All steps are kept, not just the last: a dispatcher whose store was restored from before them is led from the key it knows to the one that is used.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from federator.kernel.errors import Conflict
from federator.kernel.files import sync, try_lock, write_durably
from federator.wire.link import MAX_KEY_STEPS, KeyRequest, KeyStep, key_bytes
from federator_agent.signing import signed
from federator_agent.spool import kept

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY, NEXT, STEPS, LOCK = "key", "key.next", "key.steps", "key.lock"
HOST_KEY = "host.key"
"""The second key: it signs for a change of the first, so that a copy of that alone cannot change it. The site's file may name another place for it."""


def load_key(path: Path) -> "Ed25519PrivateKey":
    """A private key; made on first use, readable by its user only, and never sent."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - 7 MB

    if not path.exists():
        write_durably(path, Ed25519PrivateKey.generate().private_bytes_raw().hex().encode())
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text()))


def public(key: "Ed25519PrivateKey") -> str:
    """The public half, in hex."""
    return key.public_key().public_bytes_raw().hex()


class Keys:
    """The keys in a state directory."""

    def __init__(self, directory: Path, host_key: Path | None = None) -> None:
        self._directory = directory
        self._host_key = host_key or directory / HOST_KEY

    @property
    def present(self) -> "Ed25519PrivateKey":
        """The key that proves who this is, read anew: another process may have changed it."""
        return load_key(self._directory / KEY)

    async def proof(self, message: bytes) -> str:
        """What the present key signs, in hex, without loading it here. Raises `Unauthenticated`."""
        return await signed(self._directory / KEY, message)

    @property
    def stamp(self) -> object:
        """Differs once the present key is another file."""
        file = self._directory / KEY
        return (file.stat().st_ino, file.stat().st_mtime_ns) if file.exists() else None

    @property
    def unfinished(self) -> bool:
        """Whether a next key waits to be taken."""
        return (self._directory / NEXT).exists()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one who changes the key. Raises `Conflict`."""
        lock = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not try_lock(lock):
                raise Conflict("the key is just being changed by another process", remedy="wait for it")
            yield
        finally:
            os.close(lock)

    def begin(self, member: str) -> None:
        """Make a next key, and have the present one sign for it; if that was begun already, go on with it."""
        new = public(load_key(self._directory / NEXT))
        steps = self._steps()
        if not steps or steps[-1].public_key != new:
            step = KeyStep(new, self.present.sign(key_bytes(member, new)).hex())
            write_durably(self._directory / STEPS, msgspec.json.encode([*steps, step][-MAX_KEY_STEPS:]))

    def request(self, member: str) -> KeyRequest | None:
        """What leads a dispatcher to the newest key; None: it was never changed."""
        steps = self._steps()
        newest = load_key(self._directory / NEXT) if self.unfinished else self.present
        if not steps or steps[-1].public_key != public(newest):
            return None
        signed = key_bytes(member, public(newest))
        host_proof = self.host.sign(signed).hex() if self._host_key.exists() else ""
        return KeyRequest(member, tuple(steps), newest.sign(signed).hex(), host_proof)

    @property
    def host(self) -> "Ed25519PrivateKey":
        """The host's second key; made on first use, which is when the host joins."""
        return load_key(self._host_key)

    def next_for_joining(self) -> "Ed25519PrivateKey":
        """A next key that no present one signs for: the present one is not to be trusted."""
        (self._directory / STEPS).unlink(missing_ok=True)
        return load_key(self._directory / NEXT)

    def finish(self) -> None:
        """The dispatcher has taken the next key: from now on it is the present one."""
        with contextlib.suppress(FileNotFoundError):
            (self._directory / NEXT).rename(self._directory / KEY)
        sync(self._directory)

    def _steps(self) -> list[KeyStep]:
        file = self._directory / STEPS
        return kept(file, list[KeyStep]) if file.exists() else []

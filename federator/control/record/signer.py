"""The dispatcher's own key, and what it has signed last: both beside the store, so that whoever changes the store cannot sign it."""

from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from federator.control.record.journal import Journal
from federator.kernel.files import write_durably
from federator.model.ledger import Head

KEY_FILE = "ledger.key"
HEAD_FILE = "ledger.head"
NOTES_FILE = "ledger.unsealed"


class Signer:
    """Signs with Ed25519. Without a folder the key lasts as long as the process: for tests and simulations."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._key = Ed25519PrivateKey.generate() if folder is None else _key_in(folder)
        self.public = self._key.public_key().public_bytes_raw().hex()
        self.last: Head | None = None if folder is None else _head_in(folder / HEAD_FILE)
        """The newest head that it has signed."""
        self.journal = Journal(None if folder is None else folder / NOTES_FILE)
        """Lines that are committed and that it has not sealed yet."""

    def sign(self, message: bytes) -> str:
        """The signature, in hex."""
        return self._key.sign(message).hex()

    def signed(self) -> list[Head]:
        """The newest head, and those of ledgers that were gone when it began: a person removes their files once that is explained."""
        return self.aside() + ([] if self.last is None else [self.last])

    def aside(self) -> list[Head]:
        """Those of ledgers that were gone. Blocks on disk."""
        paths = [] if self._folder is None else sorted(self._folder.glob(f"{HEAD_FILE}.*"))
        return [head for path in paths if (head := _head_in(path)) is not None]

    def set_aside(self) -> None:
        """Keep the newest head beside those to come: the ledger ends before it."""
        if self._folder is not None and self.last is not None:
            (self._folder / HEAD_FILE).rename(self._folder / f"{HEAD_FILE}.{self.last.number}")
            self.last = None

    def keep(self, head: Head) -> None:
        """Remember what was signed last. Blocks on disk."""
        self.last = head
        if self._folder is not None:
            write_durably(self._folder / HEAD_FILE, msgspec.json.encode(head))


def is_signed(key: str, signature: str, message: bytes) -> bool:
    """Whether that key has signed that message."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _key_in(folder: Path) -> Ed25519PrivateKey:
    path = folder / KEY_FILE
    if not path.exists():
        write_durably(path, Ed25519PrivateKey.generate().private_bytes_raw().hex().encode())
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))


def _head_in(path: Path) -> Head | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Head)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None

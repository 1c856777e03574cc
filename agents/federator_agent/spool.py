"""What must survive the agent: an append-only journal of changes, the agent's key and name, and specs.

A journal and not a file per record, because one event may change several things that must be there together, and because one
`fdatasync` then pays for all of them. The last line may be torn by a crash: what it would have caused has not happened yet, so
it is dropped. The journal is rewritten, atomically, when most of it is history.
"""

import os
import secrets
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from federator.kernel.errors import Damaged, Invalid
from federator.kernel.files import try_lock, write_durably
from federator.model.jobs import JobSpec
from federator.wire.jsontext import Reader, read
from federator_agent import job_folders
from federator_agent.core.state import Change

KEEP_CHECKPOINTS_S = 30 * 86400.0
"""Real seconds for which a job's checkpoints are kept untouched when the job does not end well here."""
COMPACT_LINES = 4000
"""The journal is rewritten after this many lines."""

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_decoder: Reader[Change] = Reader(Change)


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name this agent was given when it joined, and where."""

    dispatcher: str
    member: str
    site: str
    incarnation: str


def kept(path: Path, kind: type[T]) -> T:
    """What the agent has noted in a file of its state directory. Raises `Damaged` for anything else, and `OSError`."""
    try:
        return read(path.read_bytes(), kind)
    except msgspec.MsgspecError as error:
        raise Damaged(
            f"{path} is not what an agent writes: {error}",
            remedy="bring it back from a backup; or move the state directory away and join again, and work that still runs there is reported lost",
        ) from None


def _last_touched(directory: Path) -> float:
    """The newest real time of change of a directory or of anything in it. What is being removed just now counts as just touched."""
    try:
        newest = directory.lstat().st_mtime
        for level in job_folders.walk(directory):
            for name in (*level.folders, *level.files):
                newest = max(newest, os.stat(name, dir_fd=level.at, follow_symlinks=False).st_mtime)
    except FileNotFoundError:
        return time.time()
    except OSError:
        return directory.lstat().st_mtime  # nested too deep, so nothing that can be kept
    return newest


class Spool:
    """The state directory. One process at a time: the second is refused."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / "specs").mkdir(exist_ok=True)
        self.directory = directory
        self._journal = directory / "journal"
        self._lines = 0
        self._descriptor = -1
        self._lock = -1

    def lock(self) -> None:
        """Be the only agent on this directory. Raises `Invalid` when another is."""
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not try_lock(self._lock):
            raise Invalid(
                f"another agent is running on {self.directory}",
                field="$.state_dir",
                remedy="stop it, or give this one a state_dir of its own",
            )

    def gang_key(self) -> bytes:
        """What the secrets of gangs are made of; made on first use, and the same in every life of the agent."""
        file = self.directory / "gang-key"
        if not file.exists():
            write_durably(file, secrets.token_bytes(32))
        return file.read_bytes()

    def in_use(self) -> bool:
        """Whether an agent runs on this directory."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            return not try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)

    def load(self) -> list[Change]:
        """Everything the journal remembers, ready for more; a torn last line is cut off. Raises `Invalid` like `read`."""
        changes = self.read()
        self._open(len(changes))
        os.ftruncate(self._descriptor, len(self._whole_lines()))
        return changes

    def read(self) -> list[Change]:
        """Everything the journal remembers. Raises `Invalid` when it is damaged elsewhere than in a torn last line."""
        changes: list[Change] = []
        for number, line in enumerate(self._whole_lines().splitlines(), 1):
            try:
                changes.append(_decoder.decode(line))
            except msgspec.MsgspecError as error:
                raise Invalid(
                    f"{self._journal}, line {number}: {error}",
                    remedy="move the state directory away and join again; work that still runs there will be reported lost",
                ) from None
        return changes

    def _whole_lines(self) -> bytes:
        data = self._journal.read_bytes() if self._journal.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def append(self, changes: tuple[Change, ...]) -> None:
        """Write changes; they are on disk when this returns."""
        lines = b"".join(_encoder.encode(change) + b"\n" for change in changes)
        view = memoryview(lines)
        while view:
            view = view[os.write(self._descriptor, view) :]
        os.fdatasync(self._descriptor)
        self._lines += len(changes)

    @property
    def long(self) -> bool:
        """Whether it is time to rewrite the journal."""
        return self._lines > COMPACT_LINES

    def rewrite(self, changes: list[Change]) -> None:
        """Replace the journal by the least that says the same."""
        write_durably(self._journal, b"".join(_encoder.encode(change) + b"\n" for change in changes))
        os.close(self._descriptor)
        self._open(len(changes))

    def _open(self, lines: int) -> None:
        self._descriptor = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines = lines

    def close(self) -> None:
        """Let another process have the directory."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1

    def spec(self, spec_hash: str) -> JobSpec | None:
        """A spec that was fetched before."""
        try:
            return read((self.directory / "specs" / spec_hash).read_bytes(), JobSpec)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def keep_spec(self, spec_hash: str, data: bytes) -> None:
        """Keep a spec, so that a placement can be taken up again without the dispatcher."""
        write_durably(self.directory / "specs" / spec_hash, data)

    def drop_specs(self, needed: set[str]) -> None:
        """Remove the specs that no placement needs."""
        for path in (self.directory / "specs").iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)

    @property
    def placements(self) -> Path:
        """Where placements have their files, a directory for each."""
        return self.directory / "placements"

    @property
    def checkpoints(self) -> Path:
        """Where jobs save themselves, a directory for each."""
        return self.directory / "checkpoints"

    def drop_checkpoints(self, needed: set[str]) -> None:
        """Remove the checkpoints of jobs that have nothing here and that nobody has touched for long."""
        for path in self.checkpoints.glob("*"):
            if path.name not in needed and _last_touched(path) < time.time() - KEEP_CHECKPOINTS_S:
                job_folders.remove(path)

    @property
    def paused(self) -> bool:
        """Whether the owner has paused new work: a file, so that it needs no running agent."""
        return (self.directory / "paused").exists()

    def pause(self, *, paused: bool) -> None:
        """Pause or resume new work; a running agent sees it within a second."""
        if paused:
            write_durably(self.directory / "paused", b"")
        else:
            (self.directory / "paused").unlink(missing_ok=True)

    def keep_renewal(self, boot_id: str, boot_s: float) -> None:
        """Note when the last message that was answered was sent, in real seconds of the boot clock: watchdogs read it.

        Replaced as a whole but not forced to the disk: it says nothing after another boot.
        """
        temporary = self.renewals.with_name(".renewed.new")
        temporary.write_text(msgspec.json.encode({"boot_id": boot_id, "boot_s": boot_s}).decode())
        temporary.rename(self.renewals)

    @property
    def renewals(self) -> Path:
        """The file of `keep_renewal`."""
        return self.directory / "renewed"

    def identity(self) -> Identity | None:
        """Who this agent is; None before it joined."""
        path = self.directory / "identity.json"
        return kept(path, Identity) if path.exists() else None

    def keep_identity(self, identity: Identity) -> None:
        """Remember who this agent is."""
        write_durably(self.directory / "identity.json", _encoder.encode(identity))

    def forget_identity(self) -> None:
        """Leave the federation: the name and the key are gone for good."""
        for name in ("identity.json", "key", "key.next", "key.steps", "ca.pem"):
            (self.directory / name).unlink(missing_ok=True)

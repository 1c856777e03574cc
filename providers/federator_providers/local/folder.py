"""One instance on disk: the folder that is its truth, read by every provider process and written by few hands.

The folder appears whole, by one rename, and its name is the instance's: that makes a launch idempotent. Whether the machine
is on is told by a file lock that the kernel drops with the machine's last process, so no pid is ever trusted.
"""

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec

from federator.kernel.files import sync, try_lock, write_durably
from federator.model.capacity import LaunchRequest, Offer

TAG = "FEDERATOR_INSTANCE_DIR"
"""Environment variable, with the folder's path, that every process of an instance starts with."""


class LaunchRecord(msgspec.Struct, frozen=True):
    """What is known at launch. Times `_at` are the federation's; `boot_real_s` is for the sleeper on this host."""

    name: str
    offer: Offer
    federation: str
    tags: dict[str, str]
    launched_at: float
    boot_real_s: float
    command: tuple[str, ...]
    env: dict[str, str]
    notice_s: float = 120.0
    notice_real_s: float = 0.0
    interrupt_after_real_s: float | None = None
    """When the market takes it back; None: never by itself."""


class InstanceFolder:
    """Paths and facts of one instance."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / "record.json"
        self.user_data_file = path / "user_data"
        self.lock_file = path / "lock"
        self.started_file = path / "started"
        self.running_file = path / "running"
        self.terminate_file = path / "terminate"
        self.interrupt_file = path / "interrupt"
        self.heartbeat_file = path / "heartbeat"
        self.ended_file = path / "ended"
        self.console_file = path / "console.log"
        self.home = path / "home"

    @classmethod
    def create(cls, state_dir: Path, record: LaunchRecord, request: LaunchRequest) -> None:
        """Make the folder, whole and durable. The caller holds the state folder's lock and has seen that the name is free."""
        for left in state_dir.glob(".draft-*"):  # of a launcher that died; the caller is the only one now
            cls(left).delete()
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=state_dir))
        folder = cls(draft)
        folder.home.mkdir()
        folder.lock_file.touch()
        folder.console_file.touch()
        folder.heartbeat_file.touch()
        write_durably(folder.record_file, msgspec.json.encode(record))
        write_durably(folder.user_data_file, request.user_data.encode())
        draft.rename(state_dir / record.name)
        sync(state_dir)

    def record(self) -> LaunchRecord:
        """What was asked for."""
        return msgspec.json.decode(self.record_file.read_bytes(), type=LaunchRecord)

    def is_on(self) -> bool:
        """Whether any process of the machine itself lives: it holds the lock."""
        with self.lock_file.open("rb") as lock:
            return not try_lock(lock.fileno(), shared=True)

    def beat(self) -> None:
        """The machine is alive now (real time, as the file's own)."""
        os.utime(self.heartbeat_file)

    def give_notice(self) -> None:
        """Let the machine be taken back. The notice runs from the first time on; it cannot be withdrawn."""
        with contextlib.suppress(FileExistsError):
            self.interrupt_file.touch(exist_ok=False)

    def ended_at(self) -> float | None:
        """When it ended, in the federation's time; None while nobody has established it."""
        try:
            return float(self.ended_file.read_text())
        except FileNotFoundError:
            return None

    def end(self, at: float) -> float:
        """Establish that it ended at `at`. The first to say so is right; his time is returned. The secret is dropped."""
        # A draft of one's own: threads of one process may be here at once, and who writes to a draft that is linked already changes the end.
        draft = Path(tempfile.mkdtemp(prefix=".ended-", dir=self.path)) / "draft"
        write_durably(draft, repr(at).encode())
        with contextlib.suppress(FileExistsError):
            os.link(draft, self.ended_file)
        draft.unlink()
        draft.parent.rmdir()
        self.user_data_file.unlink(missing_ok=True)
        return float(self.ended_file.read_text())

    def delete(self) -> None:
        """Forget it."""
        for root, folders, files in os.walk(self.path, topdown=False):
            for name in files:
                (Path(root) / name).unlink(missing_ok=True)
            for name in folders:
                child = Path(root) / name
                if child.is_symlink():
                    child.unlink()
                else:
                    child.rmdir()
        self.path.rmdir()

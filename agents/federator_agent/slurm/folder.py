"""A placement's directory on the file system that the agent shares with the nodes, and the marks that ranks leave in it."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from federator.kernel.files import write_durably
from federator_agent import job_folders, safe_open
from federator_agent.slurm.script import RANK_SCRIPT
from federator_agent.spool import kept

MOST_OF_A_MARK = 4096
"""Bytes."""


class Exit(NamedTuple):
    """A command's end: its code, and when by the clock of its node."""

    code: int
    real_at: float


class Marks(NamedTuple):
    """What ranks have left, by rank."""

    nodes: dict[int, tuple[str, str]]
    """Which have come to the gate: the Slurm job, and the node."""
    started: dict[int, float]
    ended: dict[int, Exit]
    told: frozenset[int] = frozenset()
    """Which were told to end, by whomever."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """On the agent's disk before Slurm is asked for anything. `slurm_job`: once it has answered. `signalled`: its ranks were told to end from here."""

    asked_at: float
    slurm_job: str = ""
    signalled: bool = False


class Folder:
    """One placement's. `path` is shared with the nodes; what only the agent needs to know is on its own disk."""

    def __init__(self, path: Path, intent: Path) -> None:
        self.path = path
        self._intent = intent

    @property
    def work(self) -> Path:
        """The work directory of all ranks."""
        return self.path / "work"

    def make(self, ranks: tuple[int, ...], link: Path) -> None:
        """The directory, its user's alone, with a log's place for each rank; `link` leads to it from where the agent looks for logs."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        for rank in ranks:
            (self.path / f"rank-{rank}").mkdir(exist_ok=True)
            (self.path / f"rank-{rank}" / "log").touch()
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.path)

    def write_scripts(self, batch: str) -> None:
        """What Slurm is to run."""
        for name, text in (("rank.sh", RANK_SCRIPT), ("batch.sh", batch)):
            write_durably(self.path / name, text.encode(), 0o644)

    @property
    def intent(self) -> Intent | None:
        """What Slurm has been, or may have been, asked for."""
        try:
            return kept(self._intent, Intent)
        except FileNotFoundError:
            return None

    def intend(self, intent: Intent) -> None:
        """Note it, durably."""
        self._intent.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self._intent, msgspec.json.encode(intent))

    def give_up_intent(self) -> None:
        """Slurm has said that it does not take it."""
        self._intent.unlink(missing_ok=True)

    @property
    def admitted(self) -> str:
        """The Slurm job whose ranks may pass; empty while the gate is shut."""
        try:
            return self._text("go").strip()
        except FileNotFoundError:
            return ""

    def write_commands(self, commands: dict[int, str]) -> None:
        """What each rank runs once it has passed. They may hold secrets."""
        for rank, script in commands.items():
            write_durably(self.path / f"command-{rank}", script.encode())

    def admit(self, slurm_job: str) -> None:
        """Open the gate to that job."""
        write_durably(self.path / "go", f"{slurm_job}\n".encode(), 0o644)

    def marks(self) -> Marks:
        """What is there now."""
        marks, told = Marks({}, {}, {}), set()
        try:
            names = os.listdir(self.path)  # noqa: PTH208 - a look at the directory makes NFS look, too
        except FileNotFoundError:
            return marks
        for name in names:
            kind, _, number = name.rpartition("-")
            if kind == "told" and number.isdigit():
                told.add(int(number))
            elif kind in ("at-gate", "started", "exit") and number.isdigit():
                with contextlib.suppress(FileNotFoundError):
                    self._read(marks, kind, int(number), self._text(name).split())
        return marks._replace(told=frozenset(told))

    @property
    def signalled(self) -> bool:
        """Whether this agent, in this life or an earlier one, has had its ranks sent a signal."""
        intent = self.intent
        return intent is not None and intent.signalled

    def note_signal(self) -> None:
        """Before one is sent."""
        intent = self.intent
        if intent is not None and not intent.signalled:
            self.intend(msgspec.structs.replace(intent, signalled=True))

    def _text(self, name: str) -> str:
        """What a mark says: the job may have written anything there."""
        return safe_open.read(self.path, self.path / name, MOST_OF_A_MARK).decode(errors="replace")

    @staticmethod
    def _read(marks: Marks, kind: str, rank: int, words: list[str]) -> None:
        if kind == "at-gate" and len(words) == 2:
            marks.nodes[rank] = (words[0], words[1])
        elif kind == "started" and words:
            marks.started[rank] = float(words[0])
        elif kind == "exit" and len(words) == 2:
            marks.ended[rank] = Exit(int(words[0]), float(words[1]))

    def said(self) -> str:
        """The end of what Slurm itself has written about the job."""
        try:
            with safe_open.opened(self.path, self.path / "slurm.out") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def remove(self, link: Path) -> None:
        """All of it, the intent last: while it is there, this is done again."""
        if link.is_symlink():
            link.unlink(missing_ok=True)
        job_folders.remove(self.path, strict=True)
        self._intent.unlink(missing_ok=True)

"""What the kernel says of processes that it killed for want of memory.

It counts such kills: per cgroup where it keeps that, else for the whole host. A rank that ends with 137, not having been asked to end, just when the
count has risen, was killed for that. The count is looked at every now and then while ranks run, so that an old kill is not taken for a new one.
"""

from pathlib import Path

KILLED = 137
"""How a shell tells of a process that signal 9 has ended."""
LOOK_S = 2.0
"""Real seconds between two looks while ranks run."""


class KillCount:
    """How many were killed so far, and at the look before the last."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._last = self._count()

    def look(self) -> None:
        """Remember the count of now."""
        self._before, self._last = self._last, self._count()

    def rose(self) -> bool:
        """Whether the kernel has killed for want of memory within the last look or two."""
        now = self._count()
        return now is not None and self._before is not None and now > self._before

    def _count(self) -> int | None:
        """The count of the cgroup that ranks run in, which is the agent's, or of the host; None: the kernel does not say."""
        try:
            groups = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            groups = []
        files = [file for line in groups if (file := self._file(line))]
        for file in (*files, self._root / "proc/vmstat"):
            count = read(file)
            if count is not None:
                return count
        return None

    def _file(self, line: str) -> Path | None:
        """Where a line of `/proc/self/cgroup` says that the count is: of the unified hierarchy, or of the old one for memory."""
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        top = self._root / "sys/fs/cgroup"
        if not controllers:
            return top / path.lstrip("/") / "memory.events"
        if "memory" in controllers.split(","):
            return top / "memory" / path.lstrip("/") / "memory.oom_control"
        return None


def read(file: Path) -> int | None:
    """The count in a file of that form; None: it has none."""
    try:
        words = dict(line.split(maxsplit=1) for line in file.read_text().splitlines() if " " in line)
        return int(words["oom_kill"])
    except (OSError, KeyError, ValueError):
        return None

"""How far packing, uploads, downloads and waits are: what is told, and bars that show it on a terminal or in a notebook."""

from collections.abc import Callable
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LONG_BYTES = 2**20
"""What is smaller is done before anybody has read a bar."""


STATE = ""
"""The one line for what has no end that is known: each step of that kind replaces the one before."""


class Step(NamedTuple):
    """How far something is: `done` of `total` bytes; a total of 0 is not known, or does not count bytes."""

    what: str
    done: int = 0
    total: int = 0


Tell = Callable[[Step], None]


class CountedFile(BufferedReader):
    """A file that tells how much of it has been read."""

    def __init__(self, file: Path, what: str, tell: Tell) -> None:
        super().__init__(FileIO(file))
        self._what, self._tell, self._total = what, tell, file.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, which count as done."""
        data = super().read(size)
        self._tell(Step(self._what, self.tell(), self._total))
        return data


class Bars:
    """Shows steps beside standard output, while there are any; nothing of them stays."""

    def __init__(self) -> None:
        self.drawn: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def tell(self, step: Step) -> None:
        """Draw a step, or draw it anew; one that is done goes."""
        if 0 < step.total < LONG_BYTES:
            return
        drawn = self._started()
        if step.total and step.done >= step.total:
            if step.what in self._tasks:
                drawn.remove_task(self._tasks.pop(step.what))
            return
        name = step.what if step.total else STATE
        if name not in self._tasks:
            self._tasks[name] = drawn.add_task(step.what, total=step.total or None)
        drawn.update(self._tasks[name], description=step.what, completed=step.done)

    def close(self) -> None:
        """Take all of it away."""
        if self.drawn is not None:
            self.drawn.stop()
            self.drawn = None
            self._tasks.clear()

    def _started(self) -> "Progress":
        if self.drawn is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(),
                TimeRemainingColumn(),
            )
            self.drawn = Progress(*columns, console=Console(stderr=True), transient=True)
            self.drawn.start()
        return self.drawn

"""One of our programs as it is, with a thread that writes down how many tasks its event loops have left to do.

python -m tests.soak.counted FILE MODULE …
"""

import asyncio
import runpy
import sys
import threading
import time
from pathlib import Path

EVERY_S = 5.0


class RememberedLoops(asyncio.DefaultEventLoopPolicy):
    """Asyncio's own policy, which knows all loops that were made.

    The garbage collector, asked for all tasks from beside, would hand out tuples that are still being made; who makes one then fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[asyncio.AbstractEventLoop] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """One more."""
        self.loops = [each for each in self.loops if not each.is_closed()]
        self.loops.append(loop := super().new_event_loop())
        return loop

    def unfinished_tasks(self) -> int:
        """Of all loops."""
        return sum(len(asyncio.all_tasks(loop)) for loop in self.loops)


def _count(policy: RememberedLoops, file: Path) -> None:
    """Write the number again and again. A reader finds a whole number or no file."""
    written = file.with_suffix(".new")
    while True:
        written.write_text(str(policy.unfinished_tasks()))
        written.replace(file)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    _policy = RememberedLoops()
    asyncio.set_event_loop_policy(_policy)
    threading.Thread(target=_count, args=(_policy, Path(sys.argv[1])), daemon=True).start()
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

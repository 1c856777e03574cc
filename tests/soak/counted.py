"""One of our programs as it is, with a thread that writes down how many tasks its event loops have left to do.

python -m tests.soak.counted FILE MODULE …

All loops count, and tasks that nobody holds any longer, too: it is the interpreter's garbage collector that is asked.
"""

import asyncio
import gc
import runpy
import sys
import threading
import time
from pathlib import Path

EVERY_S = 5.0


def count_tasks(file: Path) -> None:
    """Write the number of unfinished tasks, again and again. A reader finds a whole number or no file."""
    written = file.with_suffix(".new")
    while True:
        written.write_text(str(unfinished_tasks()))
        written.replace(file)
        time.sleep(EVERY_S)


def unfinished_tasks() -> int:
    """Of this process, whatever the loop."""
    return sum(1 for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done())


if __name__ == "__main__":
    threading.Thread(target=count_tasks, args=(Path(sys.argv[1]),), daemon=True).start()
    module = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

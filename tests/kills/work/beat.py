"""A job that does nothing but say that it lives: start, a beat every 50 ms and its end, each with the boot clock, in a file of its own."""

import os
import signal
import sys
import time
from pathlib import Path

BEAT_S = 0.05


def main(folder: Path, run_s: float, *, stubborn: bool) -> None:
    """Beat for `run_s` real seconds; a TERM ends it at once, as a checkpoint would, unless it is stubborn."""
    where = os.environ
    name = f"{where['FEDERATOR_JOB_ID']}.{where['FEDERATOR_PLACEMENT_ID']}.{where['FEDERATOR_NODE_RANK']}.{os.getpid()}"
    file = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(word: str) -> None:
        # One call of the system for a line: a signal's own line may come while another is written, and readers see whole lines.
        os.write(file, f"{word} {time.clock_gettime(time.CLOCK_BOOTTIME):.4f}\n".encode())

    def stop(*_: object) -> None:
        write("asked" if stubborn else "stopped")
        if not stubborn:
            os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    write("start")
    until = time.monotonic() + run_s
    while time.monotonic() < until:
        time.sleep(BEAT_S)
        write("beat")
    write("end")


main(Path(sys.argv[1]), float(sys.argv[2]), stubborn="stubborn" in sys.argv[3:])

"""The program that is a machine: `python -m federator_providers.local.machine FOLDER`.

Two processes, so that the end of either is noticed by the other and takes everything down, as a power cut does:

- the *chassis* beats, obeys `terminate`, ends all when the board is gone, and when the time of an interruption's notice is over;
- the *board*, its child, boots, runs the command, and ends all when the chassis is gone.

Both are subreapers, so whatever the command starts stays below them (`processes.py`). Both hold the folder's lock from before
the fork on: it is free when neither lives. Should both be killed in the same instant, the next listing finds the lock free and
kills what is left by its environment. A machine runs once: a folder that has started before is left alone.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from federator.kernel.files import try_lock
from federator_providers.local.folder import InstanceFolder, LaunchRecord
from federator_providers.local.processes import become_subreaper, kill_descendants, reap

TICK_S = 0.25
MAX_CONSOLE_BYTES = 16 * 2**20


def main(path: Path) -> None:
    """Switch the machine on and return; what stays is the chassis."""
    folder = InstanceFolder(path)
    lock = os.open(folder.lock_file, os.O_RDONLY)
    for _ in range(20):
        if try_lock(lock):
            break
        time.sleep(0.05)  # a listing may hold it for a moment
    else:
        return
    if folder.started_file.exists():
        return
    folder.started_file.touch()
    if os.fork() == 0:
        _chassis(folder)


def _chassis(folder: InstanceFolder) -> NoReturn:
    os.setsid()
    become_subreaper()
    lifeline, held = os.pipe()
    board = os.fork()
    if board == 0:
        os.close(held)
        _board(folder, lifeline)
    os.close(lifeline)
    board_ended = False
    try:
        notice = _Notice(folder)
        while not folder.terminate_file.exists() and not notice.over():
            if board_ended := board in reap():
                break
            folder.beat()
            if folder.console_file.stat().st_size > MAX_CONSOLE_BYTES:
                os.truncate(folder.console_file, 0)
            time.sleep(TICK_S)
    finally:
        if not board_ended:
            # Before all else, and not stopped first as others are: a stopped board would hold the lock for ever, were this process killed then.
            os.kill(board, signal.SIGKILL)
        _off(folder)


class _Notice:
    """The time that is left to a machine whose market takes it back, by this host's clock."""

    def __init__(self, folder: InstanceFolder) -> None:
        record = folder.record()
        self._folder = folder
        self._notice_s = record.notice_real_s
        after_s = record.interrupt_after_real_s
        self._given_s = math.inf if after_s is None else time.monotonic() + after_s
        self._over_s = math.inf

    def over(self) -> bool:
        """Whether the machine has to go now; gives the notice itself when the market's time has come."""
        now_s = time.monotonic()
        if now_s >= self._given_s:
            self._folder.give_notice()
        if self._over_s == math.inf and self._folder.interrupt_file.exists():
            self._over_s = now_s + self._notice_s
        return now_s >= self._over_s


def _board(folder: InstanceFolder, lifeline: int) -> NoReturn:
    become_subreaper()
    try:
        record = folder.record()
        if not _chassis_gone(lifeline, record.boot_real_s):
            command = _run(folder, record)
            while command.poll() is None and not _chassis_gone(lifeline, TICK_S):
                reap()
    finally:
        _off(folder)


def _chassis_gone(lifeline: int, within_s: float) -> bool:
    """Wait that long; True at once when the other end of the pipe closes."""
    return bool(select.select([lifeline], [], [], within_s)[0])


def _run(folder: InstanceFolder, record: LaunchRecord) -> subprocess.Popen[bytes]:
    """Start the command, in a session of its own."""
    blanks = {
        "{name}": record.name,
        "{home}": str(folder.home),
        "{user_data_file}": str(folder.user_data_file),
    }
    command = []
    for word in record.command:
        for blank, value in blanks.items():
            word = word.replace(blank, value)  # noqa: PLW2901 - filled in step by step
        command.append(word)
    environment = {
        **os.environ,
        **record.env,
        "FEDERATOR_INSTANCE": record.name,
        "FEDERATOR_USER_DATA_FILE": str(folder.user_data_file),
        "FEDERATOR_AGENT_STATE_DIR": str(folder.home),
    }
    folder.running_file.touch()
    return subprocess.Popen(command, env=environment, cwd=folder.home, start_new_session=True)


def _off(folder: InstanceFolder) -> NoReturn:
    """Nothing below this process is left when it ends; what went wrong goes to the console."""
    if sys.exc_info()[0] is not None:
        traceback.print_exc()
    kill_descendants()
    with contextlib.suppress(FileNotFoundError):  # the folder was taken away: off all the same
        folder.beat()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

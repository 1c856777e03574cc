"""Terminals for tests: a shell behind a pseudo-terminal, so that programs behave as they do for a person, Ctrl-C included."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

COLUMNS = 110
PROMPT = re.compile(r"@@(\d+)@@ ")
_INTERRUPT = b"\x03"
_WRITTEN_OVER = re.compile(r"[^\n]*\r\x1b\[K")


class Terminal:
    """One shell. What is typed is not echoed; after each command the prompt tells its exit code."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        attributes = termios.tcgetattr(theirs)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "/bin/bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder,
            env={**environment, "PS1": "@@$?@@ ", "PS2": "", "TERM": "xterm", "NO_COLOR": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._screen = ours
        self._came = self.printed = ""
        self.busy = True
        self.exit_code = 0
        self.settle(within_s=60)

    def type(self, command: str) -> None:
        """Type a command and Enter."""
        assert not self.busy, f"this terminal still runs something: {self.printed[-500:]}"
        self._came, self.printed, self.busy = "", "", True
        os.write(self._screen, command.encode() + b"\n")

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.write(self._screen, _INTERRUPT)

    def settle(self, *, within_s: float) -> bool:
        """Wait for the prompt; False when time is up first."""
        return self.read_until(lambda _: not self.busy, within_s=within_s)

    def read_until(self, enough: Callable[[str], bool], *, within_s: float) -> bool:
        """Read what is printed until it is enough; False when time is up first."""
        give_up_at = time.monotonic() + within_s
        while not enough(self.printed):
            left_s = give_up_at - time.monotonic()
            if left_s <= 0 or not select.select([self._screen], [], [], left_s)[0]:
                return False
            self._take(os.read(self._screen, 65536).decode(errors="replace"))
        return True

    def _take(self, text: str) -> None:
        self._came += text
        self.printed = _as_shown(self._came)
        prompt = PROMPT.search(self.printed)
        if prompt is not None:
            self.busy, self.exit_code = False, int(prompt[1])
            self.printed = self.printed[: prompt.start()]

    def close(self) -> None:
        """End the shell and what runs in it."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                for group in {_foreground(self._screen), self._shell.pid} - {0}:
                    os.killpg(group, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(timeout=3)
        os.close(self._screen)


def _foreground(screen: int) -> int:
    """The process group that has the terminal."""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(screen)
    return 0


def _as_shown(text: str) -> str:
    """What is left on the screen of lines that were written over."""
    return _WRITTEN_OVER.sub("", text.replace("\r\n", "\n")).replace("\r", "")

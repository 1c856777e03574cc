"""Completion of words in the shells themselves: Tab completes what has been typed."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support.waiting import PATIENCE_S
from tests.testbeds.required import need

QUIET = "PROMPT='ready> '; unset RPROMPT\n"


def _installed(shell: str, home: Path) -> dict[str, str]:
    """The environment of somebody who has just installed completion for that shell."""
    need("" if shutil.which(shell) else f"{shell} is not installed")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "ZDOTDIR"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # fish completes what is there
    environ |= {"HOME": str(home), "TERM": "dumb", "LC_ALL": "C.UTF-8", "PATH": path}
    command = [sys.executable, "-m", "federator", "completion", shell]
    subprocess.run(command, env=environ, check=True, capture_output=True, timeout=PATIENCE_S)
    return environ


def test_fish_completes_verbs_and_options(tmp_path: Path) -> None:
    environ = _installed("fish", tmp_path)
    for typed, completed in (("federator can", "cancel"), ("federator list --so", "--sort")):
        command = ["fish", "-c", f"complete -C '{typed}'"]
        said = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert completed in [line.split("\t")[0] for line in said.stdout.splitlines()], said


def test_zsh_completes_verbs_and_options(tmp_path: Path) -> None:
    environ = _installed("zsh", tmp_path)
    with (tmp_path / ".zshrc").open("a") as file:
        file.write(QUIET)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(shutil.which("zsh") or "", ["zsh", "-i"], environ)
    try:
        _sees(terminal, "ready> ")
        for typed, completed in (
            ("federator canc\t", "federator cancel"),
            ("\x15federator list --sor\t", "list --sort"),
        ):
            os.write(terminal, typed.encode())
            _sees(terminal, completed)
        os.write(terminal, b"\x15exit\n")
        os.waitpid(pid, 0)
    finally:
        os.close(terminal)


def _sees(terminal: int, text: str) -> None:
    """Wait until the terminal has shown this."""
    said, until = "", time.monotonic() + PATIENCE_S
    while text not in said:
        assert time.monotonic() < until, f"{text!r} is not in {said!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 65536).decode(errors="replace")

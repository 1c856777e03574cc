"""Runs of `federator demo` as a user starts it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

LIMIT_S = 400


class Run(NamedTuple):
    """One run: how it ended, what it printed, what `--json` says, and the folder it worked in."""

    code: int
    output: str
    result: Mapping[str, Any]
    folder: Path

    def job(self, name: str) -> Mapping[str, Any]:
        return next(job for job in self.result["jobs"] if job["name"] == name)

    @property
    def failed_checks(self) -> list[str]:
        return [f"{check['name']}: {check['seen']}" for check in self.result["checks"] if not check["holds"]]


def federator(*words: str) -> "subprocess.CompletedProcess[str]":
    """The command, with nothing of ours in its environment."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FEDERATOR_")}
    return subprocess.run(
        [sys.executable, "-m", "federator", *words],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
        check=False,
    )


def run_demo(folder: Path, *words: str) -> Run:
    """`federator demo`, in a folder that stays."""
    place, file = folder / "state", folder / "result.json"
    done = federator("demo", "--state-dir", str(place), "--json", str(file), *words)
    result = json.loads(file.read_text()) if file.exists() else {}
    return Run(done.returncode, done.stdout, result, place)

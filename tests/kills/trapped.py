"""The dispatcher as it is, with a trap at its provider: `kill -9` in the middle of a call, where the storm has asked for it.

python -m tests.kills.trapped serve …

A trap is an empty file in the folder that `STORM_TRAPS` names, called after the call and the moment: `asked` is before the request has reached
the provider, `underway` while it is being carried out, `done` when it has taken effect and the reply is not back yet. The one
who removes the file has sprung it, so that no trap is sprung twice, nor after the storm has taken it away.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

from federator.cli.app import run_command
from federator_providers.local import LocalProvider

FOLDER = "STORM_TRAPS"
CALLS = {"launch": "launch", "terminate": "terminate", "list": "instances"}
"""What can be trapped, and the provider's method for it."""
MOMENTS = ("asked", "underway", "done")
UNDERWAY_S = 0.15
"""A launch takes about so long: the machine's process is started in it."""


def trapped(call: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The same call, with its traps."""

    @wraps(method)
    async def calling(*given: Any) -> Any:
        if _sprung(call, "asked"):
            _die()
        if _sprung(call, "underway"):
            asyncio.get_running_loop().call_later(random.uniform(0.0, UNDERWAY_S), _die)
        answer = await method(*given)
        if _sprung(call, "done"):
            _die()
        return answer

    return calling


def _sprung(call: str, moment: str) -> bool:
    try:
        (Path(os.environ[FOLDER]) / f"{call}.{moment}").unlink()
    except FileNotFoundError:
        return False
    return True


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    for call, name in CALLS.items():
        setattr(LocalProvider, name, trapped(call, getattr(LocalProvider, name)))
    sys.exit(run_command(sys.argv[1:]))

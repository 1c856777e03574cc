"""Where a state directory lives, so that a copy of it is found out before it does any harm.

A state directory holds an identity and the memory of what runs beside it. A copy has both, but not the processes: it would look for them, not find them,
and report work as lost that runs on where it came from, or start what was about to start there once more. Another boot of the same machine looks the
same from inside, so the directory remembers its path and its machine. A whole virtual machine that was cloned with its machine id is not found out
here; the dispatcher sees that one, as long as the first one's agent is connected.
"""

import platform
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.files import write_durably
from federator_agent.spool import kept

MACHINE_ID = Path("/etc/machine-id")
_FILE = "home"


class Home(msgspec.Struct, frozen=True):
    """A directory's path, links resolved, and its machine's id; empty where the machine has none."""

    path: str
    machine: str


def settle(directory: Path, *, moved: bool = False) -> None:
    """Make sure that this directory is where it was first used; `moved`: from now on it is here. Raises `Invalid` for a copy."""
    file = directory / _FILE
    here = Home(str(directory.resolve()), _machine())
    known = kept(file, Home) if file.exists() else None
    if known == here:
        return
    if known is not None and not moved and not _same(known, here):
        where = (
            f"{known.path} on this machine"
            if known.machine == here.machine
            else f"{known.path} on another machine"
        )
        raise Invalid(
            f"{here.path} is a copy of {where}: two agents with one identity would report each other's work as lost",
            field="$.state_dir",
            remedy="give this agent an empty state_dir and a join token of its own; or, if the directory was moved here and nothing of it runs "
            "where it was, start it once with 'serve --moved'",
        )
    write_durably(file, msgspec.json.encode(here))


def place(directory: Path) -> str:
    """Where this agent is, for people."""
    return f"{platform.node() or 'a nameless host'} ({directory})"


def _same(known: Home, here: Home) -> bool:
    """A machine without an id proves nothing."""
    return known.path == here.path and (not known.machine or not here.machine)


def _machine() -> str:
    try:
        return MACHINE_ID.read_text().strip()
    except OSError:
        return ""

"""Whose a place is that an agent has outside of its state directory, and may tidy up: a directory that it shares with nodes, a namespace of a cluster.

What lies there and is in no memory of the agent's is taken for left over, and removed. To another agent it is running work. So a place is marked by
its first agent, and is refused to every other one, also to the same host with a new state directory: what the old one knew of may run there still.
"""

import contextlib
import os
import secrets
from pathlib import Path

import msgspec

from federator.kernel.errors import Damaged, Invalid
from federator.kernel.files import write_durably
from federator_agent.home import place
from federator_agent.spool import kept

FILE = "owner"
"""In the state directory its own mark; in a place outside the mark of whom that belongs to."""


class Mark(msgspec.Struct, frozen=True):
    """Of one state directory: a random `owner`, and for people which agent that is."""

    owner: str
    who: str


def mark_of(state_dir: Path, site: str) -> Mark:
    """That of an agent, made on first use."""
    file = state_dir / FILE
    if not file.exists():
        write_durably(file, msgspec.json.encode(Mark(secrets.token_hex(16), "")))
    owner = kept(file, Mark).owner
    return Mark(owner, f"the agent of site {site} on {place(state_dir)}")


def claim(directory: Path, state_dir: Path, site: str, field: str) -> None:
    """Make a directory outside this agent's own. Raises `Invalid`, naming `field`, when it is another's or cannot be written."""
    mark = mark_of(state_dir, site)
    file, own = directory / FILE, directory / f".{FILE}.{mark.owner}"
    try:
        write_durably(own, msgspec.json.encode(mark), 0o644)
        with contextlib.suppress(FileExistsError):
            os.link(own, file)  # unlike a rename it takes nothing away from who was first
        own.unlink(missing_ok=True)
        why = foreign(directory, state_dir)
    except OSError as error:
        fix = "make it writable for this user"
        raise Invalid(f"{directory}: {error.strerror}", field=field, remedy=fix) from None
    if why:
        raise Invalid(why, field=field, remedy=remedy(file))


def foreign(directory: Path, state_dir: Path) -> str:
    """Why a directory is not for this agent; empty: it may be, or is its own. Raises `OSError`."""
    file, mine = directory / FILE, state_dir / FILE
    if not file.exists():
        return ""
    try:
        known = kept(file, Mark)
    except Damaged:
        return f"{file} says nothing that an agent has written"
    if mine.exists() and kept(mine, Mark).owner == known.owner:
        return ""
    return f"{directory} belongs to {known.who}, whose agent removes files there that it does not know"


def remedy(mark: object) -> str:
    """What helps."""
    return (
        f"name another place; or, once that agent no longer exists and none of its work runs, remove {mark}"
    )

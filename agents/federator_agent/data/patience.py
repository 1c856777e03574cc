"""Trying again what may yet succeed, for as long as a job can be asked to wait for it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from federator.kernel.errors import Transient
from federator.retry import Backoff, retried
from federator_agent.data.sources import Item, Moved, Readable, size_of
from federator_agent.link_use import HoursOver

PATIENCE_S = 600.0
"""So long another side may be in trouble before a transfer is given up: the dispatcher may know a better place by then."""
BACKOFF = Backoff(0.5, 30.0)
T = TypeVar("T")


async def patiently(
    work: Callable[[], Awaitable[T]], note: Callable[[str], None], patience_s: float = PATIENCE_S
) -> T:
    """Repeat while it raises `Transient`, with growing pauses. Raises that error once patience has run out, and all others at once."""

    def failed(error: BaseException) -> None:
        note(f"{error.message if isinstance(error, Transient) else error}; trying again\n")

    return await retried(work, BACKOFF, on=Transient, patience_s=patience_s, failed=failed)


async def fetch_patiently(
    source: Readable,
    uri: str,
    item: Item,
    into: Path,
    moved: Callable[[], Moved],
    note: Callable[[str], None],
) -> None:
    """Fetch an item, however long its hours and the rate make that take: patience begins anew when more of it is there than ever. `moved`: makes what one attempt tells."""
    most = size_of(into)
    while True:
        await until_it_may_move(source, uri, item.size, note)
        try:
            return await patiently(lambda: source.fetch(uri, item, into, moved()), note)
        except HoursOver:
            continue
        except Transient:
            if size_of(into) <= most:
                raise
            most = size_of(into)


async def until_it_may_move(source: Readable, uri: str, size: int, note: Callable[[str], None]) -> None:
    """Wait for the hours of what is so large."""
    if source.link is not None and not source.link.may_move(size):
        note(f"{uri}: waits for the hours in which the site moves what is large\n")
        await source.link.until_bulk_may_move(size)

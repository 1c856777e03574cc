"""The list schedule and its prices as a compiled kernel: what a turn spends its time on.

The only package that knows numba. Nothing waits for it: where it is missing, or nothing has been compiled yet, `schedule` and `objective` do the
same in plain Python, some thirty times slower, and come to the same numbers; a property test holds the two together. Compiling takes a
quarter of a minute, once for each version of these sources and each kind of processor; who has the time calls `prepare`.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from federator.planning.kernels import shelf

Kernel = Callable[[Any], None]
"""Carries out what a `tables.Sheet` says."""

_known: list[Kernel] = []
_failed: list[str] = []
"""Why there is none: it is not tried again for every decision."""


def at_hand() -> Kernel | None:
    """The kernel, if it need not be compiled first; loading it takes a quarter of a second, once. Raises nothing."""
    if not _known and not _failed and shelf.done():
        _load(compiling=False)
    return _known[0] if _known else None


def prepare() -> bool:
    """Load the kernel, or compile it; whether there is one now. Raises nothing."""
    if not _known:
        _load(compiling=True)
    return bool(_known)


def trouble() -> str:
    """Why decisions are made in plain Python, for people; empty: they are not, or nobody has tried to load the kernel."""
    return _failed[-1] if _failed and not _known else ""


def _load(*, compiling: bool) -> None:
    """Whatever goes wrong – no numba, a full disk, a folder that nobody may open – only costs speed: no decision may fail for it."""
    try:
        from federator.planning.kernels import compiled, deciding, tables  # noqa: PLC0415 - nor numba nor numpy before they are wanted

        decide: Kernel = deciding.decide
        with nullcontext() if compiling else compiled.refused():
            decide(tables.nothing())
        shelf.finish()
    except Exception as error:  # noqa: BLE001 - numba raises what it likes
        place = shelf.folder()
        where = "" if place is None else f" from {place}, which can be removed if it is damaged"
        _failed.append(
            f"plans are made without the compiled planner, some thirty times slower: it could not be loaded{where}"
            f" ({type(error).__name__}: {error})"
        )
        return
    _known.append(decide)
